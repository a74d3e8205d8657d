//! Overhead of running programs with lillux.

use std::collections::HashMap;
use std::fs;
use std::process::{Command as StdCommand, Stdio};

use anyhow::{Context, Result, ensure};
use lillux::process::{Command, Supervisor};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::measure::try_interleaved;
use crate::table::{Row, Unit};

/// Rounds of one batch each.
const ROUNDS: usize = 15;
/// Runs per batch, so that the start of the shell hardly counts.
const BATCH: u32 = 40;
/// Concurrent runs.
const CONCURRENT: usize = 64;

/// The library, the binary, and resource growth.
pub fn run() -> Result<Vec<Row>> {
    let supervisor = Supervisor::start().context("cannot start the supervisor")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    let mut rows = vec![
        from_library(&supervisor, &runtime)?,
        concurrent_runs(&supervisor, &runtime)?,
        from_shell("sh")?,
        from_shell("bash")?,
    ];
    rows.extend(growth(&supervisor, &runtime)?);
    Ok(rows)
}

fn from_library(supervisor: &Supervisor, runtime: &Runtime) -> Result<Row> {
    let times = try_interleaved(1000, bare, || exec(supervisor, runtime))?;
    Ok(Row::time(
        "exec /bin/true from the library vs. std",
        times,
        1.15,
    ))
}

fn bare() -> Result<()> {
    let output = StdCommand::new("/bin/true").stdin(Stdio::null()).output()?;
    ensure!(output.status.success());
    Ok(())
}

fn exec(supervisor: &Supervisor, runtime: &Runtime) -> Result<()> {
    let output = runtime.block_on(supervisor.exec(Command::new("/bin/true")))?;
    ensure!(output.success());
    Ok(())
}

/// Concurrent runs, compared with one thread per process.
fn concurrent_runs(supervisor: &Supervisor, runtime: &Runtime) -> Result<Row> {
    let times = try_interleaved(
        25,
        || {
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..CONCURRENT).map(|_| scope.spawn(bare)).collect();
                threads
                    .into_iter()
                    .try_for_each(|thread| thread.join().unwrap_or_else(|_| bare()))
            })
        },
        || concurrently(supervisor, runtime),
    )?;
    Ok(Row::time(
        "64 concurrent execs from the library vs. threads",
        times,
        1.15,
    ))
}

fn concurrently(supervisor: &Supervisor, runtime: &Runtime) -> Result<()> {
    runtime.block_on(async {
        let mut running = JoinSet::new();
        for _ in 0..CONCURRENT {
            let supervisor = supervisor.clone();
            running.spawn(async move { supervisor.exec(Command::new("/bin/true")).await });
        }
        while let Some(output) = running.join_next().await {
            ensure!(output??.success());
        }
        Ok(())
    })
}

/// `lillux exec` in a shell loop, compared with the program in the same loop. Shells differ
/// in what starting a process costs.
fn from_shell(shell: &str) -> Result<Row> {
    let lillux = std::env::var("LILLUX_BIN").context("LILLUX_BIN is not set: cargo xtask bench")?;
    let (baseline, ours) = try_interleaved(
        ROUNDS,
        || shell_loop(shell, &["/bin/true"]),
        || shell_loop(shell, &[&lillux, "exec", "--cmd", "/bin/true"]),
    )?;
    let batch = f64::from(BATCH);
    let times = (baseline / batch, ours / batch);
    let what = format!("lillux exec /bin/true from {shell}");
    Ok(Row::time(&what, times, 2.5))
}

/// Runs a command `BATCH` times from one shell; stops at the first failure.
fn shell_loop(shell: &str, command: &[&str]) -> Result<()> {
    let script = "n=$0; while [ $n -gt 0 ]; do \"$@\" >/dev/null || exit; n=$((n - 1)); done";
    let status = StdCommand::new(shell)
        .args(["-c", script, &BATCH.to_string()])
        .args(command)
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot start {shell}"))?;
    ensure!(
        status.success(),
        "`{}` failed ({status})",
        command.join(" ")
    );
    Ok(())
}

/// Descriptors and memory before and after 1,000 sequential commands and 10 times 64
/// concurrent ones. A warm-up fills caches first.
fn growth(supervisor: &Supervisor, runtime: &Runtime) -> Result<Vec<Row>> {
    concurrently(supervisor, runtime)?;
    let before = Resources::measure()?;
    for _ in 0..1000 {
        exec(supervisor, runtime)?;
    }
    for _ in 0..10 {
        concurrently(supervisor, runtime)?;
    }
    let after = Resources::measure()?;
    let row = |what: &str, baseline, ours, goal, unit| Row {
        name: format!("{what} after 1,000 execs and 10 x 64"),
        ours,
        baseline,
        goal,
        unit,
    };
    Ok(vec![
        row(
            "descriptors",
            before.descriptors,
            after.descriptors,
            1.0,
            Unit::Count,
        ),
        row("memory", before.memory, after.memory, 1.05, Unit::Bytes),
    ])
}

/// Resources of this process.
struct Resources {
    descriptors: f64,
    memory: f64,
}

impl Resources {
    /// Open descriptors of this process, and memory of it and its descendants.
    fn measure() -> Result<Self> {
        let descriptors = fs::read_dir("/proc/self/fd")?.count();
        let mut processes = HashMap::new();
        for entry in fs::read_dir("/proc")? {
            let entry = entry?;
            let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
            let field = |name: &str| {
                let value = status.lines().find_map(|line| line.strip_prefix(name))?;
                value.split_whitespace().next()?.parse::<u32>().ok()
            };
            if let (Some(pid), Some(parent)) = (field("Pid:"), field("PPid:")) {
                processes.insert(pid, (parent, field("VmRSS:").unwrap_or(0)));
            }
        }
        let own_pid = std::process::id();
        let is_ours = |pid: &u32| {
            let parent_of = |pid: &u32| processes.get(pid).map(|(parent, _)| *parent);
            std::iter::successors(Some(*pid), parent_of).any(|pid| pid == own_pid)
        };
        let kibibytes: u32 = processes
            .iter()
            .filter(|(pid, _)| is_ours(pid))
            .map(|(_, (_, resident))| *resident)
            .sum();
        Ok(Self {
            descriptors: f64::from(u32::try_from(descriptors)?),
            memory: f64::from(kibibytes) * 1024.0,
        })
    }
}
