//! Cost of a confined command.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use lillux::process::Supervisor;
use rye_engine::sandbox::{Exec, ExecObserver, Sandbox};
use rye_sandbox::{ConfinedSandbox, ConfinementPolicy, Launcher, LocalSandbox, Tier};
use tokio::runtime::Runtime;

use crate::measure::try_interleaved;
use crate::table::{NO_GOAL, Row, Unit};

const ROUNDS: usize = 200;
/// What a command may cost more because it is confined, in seconds.
const BUDGET: f64 = 0.005;

struct Discard;

impl ExecObserver for Discard {
    fn on_start(&self, _: &str) {}
    fn on_output(&self, _: &str) {}
}

/// A confined command, beside the same one unconfined and in bubblewrap, if that is installed.
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
        if tier == Tier::Full && has_bwrap() {
            let bwrap = || bwrap(dir.path());
            let times = try_interleaved(ROUNDS, bwrap, || exec(&confined, &runtime))?;
            rows.push(Row::time("confined /bin/true vs. bwrap", times, NO_GOAL));
        }
    }
    Ok(rows)
}

fn exec(sandbox: &dyn Sandbox, runtime: &Runtime) -> Result<()> {
    let exec = Exec {
        command: "/bin/true".to_owned(),
        ..Exec::default()
    };
    let output = runtime.block_on(sandbox.exec(exec, &Discard))?;
    ensure!(output.exit_code == Some(0), "{output:?}");
    Ok(())
}

fn has_bwrap() -> bool {
    let version = Command::new("bwrap")
        .arg("--version")
        .stdout(Stdio::null())
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
