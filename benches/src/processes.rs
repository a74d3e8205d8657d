//! What running a program costs through lillux.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::measure::try_interleaved;
use crate::table::Row;

/// Rounds of a batch of each kind.
const ROUNDS: usize = 15;
/// Runs in a batch, so that the shell's own start hardly counts.
const BATCH: u32 = 40;

/// The binary from a shell.
pub fn run() -> Result<Vec<Row>> {
    Ok(vec![from_a_shell()?])
}

/// `lillux exec` where a script would have run the program itself. Both are
/// started from the same loop in the same shell.
fn from_a_shell() -> Result<Row> {
    let lillux = std::env::var("LILLUX_BIN")
        .context("LILLUX_BIN does not name the lillux binary; run: cargo xtask bench")?;
    let (floor, ours) = try_interleaved(
        ROUNDS,
        || shell_loop(&["/bin/true"]),
        || shell_loop(&[&lillux, "exec", "--cmd", "/bin/true"]),
    )?;
    let batch = f64::from(BATCH);
    Ok(Row {
        what: "exec /bin/true from a shell".into(),
        ours: ours / batch,
        floor: floor / batch,
        goal: 2.5,
    })
}

/// Runs the command a batch of times from one shell; the first failure ends it.
fn shell_loop(command: &[&str]) -> Result<()> {
    let script = "n=$0; while [ $n -gt 0 ]; do \"$@\" >/dev/null || exit; n=$((n - 1)); done";
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", script, &BATCH.to_string()]).args(command);
    let status = shell
        .stdin(Stdio::null())
        .status()
        .context("cannot start /bin/sh")?;
    ensure!(
        status.success(),
        "`{}` failed ({status})",
        command.join(" ")
    );
    Ok(())
}
