//! What running a program costs through lillux.

use std::collections::HashMap;
use std::fs;
use std::process::{Command as StdCommand, Stdio};

use anyhow::{Context, Result, ensure};
use lillux::process::{Command, Supervisor};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::measure::try_interleaved;
use crate::table::{Row, Unit};

/// Rounds of a batch of each kind.
const ROUNDS: usize = 15;
/// Runs in a batch, so that the shell's own start hardly counts.
const BATCH: u32 = 40;
/// Runs at the same time.
const CONCURRENT: usize = 64;

/// The library, the binary, and what both leave behind.
pub fn run() -> Result<Vec<Row>> {
    let supervisor = Supervisor::start().context("cannot start the supervisor")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    let mut rows = vec![
        from_the_library(&supervisor, &runtime)?,
        many_at_once(&supervisor, &runtime)?,
        from_a_shell("sh")?,
        from_a_shell("bash")?,
    ];
    rows.extend(growth(&supervisor, &runtime)?);
    Ok(rows)
}

fn from_the_library(supervisor: &Supervisor, runtime: &Runtime) -> Result<Row> {
    let times = try_interleaved(1000, bare, || exec(supervisor, runtime))?;
    Ok(Row::time("exec /bin/true from the library", times, 1.15))
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

/// As many as are asked for in one go, beside as many threads that each run one by hand.
fn many_at_once(supervisor: &Supervisor, runtime: &Runtime) -> Result<Row> {
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
    Ok(Row::time("64 at once, from the library", times, 1.15))
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

/// `lillux exec` where a script would have run the program itself. Both are
/// started from the same loop in the same shell. Shells differ in what it
/// costs them to start anything at all.
fn from_a_shell(shell: &str) -> Result<Row> {
    let lillux = std::env::var("LILLUX_BIN")
        .context("LILLUX_BIN does not name the lillux binary; run: cargo xtask bench")?;
    let (floor, ours) = try_interleaved(
        ROUNDS,
        || shell_loop(shell, &["/bin/true"]),
        || shell_loop(shell, &[&lillux, "exec", "--cmd", "/bin/true"]),
    )?;
    let batch = f64::from(BATCH);
    let times = (floor / batch, ours / batch);
    let what = format!("lillux exec /bin/true from {shell}");
    Ok(Row::time(&what, times, 2.5))
}

/// Runs the command a batch of times from one shell; the first failure ends it.
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

/// What the program holds before and after 1,000 commands one by one and 64 at
/// once ten times over. Before counts after as much as is kept for reuse has
/// been used once.
fn growth(supervisor: &Supervisor, runtime: &Runtime) -> Result<Vec<Row>> {
    concurrently(supervisor, runtime)?;
    let before = Holdings::now()?;
    for _ in 0..1000 {
        exec(supervisor, runtime)?;
    }
    for _ in 0..10 {
        concurrently(supervisor, runtime)?;
    }
    let after = Holdings::now()?;
    let row = |what: &str, floor, ours, goal, unit| Row {
        what: format!("{what} after 1,000 execs and 10 x 64"),
        ours,
        floor,
        goal,
        unit,
    };
    Ok(vec![
        row(
            "descriptors",
            before.descriptors,
            after.descriptors,
            1.0,
            Unit::Pieces,
        ),
        row("all memory", before.memory, after.memory, 1.05, Unit::Bytes),
    ])
}

struct Holdings {
    descriptors: f64,
    memory: f64,
}

impl Holdings {
    /// The program's open descriptors, and the memory of the program and of all that it has forked off.
    fn now() -> Result<Self> {
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
        let me = std::process::id();
        let is_ours = |pid: &u32| {
            let above = |pid: &u32| processes.get(pid).map(|(parent, _)| *parent);
            std::iter::successors(Some(*pid), above).any(|pid| pid == me)
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
