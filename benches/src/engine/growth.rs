//! What a long session costs: time and room.

use std::path::Path;

use anyhow::{Context, Result};
use rusqlite::Connection;
use rye_store::Sqlite;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::runtime;
use super::work::{Talk, engine};
use crate::measure::try_interleaved;
use crate::table::{Row, Unit};

const EARLY: usize = 10;
const LATE: usize = 1_000;
const ROUNDS: usize = 60;

/// Turn 1,000 beside turn 10, and the room of both lengths.
pub(super) fn run() -> Result<Vec<Row>> {
    let mut rows = vec![time()?];
    let (short, _) = room(LATE / 10)?;
    let (long, payload) = room(LATE)?;
    let row = |what: &str, floor, goal| Row {
        what: what.to_owned(),
        ours: long,
        floor,
        goal,
        unit: Unit::Bytes,
    };
    rows.push(row(
        "the file after 1,000 turns, beside after 100",
        short,
        11.0,
    ));
    rows.push(row(
        "the same, beside what its documents hold",
        payload,
        2.0,
    ));
    Ok(rows)
}

fn time() -> Result<Row> {
    let folder = TempDir::new()?;
    let runtime = runtime()?;
    let engine = runtime
        .block_on(async { engine(Sqlite::open(folder.path().join("sessions.db"))?, "look") })?;
    let mut late = talk(&runtime, &engine, LATE - 1)?;
    let early = (0..=ROUNDS).map(|_| talk(&runtime, &engine, EARLY - 1));
    let mut early = early.collect::<Result<Vec<_>>>()?.into_iter();
    let times = try_interleaved(
        ROUNDS,
        || {
            let mut talk = early.next().context("there are as many as rounds")?;
            runtime.block_on(talk.turn())
        },
        || runtime.block_on(late.turn()),
    )?;
    runtime.block_on(engine.shutdown())?;
    Ok(Row::time(
        "turn 1,000 of a session, beside turn 10",
        times,
        1.5,
    ))
}

/// A session that has had so many turns.
fn talk(runtime: &Runtime, engine: &rye_engine::Engine, turns: usize) -> Result<Talk> {
    runtime.block_on(async {
        let mut talk = Talk::begin(engine).await?;
        for _ in 0..turns {
            talk.turn().await?;
        }
        Ok(talk)
    })
}

/// The bytes of the file after so many turns, and of the documents in it.
fn room(turns: usize) -> Result<(f64, f64)> {
    let folder = TempDir::new()?;
    let file = folder.path().join("sessions.db");
    let runtime = runtime()?;
    let engine = runtime.block_on(async { engine(Sqlite::open(&file)?, "look") })?;
    drop(talk(&runtime, &engine, turns)?);
    runtime.block_on(engine.shutdown())?;
    drop(engine);
    drop(runtime);
    let payload = payload(&file)?;
    let bytes = std::fs::metadata(&file)?.len();
    Ok((f64::from(u32::try_from(bytes)?), payload))
}

fn payload(file: &Path) -> Result<f64> {
    let db = Connection::open(file)?;
    // What is in the log is brought into the file first.
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    let mut sum = 0.0;
    for table in ["engine_entries", "engine_events", "engine_queue_items"] {
        let question = format!("SELECT total(length(doc)) FROM {table}");
        sum += db.query_row(&question, [], |row| row.get::<_, f64>(0))?;
    }
    Ok(sum)
}
