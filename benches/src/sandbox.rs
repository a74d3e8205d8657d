//! Cost of a confined command, and of review mode.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use lillux::process::Supervisor;
use rye_engine::review::{ReviewDecision, Settled, set_hash};
use rye_engine::sandbox::{Exec, ExecObserver, Sandbox};
use rye_sandbox::{ConfinedSandbox, ConfinementPolicy, Launcher, LocalSandbox, Tier};
use tokio::runtime::Runtime;

use crate::measure::try_interleaved;
use crate::table::{NO_GOAL, Row, Unit};

const ROUNDS: usize = 200;
/// What a command may cost more because it is confined, in seconds.
const BUDGET: f64 = 0.005;
/// Size of the workspace in review mode: directories, and files in each.
const DIRECTORIES: usize = 100;
const FILES: usize = 100;
/// What review mode may need to open such a workspace, and to list its changes, in seconds.
const OPEN_BUDGET: f64 = 0.02;
const DIFF_BUDGET: f64 = 0.1;
const REVIEW_ROUNDS: usize = 20;

struct Discard;

impl ExecObserver for Discard {
    fn on_start(&self, _: &str) {}
    fn on_output(&self, _: &str) {}
}

/// A confined command, beside the same one unconfined and in the sandboxes of bubblewrap and
/// codex, if they are installed; and review mode in a large workspace.
pub fn run() -> Result<Vec<Row>> {
    let rye = std::env::var("RYE_BIN").context("RYE_BIN is not set: cargo xtask bench")?;
    let supervisor = Arc::new(Supervisor::start().context("cannot start the supervisor")?);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let dir = tempfile::tempdir()?;
    let local = LocalSandbox::new(dir.path(), Arc::clone(&supervisor))?;
    let mut rows = Vec::new();
    for tier in [Tier::Full, Tier::Landlock] {
        let launcher = Launcher::new(&rye, ["sandbox-launcher"]);
        let policy = ConfinementPolicy::default();
        let supervisor = Arc::clone(&supervisor);
        let confined = ConfinedSandbox::new(dir.path(), supervisor, launcher, tier, policy)?;
        let (unconfined, ours) = try_interleaved(
            ROUNDS,
            || exec(&local, &runtime),
            || exec(&confined, &runtime),
        )?;
        rows.push(Row {
            name: format!("confined /bin/true (tier {tier}), cost above unconfined"),
            ours: ours - unconfined,
            baseline: BUDGET,
            goal: 1.0,
            unit: Unit::Seconds,
        });
        if tier == Tier::Full {
            if is_installed("bwrap") {
                let bwrap = || bwrap(dir.path());
                let times = try_interleaved(ROUNDS, bwrap, || exec(&confined, &runtime))?;
                rows.push(Row::time("confined /bin/true vs. bwrap", times, NO_GOAL));
            }
            if is_installed("codex") {
                let codex = || codex(dir.path());
                let times = try_interleaved(ROUNDS, codex, || exec(&confined, &runtime))?;
                rows.push(Row::time("confined /bin/true vs. codex", times, NO_GOAL));
            }
        }
    }
    rows.extend(review(&rye, &supervisor, &runtime)?);
    Ok(rows)
}

/// Opens a workspace of 10,000 files in review mode and lists its changes.
fn review(rye: &str, supervisor: &Arc<Supervisor>, runtime: &Runtime) -> Result<Vec<Row>> {
    let dir = tempfile::tempdir()?;
    let workspace = dir.path().join("workspace");
    for number in 0..DIRECTORIES {
        let sub = workspace.join(format!("d{number}"));
        fs::create_dir_all(&sub)?;
        for number in 0..FILES {
            fs::write(sub.join(format!("f{number}")), format!("file {number}\n"))?;
        }
    }
    let state = dir.path().join("state");
    let open = || -> Result<ConfinedSandbox> {
        let launcher = Launcher::new(rye, ["sandbox-launcher"]);
        let (supervisor, policy) = (Arc::clone(supervisor), ConfinementPolicy::default());
        let sandbox = ConfinedSandbox::new(&workspace, supervisor, launcher, Tier::Full, policy)?;
        let sandbox = sandbox.with_review(&state)?;
        runtime.block_on(sandbox.stat("d0/f0"))?;
        Ok(sandbox)
    };
    let row = |name: &str, seconds: f64, budget: f64, goal: f64| Row {
        name: format!("review mode, 10,000 files: {name}"),
        ours: seconds,
        baseline: budget,
        goal,
        unit: Unit::Seconds,
    };
    let nothing = || Ok::<_, anyhow::Error>(());
    let (_, opened) = try_interleaved(REVIEW_ROUNDS, nothing, || open().map(drop))?;
    let mut rows = vec![row("open", opened, OPEN_BUDGET, 1.0)];
    let sandbox = open()?;
    let review = sandbox.review().context("no review")?;
    for (name, command, goal) in [
        (
            "diff of 100 changes",
            "for f in d7/*; do echo more >>$f; done",
            1.0,
        ),
        // Every file is read and compared, so it depends on the processor.
        (
            "diff of 10,000 changes",
            "for f in */*; do echo more >>$f; done",
            NO_GOAL,
        ),
    ] {
        shell(&sandbox, runtime, command)?;
        let changes = || runtime.block_on(review.changes());
        let (_, listed) = try_interleaved(REVIEW_ROUNDS, nothing, || {
            changes().map(drop).map_err(Into::into)
        })?;
        rows.push(row(name, listed, DIFF_BUDGET, goal));
        let decision = ReviewDecision {
            key: name.to_owned(),
            hash: set_hash(&changes()?.set),
            ..ReviewDecision::default()
        };
        let settled = runtime.block_on(review.settle(&decision))?;
        ensure!(matches!(settled, Settled::Done(_)), "{settled:?}");
    }
    Ok(rows)
}

fn shell(sandbox: &dyn Sandbox, runtime: &Runtime, command: &str) -> Result<()> {
    let exec = Exec {
        command: command.to_owned(),
        ..Exec::default()
    };
    let output = runtime.block_on(sandbox.exec(exec, &Discard))?;
    ensure!(output.exit_code == Some(0), "{output:?}");
    Ok(())
}

fn exec(sandbox: &dyn Sandbox, runtime: &Runtime) -> Result<()> {
    shell(sandbox, runtime, "/bin/true")
}

fn is_installed(program: &str) -> bool {
    let version = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    version.is_ok_and(|status| status.success())
}

/// The same shell and command in a similar sandbox of bubblewrap.
fn bwrap(workspace: &Path) -> Result<()> {
    let mut command = Command::new("bwrap");
    command.args(["--unshare-all", "--die-with-parent", "--new-session"]);
    for path in ["/usr", "/bin", "/lib", "/lib64", "/etc"] {
        command.args(["--ro-bind-try", path, path]);
    }
    command.args(["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]);
    command.arg("--bind").arg(workspace).arg(workspace);
    let status = command
        .args(["/bin/bash", "-c", "/bin/true"])
        .stdin(Stdio::null())
        .status()?;
    ensure!(status.success(), "bwrap failed ({status})");
    Ok(())
}

/// The same shell and command in the sandbox of codex.
fn codex(workspace: &Path) -> Result<()> {
    let status = Command::new("codex")
        .args(["sandbox", "--", "/bin/bash", "-c", "/bin/true"])
        .current_dir(workspace)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    ensure!(status.success(), "codex failed ({status})");
    Ok(())
}
