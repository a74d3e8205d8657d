//! `rye execute` from a new process, compared with the interpreter alone.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use lillux::durable::IfExists;
use rye_items::UserKeys;
use tempfile::TempDir;

use super::write_signed;
use crate::measure::try_interleaved;
use crate::table::Row;

/// Processes that are started.
const STARTS: usize = 201;
/// A script as in the guides: parameters on standard input, JSON on standard output.
const PYTHON: &str = "__version__ = \"1.0.0\"\n__executor_id__ = \"rye/core/runtimes/python/script\"\n\
    CONFIG_SCHEMA = {\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\"}}}\n\
    import json\nimport sys\n\n\
    if __name__ == \"__main__\":\n    given = json.load(sys.stdin)\n    \
    print(json.dumps({\"hello\": given.get(\"name\", \"fixture\")}))\n";
/// Goal of a bash tool in a new process, compared with bash itself.
const START_GOAL: f64 = 4.0;
/// Command of a bash tool.
const COMMAND: &str = "echo '{}'";

/// A Python script, a bash command and a bash script.
pub(super) fn run() -> Result<Vec<Row>> {
    let fixture = Fixture::new()?;
    let python = fixture.python.clone();
    let script = fixture.tools.join("greet.py");
    let shell = fixture.tools.join("say.sh");
    let project = fixture.project.as_os_str();
    let rows = [
        (
            "cold rye execute of a Python script vs. python3 tool.py",
            fixture.compare(
                "greet",
                &python,
                &[script.as_os_str(), "--project-path".as_ref(), project],
            )?,
            1.10,
        ),
        (
            "cold rye execute of a bash command vs. bash -c",
            fixture.compare(
                "echo",
                "/bin/bash".as_ref(),
                &["-c".as_ref(), COMMAND.as_ref()],
            )?,
            START_GOAL,
        ),
        (
            "cold rye execute of a bash script vs. bash tool.sh",
            fixture.compare("say", "/bin/bash".as_ref(), &[shell.as_os_str(), project])?,
            START_GOAL,
        ),
    ];
    let rows = rows.map(|(what, times, goal)| Row::time(what, times, goal));
    Ok(rows.into())
}

/// A project with signed tools and a user who trusts them.
struct Fixture {
    directory: TempDir,
    project: PathBuf,
    tools: PathBuf,
    rye: OsString,
    /// The interpreter itself; `python3` on `PATH` may be a wrapper script.
    python: PathBuf,
}

impl Fixture {
    fn new() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let project = directory.path().join("project");
        let tools = project.join(".ai/tools");
        let key =
            UserKeys::new(&directory.path().join("user")).generate("bench", IfExists::Fail)?;
        write_signed(&tools.join("greet.py"), PYTHON, &key)?;
        let bash = "executor_id: rye/core/runtimes/bash/bash\n";
        let command = format!("version: \"1.0.0\"\n{bash}config: {{ command: \"{COMMAND}\" }}\n");
        write_signed(&tools.join("echo.yaml"), &command, &key)?;
        let script = format!("# {bash}# version: \"1.0.0\"\n{COMMAND}\n");
        write_signed(&tools.join("say.sh"), &script, &key)?;
        let output = Command::new("python3")
            .args(["-c", "import sys; print(sys.executable)"])
            .output()?;
        Ok(Self {
            project,
            tools,
            rye: std::env::var_os("RYE_BIN").context("RYE_BIN is not set")?,
            python: String::from_utf8(output.stdout)?.trim().into(),
            directory,
        })
    }

    /// Compares a program with the equivalent tool.
    fn compare(
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

    /// Runs a command in the same environment for both.
    fn finish(&self, command: &mut Command) -> Result<()> {
        let python = self
            .python
            .parent()
            .context("python3 has no parent directory")?;
        let path = std::env::join_paths([python, "/usr/bin".as_ref(), "/bin".as_ref()])?;
        let mut child = command
            .env_clear()
            .env("HOME", self.directory.path().join("user"))
            .env("PATH", path)
            .current_dir(&self.project)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut stdin = child.stdin.take().context("no standard input")?;
        // The process may end without reading.
        let _ = stdin.write_all(b"{}");
        drop(stdin);
        let output = child.wait_with_output()?;
        ensure!(
            output.status.success() && output.stdout.starts_with(b"{"),
            "{command:?} printed {output:?}"
        );
        Ok(())
    }
}
