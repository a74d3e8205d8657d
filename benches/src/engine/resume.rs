//! A session whose process was killed at a gate, finished by a new process.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use super::beside;
use crate::measure::try_interleaved;
use crate::table::{Row, Unit};

const ROUNDS: usize = 21;
/// What the whole process may take beyond its tool, in seconds.
const AGREED: f64 = 0.020;
const SCRIPT: &str = "\
steps:
  - tool_calls: [{ name: bash, args: { command: 'echo ran >> out.txt' } }]
  - text: done
";

/// A whole process, but for its tool.
pub(super) fn run() -> Result<Vec<Row>> {
    let world = World::make()?;
    let killed = (0..=ROUNDS).map(|_| world.killed_at_a_gate());
    let mut killed = killed.collect::<Result<Vec<_>>>()?.into_iter();
    let (tool, whole) = try_interleaved(
        ROUNDS,
        || world.tool(),
        || world.finish(&killed.next().context("there are as many as rounds")?),
    )?;
    let ran = fs::read_to_string(world.project.join("out.txt"))?;
    ensure!(ran.lines().count() == 2 * (ROUNDS + 1), "some did not run");
    let what = "a killed session finished by rye session resume, beside 20 ms";
    let beyond = (whole - tool).max(0.0);
    Ok(vec![beside(what, beyond, AGREED, Unit::Seconds)])
}

struct World {
    rye: String,
    folder: TempDir,
    project: PathBuf,
}

impl World {
    fn make() -> Result<Self> {
        let rye = std::env::var("RYE_BIN")
            .context("RYE_BIN does not name the rye binary; run: cargo xtask bench")?;
        let folder = TempDir::new()?;
        let project = folder.path().join("project");
        fs::create_dir(&project)?;
        fs::write(project.join("agent.yaml"), SCRIPT)?;
        Ok(Self {
            rye,
            folder,
            project,
        })
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.rye);
        command
            .args(args)
            .env_clear()
            .env("HOME", self.folder.path())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .current_dir(&self.project)
            .stdin(Stdio::null());
        command
    }

    /// The session of a process that waits for a person, and is killed.
    fn killed_at_a_gate(&self) -> Result<String> {
        let model = ["--model", "scripted:agent.yaml", "--sandbox", "local"];
        let mut child = self
            .command(&[&["prompt", "go"], &model[..]].concat())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let errors = child.stderr.take().context("it has no errors")?;
        let mut gate = None;
        for line in BufReader::new(errors).lines() {
            if let Some((_, found)) = line?.split_once("rye gate approve ") {
                gate = Some(found.trim().to_owned());
                break;
            }
        }
        child.kill()?;
        child.wait()?;
        let gate = gate.context("it did not wait at a gate")?;
        let session = gate.split(':').nth(1);
        Ok(session.context("a gate without a session")?.to_owned())
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
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{said}");
        Ok(())
    }
}
