//! Time and disk space of a long session.

use std::path::Path;

use anyhow::{Context, Result};
use rusqlite::Connection;
use rye_store::SqliteStore;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::fixture::{BenchSession, engine};
use super::runtime;
use crate::measure::try_interleaved;
use crate::table::{Row, Unit};

const EARLY: usize = 10;
const LATE: usize = 1_000;
const ROUNDS: usize = 60;

/// Turn 1,000 compared with turn 10, and the file sizes.
pub(super) fn run() -> Result<Vec<Row>> {
    let mut rows = vec![time()?];
    let (short, _) = file_size(LATE / 10)?;
    let (long, payload) = file_size(LATE)?;
    let row = |what: &str, baseline, goal| Row {
        name: what.to_owned(),
        ours: long,
        baseline,
        goal,
        unit: Unit::Bytes,
    };
    rows.push(row(
        "file size after 1,000 turns vs. after 100",
        short,
        11.0,
    ));
    rows.push(row(
        "file size after 1,000 turns vs. its documents",
        payload,
        2.0,
    ));
    Ok(rows)
}

fn time() -> Result<Row> {
    let directory = TempDir::new()?;
    let runtime = runtime()?;
    let engine = runtime.block_on(async {
        engine(
            SqliteStore::open(directory.path().join("sessions.db"))?,
            "look",
        )
    })?;
    let mut late = session_after(&runtime, &engine, LATE - 1)?;
    let early = (0..=ROUNDS).map(|_| session_after(&runtime, &engine, EARLY - 1));
    let mut early = early.collect::<Result<Vec<_>>>()?.into_iter();
    let times = try_interleaved(
        ROUNDS,
        || {
            let mut session = early.next().context("too few sessions")?;
            runtime.block_on(session.turn())
        },
        || runtime.block_on(late.turn()),
    )?;
    runtime.block_on(engine.shutdown())?;
    Ok(Row::time("turn 1,000 of a session vs. turn 10", times, 1.5))
}

/// A session after `turns` turns.
fn session_after(
    runtime: &Runtime,
    engine: &rye_engine::Engine,
    turns: usize,
) -> Result<BenchSession> {
    runtime.block_on(async {
        let mut session = BenchSession::start(engine).await?;
        for _ in 0..turns {
            session.turn().await?;
        }
        Ok(session)
    })
}

/// Bytes of the file after `turns` turns, and of the documents in it.
fn file_size(turns: usize) -> Result<(f64, f64)> {
    let directory = TempDir::new()?;
    let file = directory.path().join("sessions.db");
    let runtime = runtime()?;
    let engine = runtime.block_on(async { engine(SqliteStore::open(&file)?, "look") })?;
    drop(session_after(&runtime, &engine, turns)?);
    runtime.block_on(engine.shutdown())?;
    drop(engine);
    drop(runtime);
    let payload = payload(&file)?;
    let bytes = std::fs::metadata(&file)?.len();
    Ok((f64::from(u32::try_from(bytes)?), payload))
}

fn payload(file: &Path) -> Result<f64> {
    let db = Connection::open(file)?;
    // Move the contents of the WAL into the file first.
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    let mut sum = 0.0;
    for table in ["engine_entries", "engine_events", "engine_queue_items"] {
        let query = format!("SELECT total(length(doc)) FROM {table}");
        sum += db.query_row(&query, [], |row| row.get::<_, f64>(0))?;
    }
    Ok(sum)
}
