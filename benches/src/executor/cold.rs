//! `rye execute` from a new process, beside the interpreter by hand.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use lillux::durable::Existing;
use rye_items::OwnKeys;
use tempfile::TempDir;

use super::write_signed;
use crate::measure::try_interleaved;
use crate::table::Row;

/// Rounds of whole processes.
const STARTS: usize = 201;
/// A script as the guides have it: its parameters on standard input, JSON out.
const PYTHON: &str = "__version__ = \"1.0.0\"\n__executor_id__ = \"rye/core/runtimes/python/script\"\n\
    CONFIG_SCHEMA = {\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\"}}}\n\
    import json\nimport sys\n\n\
    if __name__ == \"__main__\":\n    given = json.load(sys.stdin)\n    \
    print(json.dumps({\"hello\": given.get(\"name\", \"world\")}))\n";
/// What the command of a bash tool is.
const COMMAND: &str = "echo '{}'";

/// A Python script, a script of bash, and a command of bash.
pub(super) fn run() -> Result<Vec<Row>> {
    let world = World::make()?;
    let python = world.python.clone();
    let script = world.tools.join("greet.py");
    let shell = world.tools.join("say.sh");
    let project = world.project.as_os_str();
    let rows = [
        (
            "cold rye execute of a Python script, beside python3 tool.py",
            world.beside(
                "greet",
                &python,
                &[script.as_os_str(), "--project-path".as_ref(), project],
            )?,
            1.10,
        ),
        (
            "cold rye execute of a bash command, beside bash -c",
            world.beside(
                "echo",
                "/bin/bash".as_ref(),
                &["-c".as_ref(), COMMAND.as_ref()],
            )?,
            3.0,
        ),
        (
            "cold rye execute of a bash script, beside bash tool.sh",
            world.beside("say", "/bin/bash".as_ref(), &[shell.as_os_str(), project])?,
            3.0,
        ),
    ];
    let rows = rows.map(|(what, times, goal)| Row::time(what, times, goal));
    Ok(rows.into())
}

/// A project with signed tools, and a person who trusts them.
struct World {
    folder: TempDir,
    project: PathBuf,
    tools: PathBuf,
    rye: OsString,
    /// The interpreter itself: what is on `PATH` may be a script that looks for one.
    python: PathBuf,
}

impl World {
    fn make() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let project = folder.path().join("project");
        let tools = project.join(".ai/tools");
        let key = OwnKeys::of(&folder.path().join("user")).generate("bench", Existing::Refuse)?;
        write_signed(&tools.join("greet.py"), PYTHON, &key)?;
        let bash = "executor_id: rye/core/runtimes/bash/bash\n";
        let command = format!("version: \"1.0.0\"\n{bash}config: {{ command: \"{COMMAND}\" }}\n");
        write_signed(&tools.join("echo.yaml"), &command, &key)?;
        let script = format!("# {bash}# version: \"1.0.0\"\n{COMMAND}\n");
        write_signed(&tools.join("say.sh"), &script, &key)?;
        let asked = Command::new("python3")
            .args(["-c", "import sys; print(sys.executable)"])
            .output()?;
        Ok(Self {
            project,
            tools,
            rye: std::env::var_os("RYE_BIN").context("RYE_BIN is not set")?,
            python: String::from_utf8(asked.stdout)?.trim().into(),
            folder,
        })
    }

    /// A program by hand, and the tool that is the same.
    fn beside(
        &self,
        tool: &str,
        program: &Path,
        arguments: &[&std::ffi::OsStr],
    ) -> Result<(f64, f64)> {
        try_interleaved(
            STARTS,
            || self.finish(Command::new(program).args(arguments)),
            || self.finish(Command::new(&self.rye).args(["execute", tool])),
        )
    }

    /// Runs a command to its end, in the same surroundings whichever it is.
    fn finish(&self, command: &mut Command) -> Result<()> {
        let python = self.python.parent().context("python3 is in no folder")?;
        let path = std::env::join_paths([python, "/usr/bin".as_ref(), "/bin".as_ref()])?;
        let mut child = command
            .env_clear()
            .env("HOME", self.folder.path().join("user"))
            .env("PATH", path)
            .current_dir(&self.project)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut stdin = child.stdin.take().context("no standard input")?;
        // It may have ended without reading.
        let _ = stdin.write_all(b"{}");
        drop(stdin);
        let output = child.wait_with_output()?;
        ensure!(
            output.status.success() && output.stdout.starts_with(b"{"),
            "{command:?} gave {output:?}"
        );
        Ok(())
    }
}
