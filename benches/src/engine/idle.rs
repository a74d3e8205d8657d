//! A thousand sessions that wait for a person, in a process that does nothing else.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rye_engine::NewSession;
use rye_protocol::EventKind;
use rye_store::Sqlite;
use tempfile::TempDir;

use super::beside;
use super::work::engine;
use crate::table::{Row, Unit};

/// Says that this process is the one that waits, and where.
const WAITS_IN: &str = "RYE_BENCH_WAITS_IN";
const SESSIONS: usize = 1_000;
const MEMORY: f64 = 100.0 * 1024.0 * 1024.0;
/// How long is looked whether anything moves: longer than anybody would poll.
const WATCHED: Duration = Duration::from_secs(12);

/// What they hold, and how often any of their threads woke up.
pub(super) fn run() -> Result<Vec<Row>> {
    let folder = TempDir::new()?;
    let mut child = Command::new(std::env::current_exe()?)
        .env(WAITS_IN, folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let told = child.stdout.take().context("it has no output")?;
    let mut line = String::new();
    BufReader::new(told).read_line(&mut line)?;
    ensure!(line == "ready\n", "it is not ready: {line}");
    // It has just told us so.
    sleep(Duration::from_millis(500));
    let process = Path::new("/proc").join(child.id().to_string());
    let before = switches(&process)?;
    sleep(WATCHED);
    let woken = switches(&process)? - before;
    let status = fs::read_to_string(process.join("status"))?;
    let memory = field(&status, "VmRSS:")? * 1024.0;
    drop(child.stdin.take());
    ensure!(child.wait()?.success(), "the process that waits failed");
    let held = "1,000 sessions that wait, beside 100 MiB";
    let wakes = "how often they wake up in 12 s, beside once";
    Ok(vec![
        beside(held, memory, MEMORY, Unit::Bytes),
        beside(wakes, woken, 1.0, Unit::Pieces),
    ])
}

/// How often the threads of a process have begun to wait.
fn switches(process: &Path) -> Result<f64> {
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
    Ok(value
        .with_context(|| format!("there is no {name}"))?
        .parse()?)
}

/// Waits, if this is the process that does; comes back when its input ends.
pub fn asked() -> Option<Result<()>> {
    let folder = std::env::var_os(WAITS_IN)?;
    Some(wait(Path::new(&folder)))
}

fn wait(folder: &Path) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let engine = runtime.block_on(async {
        let engine = engine(Sqlite::open(folder.join("sessions.db"))?, "ask")?;
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
