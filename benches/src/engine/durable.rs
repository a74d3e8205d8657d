//! Durable turns, compared with plain SQLite and with the store alone.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use anyhow::{Result, ensure};
use rusqlite::Connection;
use rye_engine::store::{Claim, SessionStore as _};
use rye_protocol::{Batch, SessionId};
use rye_store::SqliteStore;
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::fixture::{BenchSession, engine};
use super::recording_store::{payload_bytes, recording_store};
use super::{against_budget, runtime};
use crate::measure::{median, try_interleaved};
use crate::table::{Row, Unit};

/// Rounds of `TURNS` turns each.
const ROUNDS: usize = 60;
const TURNS: usize = 5;
/// Budget of commits for a turn with a tool.
const COMMIT_BUDGET: f64 = 4.0;
/// Concurrent sessions.
const SESSIONS: usize = 100;
/// Turns of each concurrent session.
const SESSION_TURNS: usize = 5;
const CONCURRENT_ROUNDS: usize = 9;

/// Sequential and concurrent turns.
pub(super) fn run() -> Result<Vec<Row>> {
    let commits = record_commits(1, TURNS)?;
    // The first two commits create the session and its thread.
    let sizes: Vec<_> = commits
        .iter()
        .skip(2)
        .map(|(_, batch)| payload_bytes(batch))
        .collect::<Result<_>>()?;
    let count = f64::from(u32::try_from(sizes.len())?) / f64::from(u32::try_from(TURNS)?);
    let what = "commits of a turn with a tool vs. 4";
    let row = against_budget(what, count, COMMIT_BUDGET, Unit::Count);
    Ok(vec![row, sequential(&sizes)?, concurrent()?])
}

/// Records the commits of sessions with `turns` turns each.
fn record_commits(sessions: usize, turns: usize) -> Result<Vec<(SessionId, Batch)>> {
    let (store, commits) = recording_store();
    runtime()?.block_on(async {
        let engine = engine(store, "look")?;
        for _ in 0..sessions {
            let mut session = BenchSession::start(&engine).await?;
            for _ in 0..turns {
                session.turn().await?;
            }
        }
        anyhow::Ok(())
    })?;
    let mut commits = commits.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(std::mem::take(&mut *commits))
}

/// A minimal durable store: a table of documents with synchronous WAL.
fn open_plain_sqlite(file: &Path) -> Result<Connection> {
    let db = Connection::open(file)?;
    let mode: String = db.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
    ensure!(mode == "wal");
    db.pragma_update(None, "synchronous", "full")?;
    db.execute_batch("CREATE TABLE docs (number INTEGER PRIMARY KEY, doc TEXT NOT NULL) STRICT")?;
    Ok(db)
}

/// A turn, compared with plain commits of the same sizes.
fn sequential(sizes: &[usize]) -> Result<Row> {
    let directory = TempDir::new()?;
    let db = open_plain_sqlite(&directory.path().join("bare.db"))?;
    let docs: Vec<_> = sizes.iter().map(|size| "x".repeat(*size)).collect();
    let baseline = || {
        for doc in &docs {
            let mut put = db.prepare_cached("INSERT INTO docs (doc) VALUES (?1)")?;
            // Outside a transaction, each statement is one.
            put.execute([doc])?;
        }
        anyhow::Ok(())
    };
    let runtime = runtime()?;
    let store = SqliteStore::open(directory.path().join("sessions.db"))?;
    let (engine, mut session) = runtime.block_on(async {
        let engine = engine(store, "look")?;
        let session = BenchSession::start(&engine).await?;
        anyhow::Ok((engine, session))
    })?;
    let ours = || {
        runtime.block_on(async {
            for _ in 0..TURNS {
                session.turn().await?;
            }
            anyhow::Ok(())
        })
    };
    let (baseline, ours) = try_interleaved(ROUNDS, baseline, ours)?;
    runtime.block_on(engine.shutdown())?;
    let turns = f64::from(u32::try_from(TURNS)?);
    let times = (baseline / turns, ours / turns);
    let what = "durable turn with a tool vs. plain commits of its bytes";
    Ok(Row::time(what, times, 1.5))
}

/// Concurrent sessions, compared with the store alone and the same batches.
fn concurrent() -> Result<Row> {
    let commits = record_commits(SESSIONS, SESSION_TURNS)?;
    let mut of_session: BTreeMap<SessionId, Vec<Batch>> = BTreeMap::new();
    for (session, batch) in commits {
        of_session.entry(session).or_default().push(batch);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let (mut baselines, mut all_ours) = (Vec::new(), Vec::new());
    for round in 0..=CONCURRENT_ROUNDS {
        let baseline = runtime.block_on(time_store(&of_session))?;
        let ours = runtime.block_on(time_sessions())?;
        // The first round is a warm-up.
        if round > 0 {
            baselines.push(baseline);
            all_ours.push(ours);
        }
    }
    let times = (median(baselines), median(all_ours));
    let what = "100 concurrent sessions vs. the store alone with their commits";
    Ok(Row::time(what, times, 1.0 / 0.8))
}

async fn time_store(commits: &BTreeMap<SessionId, Vec<Batch>>) -> Result<f64> {
    let directory = TempDir::new()?;
    let store = Arc::new(SqliteStore::open(directory.path().join("sessions.db"))?);
    let mut leases = Vec::new();
    for (session, batches) in commits {
        let lease = store.claim(session, Claim::IfFree).await?;
        // The first batch creates the session, which is not measured with the engine either.
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

async fn time_sessions() -> Result<f64> {
    let directory = TempDir::new()?;
    let engine = engine(
        SqliteStore::open(directory.path().join("sessions.db"))?,
        "look",
    )?;
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        sessions.push(BenchSession::start(&engine).await?);
    }
    let start = Instant::now();
    let mut all = JoinSet::new();
    for mut session in sessions {
        all.spawn(async move {
            for _ in 0..SESSION_TURNS {
                session.turn().await?;
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
