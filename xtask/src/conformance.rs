//! The MCP conformance suite against our server and our client, in both revisions that it
//! knows.
//!
//! The suite's own verdict is not taken: a scenario that checks nothing passes there, and
//! so does a warning. Here each scenario must have checked something, and all of it must
//! hold, but for those that `conformance-exclusions.txt` names with a reason.

mod exclusions;
mod results;

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use anyhow::{Context, Result, bail};

use crate::run::{cargo, output, program, show};
use crate::say::say;
use crate::{place, tools};
use exclusions::Exclusions;
use results::Results;

const REVISIONS: [&str; 2] = ["2025-11-25", "2026-07-28"];

/// What a scenario may take, in milliseconds. The longest takes three seconds.
const TIMEOUT: &str = "20000";

/// Which side is ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Server,
    Client,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Role::Server => "server",
            Role::Client => "client",
        }
    }
}

/// Runs both revisions and shows what came of them.
pub(crate) fn check() -> Result<()> {
    let exclusions = exclusions()?;
    let client = example("conformance_client")?;
    let server = FixtureServer::start()?;
    let mut wrong = Vec::new();
    let mut rows = Vec::new();
    for revision in REVISIONS {
        let server = suite(Role::Server, revision, "--url", server.url.as_ref())?;
        let client = suite(Role::Client, revision, "--command", client.as_os_str())?;
        for (role, folder) in [(Role::Server, server), (Role::Client, client)] {
            let results = Results::read(&folder, role, &exclusions)?;
            rows.push(results.row(revision));
            wrong.extend(results.wrong(revision));
        }
    }
    server.stop()?;
    rows.sort_by_key(|row| !row.contains("server"));
    say!("\n{}\n{}", results::HEAD, rows.join("\n"));
    if !wrong.is_empty() {
        bail!("the suite is not content:\n{}", wrong.join("\n"));
    }
    Ok(())
}

fn exclusions() -> Result<Exclusions> {
    let path = place::workspace().join("crates/rye-mcp/conformance-exclusions.txt");
    let text = fs::read_to_string(&path);
    let text = text.with_context(|| format!("cannot read {}", path.display()))?;
    Exclusions::read(&text).with_context(|| format!("in {}", path.display()))
}

/// Runs all scenarios of a role and gives the folder of what they found.
fn suite(role: Role, revision: &str, option: &str, what: &OsStr) -> Result<PathBuf> {
    let folder = place::kept("conformance").join(format!("{}-{revision}", role.name()));
    if folder.exists() {
        fs::remove_dir_all(&folder)
            .with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    let mut suite = program(tools::node22()?, [tools::conformance()?]);
    suite
        .args([role.name(), "--suite", "all", "--spec-version", revision])
        .args(["--timeout", TIMEOUT, "--output-dir"])
        .arg(&folder)
        .args([OsStr::new(option), what]);
    // It fails where a check does, which the results tell better.
    if let Err(error) = output(&mut suite)
        && !folder.is_dir()
    {
        return Err(error);
    }
    Ok(folder)
}

/// Our server with the suite's fixtures, on a port of its own.
struct FixtureServer {
    child: Child,
    url: String,
}

impl FixtureServer {
    fn start() -> Result<Self> {
        let mut child = program(example("conformance_server")?, [""; 0])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the fixture server")?;
        let mut url = String::new();
        let stdout = child.stdout.take().context("it has no output")?;
        BufReader::new(stdout).read_line(&mut url)?;
        let url = url.trim().to_owned();
        Ok(Self { child, url })
    }

    /// It ends when its input does, as it also would if this process died.
    fn stop(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        let status = self.child.wait()?;
        anyhow::ensure!(status.success(), "the fixture server failed ({status})");
        Ok(())
    }
}

fn example(name: &str) -> Result<PathBuf> {
    // Of the whole workspace, as the tests build it: nothing is compiled twice.
    let build = ["build", "--locked", "--workspace", "--example"];
    show(cargo(build).arg(name))?;
    place::built("debug", &Path::new("examples").join(name).to_string_lossy())
}
