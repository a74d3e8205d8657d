//! Memory and wakeups of 1,000 sessions that wait at a gate.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rye_engine::NewSession;
use rye_protocol::EventKind;
use rye_store::SqliteStore;
use tempfile::TempDir;

use super::against_budget;
use super::fixture::engine;
use crate::table::{Row, Unit};

/// Tells the child process to wait at gates, with its sessions in this directory.
const WAIT_DIR: &str = "RYE_BENCH_WAIT_DIR";
const SESSIONS: usize = 1_000;
/// Budget in bytes.
const MEMORY_BUDGET: f64 = 100.0 * 1024.0 * 1024.0;
/// Observation time, longer than any polling interval.
const OBSERVED: Duration = Duration::from_secs(12);

/// Memory and wakeups.
pub(super) fn run() -> Result<Vec<Row>> {
    let directory = TempDir::new()?;
    let mut child = Command::new(std::env::current_exe()?)
        .env(WAIT_DIR, directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let output = child
        .stdout
        .take()
        .context("the child has no standard output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    ensure!(line == "ready\n", "the child is not ready: {line}");
    // Let it finish writing the line.
    sleep(Duration::from_millis(500));
    let process = Path::new("/proc").join(child.id().to_string());
    let before = context_switches(&process)?;
    sleep(OBSERVED);
    let wakeups = context_switches(&process)? - before;
    let status = fs::read_to_string(process.join("status"))?;
    let memory = field(&status, "VmRSS:")? * 1024.0;
    drop(child.stdin.take());
    ensure!(child.wait()?.success(), "the child failed");
    let memory_name = "memory of 1,000 waiting sessions vs. 100 MiB";
    let wakeups_name = "their wakeups in 12 s vs. 1";
    Ok(vec![
        against_budget(memory_name, memory, MEMORY_BUDGET, Unit::Bytes),
        against_budget(wakeups_name, wakeups, 1.0, Unit::Count),
    ])
}

/// Voluntary context switches of all threads.
fn context_switches(process: &Path) -> Result<f64> {
    let mut sum = 0.0;
    for task in fs::read_dir(process.join("task"))? {
        let status = fs::read_to_string(task?.path().join("status"))?;
        sum += field(&status, "voluntary_ctxt_switches:")?;
    }
    Ok(sum)
}

fn field(status: &str, name: &str) -> Result<f64> {
    let value = status.lines().find_map(|line| line.strip_prefix(name));
    let value = value.and_then(|value| value.split_whitespace().next());
    Ok(value.with_context(|| format!("no field {name}"))?.parse()?)
}

/// Runs the child process, if this is one; returns when its input ends.
pub fn run_if_requested() -> Option<Result<()>> {
    let directory = std::env::var_os(WAIT_DIR)?;
    Some(wait_at_gates(Path::new(&directory)))
}

fn wait_at_gates(directory: &Path) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let engine = runtime.block_on(async {
        let engine = engine(SqliteStore::open(directory.join("sessions.db"))?, "ask")?;
        for _ in 0..SESSIONS {
            let session = engine.create_session(NewSession::default()).await?;
            let mut events = session.subscribe(0);
            session.prompt("look at it").await?;
            while let Some(notice) = events.next().await? {
                if matches!(notice.event.kind, EventKind::DecisionGate { .. }) {
                    break;
                }
            }
        }
        anyhow::Ok(engine)
    })?;
    let mut out = std::io::stdout();
    out.write_all(b"ready\n")?;
    out.flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    runtime.block_on(engine.shutdown())?;
    Ok(())
}
