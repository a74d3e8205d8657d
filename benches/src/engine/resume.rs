//! Resuming a session whose process was killed at a gate.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;

use super::against_budget;
use crate::measure::try_interleaved;
use crate::table::{Row, Unit};

const ROUNDS: usize = 21;
/// Budget of the process without its tool, in seconds.
const BUDGET: f64 = 0.020;
const SCRIPT: &str = "\
steps:
  - tool_calls: [{ name: bash, args: { command: 'echo ran >> out.txt' } }]
  - text: done
";

/// Time of `rye session resume` without its tool.
pub(super) fn run() -> Result<Vec<Row>> {
    let fixture = Fixture::new()?;
    let mut killed = Vec::new();
    for _ in 0..=ROUNDS {
        killed.push(fixture.start_and_kill_at_gate(&killed)?);
    }
    let mut killed = killed.into_iter();
    let (tool, resume) = try_interleaved(
        ROUNDS,
        || fixture.tool(),
        || fixture.finish(&killed.next().context("too few sessions")?),
    )?;
    let ran = fs::read_to_string(fixture.project.join("out.txt"))?;
    ensure!(
        ran.lines().count() == 2 * (ROUNDS + 1),
        "a tool did not run"
    );
    let what = "rye session resume of a killed session vs. 20 ms";
    let overhead = (resume - tool).max(0.0);
    Ok(vec![against_budget(what, overhead, BUDGET, Unit::Seconds)])
}

struct Fixture {
    rye: String,
    directory: TempDir,
    project: PathBuf,
}

impl Fixture {
    fn new() -> Result<Self> {
        let rye = std::env::var("RYE_BIN").context("RYE_BIN is not set: cargo xtask bench")?;
        let directory = TempDir::new()?;
        let project = directory.path().join("project");
        fs::create_dir(&project)?;
        fs::write(project.join("agent.yaml"), SCRIPT)?;
        Ok(Self {
            rye,
            directory,
            project,
        })
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.rye);
        command
            .args(args)
            .env_clear()
            .env("HOME", self.directory.path())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .current_dir(&self.project)
            .stdin(Stdio::null());
        command
    }

    /// Starts a session, kills its process at a gate, and returns its id.
    fn start_and_kill_at_gate(&self, known: &[String]) -> Result<String> {
        let model = ["--model", "scripted:agent.yaml", "--sandbox", "local"];
        let mut child = self
            .command(&[&["prompt", "go"], &model[..]].concat())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let session = self.wait_for_new_gate(known)?;
        child.kill()?;
        child.wait()?;
        Ok(session)
    }

    /// Waits until a session that is not in `known` has a pending gate.
    fn wait_for_new_gate(&self, known: &[String]) -> Result<String> {
        let end = Instant::now() + Duration::from_secs(30);
        while Instant::now() < end {
            let output = self.command(&["gate", "list", "--json"]).output()?;
            let listed: Value = serde_json::from_slice(&output.stdout)?;
            let gates = listed["gates"].as_array().into_iter().flatten();
            let mut sessions = gates.filter_map(|gate| gate["origin"]["session"].as_str());
            if let Some(new) = sessions.find(|it| known.iter().all(|known| known != it)) {
                return Ok(new.to_owned());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        anyhow::bail!("the session did not reach its gate")
    }

    fn tool(&self) -> Result<()> {
        let status = Command::new("sh")
            .args(["-c", "echo ran >> out.txt"])
            .current_dir(&self.project)
            .status()?;
        ensure!(status.success());
        Ok(())
    }

    fn finish(&self, session: &str) -> Result<()> {
        let mut command = self.command(&["session", "resume", session, "--yes"]);
        let output = command.output()?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{stderr}");
        Ok(())
    }
}
