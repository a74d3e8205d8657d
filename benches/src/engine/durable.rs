//! Turns that are on the disk when they are told, beside bare SQLite and the bare store.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use anyhow::{Result, ensure};
use rusqlite::Connection;
use rye_engine::store::{Claim, SessionStore as _};
use rye_protocol::{Batch, SessionId};
use rye_store::Sqlite;
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::recorded::{Commits, Recorded, bytes};
use super::work::{Talk, engine};
use super::{beside, runtime};
use crate::measure::try_interleaved;
use crate::table::{Row, Unit};

/// Rounds, each of a few turns.
const ROUNDS: usize = 60;
const TURNS: usize = 5;
/// The most commits that a turn with a tool may take.
const COMMITS: f64 = 4.0;
/// Sessions at once, and the turns of each.
const SESSIONS: usize = 100;
const EACH: usize = 5;
const MANY_ROUNDS: usize = 9;

/// One turn after the other, and many at once.
pub(super) fn run() -> Result<Vec<Row>> {
    let commits = recorded(1, TURNS)?;
    // The first two make the session and its thread.
    let sizes: Vec<_> = commits
        .iter()
        .skip(2)
        .map(|(_, batch)| bytes(batch))
        .collect::<Result<_>>()?;
    let count = f64::from(u32::try_from(sizes.len())?) / f64::from(u32::try_from(TURNS)?);
    let what = "commits of a turn with a tool, beside 4";
    let row = beside(what, count, COMMITS, Unit::Pieces);
    Ok(vec![row, alone(&sizes)?, at_once()?])
}

/// What so many sessions write in so many turns each.
fn recorded(sessions: usize, turns: usize) -> Result<Vec<(SessionId, Batch)>> {
    let store = Recorded::default();
    let commits: Commits = Arc::clone(&store.commits);
    runtime()?.block_on(async {
        let engine = engine(store, "look")?;
        for _ in 0..sessions {
            let mut talk = Talk::begin(&engine).await?;
            for _ in 0..turns {
                talk.turn().await?;
            }
        }
        anyhow::Ok(())
    })?;
    let mut commits = commits.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(std::mem::take(&mut *commits))
}

/// The least that is durable: a table of documents, in a log that is waited for.
fn bare(file: &Path) -> Result<Connection> {
    let db = Connection::open(file)?;
    let mode: String = db.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
    ensure!(mode == "wal");
    db.pragma_update(None, "synchronous", "full")?;
    db.execute_batch("CREATE TABLE docs (number INTEGER PRIMARY KEY, doc TEXT NOT NULL) STRICT")?;
    Ok(db)
}

/// A turn, beside as many bare commits of as many bytes.
fn alone(sizes: &[usize]) -> Result<Row> {
    let folder = TempDir::new()?;
    let db = bare(&folder.path().join("bare.db"))?;
    let docs: Vec<_> = sizes.iter().map(|size| "x".repeat(*size)).collect();
    let floor = || {
        for doc in &docs {
            let mut put = db.prepare_cached("INSERT INTO docs (doc) VALUES (?1)")?;
            // A statement alone is a transaction.
            put.execute([doc])?;
        }
        anyhow::Ok(())
    };
    let runtime = runtime()?;
    let store = Sqlite::open(folder.path().join("sessions.db"))?;
    let (engine, mut talk) = runtime.block_on(async {
        let engine = engine(store, "look")?;
        let talk = Talk::begin(&engine).await?;
        anyhow::Ok((engine, talk))
    })?;
    let ours = || {
        runtime.block_on(async {
            for _ in 0..TURNS {
                talk.turn().await?;
            }
            anyhow::Ok(())
        })
    };
    let (floor, ours) = try_interleaved(ROUNDS, floor, ours)?;
    runtime.block_on(engine.shutdown())?;
    let turns = f64::from(u32::try_from(TURNS)?);
    let times = (floor / turns, ours / turns);
    let what = "a durable turn with a tool, beside bare commits of its bytes";
    Ok(Row::time(what, times, 1.5))
}

/// Many sessions at once, beside the store alone that is given the same batches.
fn at_once() -> Result<Row> {
    let commits = recorded(SESSIONS, EACH)?;
    let mut of_session: BTreeMap<SessionId, Vec<Batch>> = BTreeMap::new();
    for (session, batch) in commits {
        of_session.entry(session).or_default().push(batch);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let (mut floors, mut all_ours) = (Vec::new(), Vec::new());
    for round in 0..=MANY_ROUNDS {
        let floor = runtime.block_on(store_alone(&of_session))?;
        let ours = runtime.block_on(sessions_at_once())?;
        // The first is not counted.
        if round > 0 {
            floors.push(floor);
            all_ours.push(ours);
        }
    }
    let times = (middle(floors), middle(all_ours));
    let what = "100 sessions at once, beside the store alone with their commits";
    Ok(Row::time(what, times, 1.0 / 0.8))
}

pub(super) fn middle(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

async fn store_alone(commits: &BTreeMap<SessionId, Vec<Batch>>) -> Result<f64> {
    let folder = TempDir::new()?;
    let store = Arc::new(Sqlite::open(folder.path().join("sessions.db"))?);
    let mut leases = Vec::new();
    for (session, batches) in commits {
        let lease = store.claim(session, Claim::IfFree).await?;
        // The first makes the session, which the engine's have been by then too.
        let mut batches = batches.iter().cloned();
        if let Some(first) = batches.next() {
            store.commit(&lease, first).await?;
        }
        leases.push((lease, batches.collect::<Vec<_>>()));
    }
    let start = Instant::now();
    let mut all = JoinSet::new();
    for (lease, batches) in leases {
        let store = Arc::clone(&store);
        all.spawn(async move {
            for batch in batches {
                store.commit(&lease, batch).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(end) = all.join_next().await {
        end??;
    }
    Ok(start.elapsed().as_secs_f64())
}

async fn sessions_at_once() -> Result<f64> {
    let folder = TempDir::new()?;
    let engine = engine(Sqlite::open(folder.path().join("sessions.db"))?, "look")?;
    let mut talks = Vec::new();
    for _ in 0..SESSIONS {
        talks.push(Talk::begin(&engine).await?);
    }
    let start = Instant::now();
    let mut all = JoinSet::new();
    for mut talk in talks {
        all.spawn(async move {
            for _ in 0..EACH {
                talk.turn().await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(end) = all.join_next().await {
        end??;
    }
    let time = start.elapsed().as_secs_f64();
    engine.shutdown().await?;
    Ok(time)
}
