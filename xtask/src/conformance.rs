//! Runs the MCP conformance suite against our server and client, in both protocol revisions.
//!
//! The suite passes scenarios that check nothing and those with warnings. Here each scenario
//! must check something and all checks must pass, except for the scenarios that
//! `conformance-exclusions.txt` lists with a reason.

mod exclusions;
mod results;

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use anyhow::{Context, Result, bail};

use crate::output::print_line;
use crate::process::{capture, cargo, program, run};
use crate::{paths, tools};
use exclusions::Exclusions;
use results::Results;

const REVISIONS: [&str; 2] = ["2025-11-25", "2026-07-28"];

/// Time limit of a scenario in milliseconds. The longest takes three seconds.
const TIMEOUT: &str = "20000";

/// The side under test.
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

/// Runs the suite in all revisions and prints the results.
pub(crate) fn check() -> Result<()> {
    let exclusions = load_exclusions()?;
    let (server, client) = build_examples()?;
    let server = FixtureServer::start(&server)?;
    let mut failures = Vec::new();
    let mut rows = Vec::new();
    for revision in REVISIONS {
        let server = run_suite(Role::Server, revision, "--url", server.url.as_ref())?;
        let client = run_suite(Role::Client, revision, "--command", client.as_os_str())?;
        for (role, directory) in [(Role::Server, server), (Role::Client, client)] {
            let results = Results::load(&directory, role, &exclusions)?;
            rows.push(results.row(revision));
            failures.extend(results.failures(revision));
        }
    }
    server.stop()?;
    rows.sort_by_key(|row| !row.contains("server"));
    print_line!("\n{}\n{}", results::HEADER, rows.join("\n"));
    if !failures.is_empty() {
        bail!("conformance failures:\n{}", failures.join("\n"));
    }
    Ok(())
}

fn load_exclusions() -> Result<Exclusions> {
    let path = paths::workspace().join("crates/rye-mcp/conformance-exclusions.txt");
    let text = fs::read_to_string(&path);
    let text = text.with_context(|| format!("cannot read {}", path.display()))?;
    Exclusions::parse(&text).with_context(|| format!("in {}", path.display()))
}

/// Runs all scenarios of a role and returns the directory with the results.
fn run_suite(role: Role, revision: &str, option: &str, target: &OsStr) -> Result<PathBuf> {
    let directory = paths::cache_dir("conformance").join(format!("{}-{revision}", role.name()));
    if directory.exists() {
        fs::remove_dir_all(&directory)
            .with_context(|| format!("cannot remove {}", directory.display()))?;
    }
    let mut suite = program(tools::node22()?, [tools::conformance()?]);
    suite
        .args([role.name(), "--suite", "all", "--spec-version", revision])
        .args(["--timeout", TIMEOUT, "--output-dir"])
        .arg(&directory)
        .args([OsStr::new(option), target]);
    // The suite fails if a check fails; the results have the details.
    if let Err(error) = capture(&mut suite)
        && !directory.is_dir()
    {
        return Err(error);
    }
    Ok(directory)
}

/// Our server with the fixtures that the suite expects.
struct FixtureServer {
    child: Child,
    url: String,
}

impl FixtureServer {
    fn start(server: &Path) -> Result<Self> {
        let mut child = program(server, [""; 0])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the fixture server")?;
        let mut url = String::new();
        let stdout = child
            .stdout
            .take()
            .context("the fixture server has no standard output")?;
        BufReader::new(stdout).read_line(&mut url)?;
        let url = url.trim().to_owned();
        Ok(Self { child, url })
    }

    /// Closes its standard input, which ends the server.
    fn stop(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        let status = self.child.wait()?;
        anyhow::ensure!(status.success(), "the fixture server failed ({status})");
        Ok(())
    }
}

/// Builds the server and the client under test.
fn build_examples() -> Result<(PathBuf, PathBuf)> {
    let names = ["conformance_server", "conformance_client"];
    // With `--workspace`, like the tests, so that nothing is compiled twice.
    let mut build = cargo(["build", "--locked", "--workspace"]);
    run(build.args(names.iter().flat_map(|name| ["--example", name])))?;
    let [server, client] =
        names.map(|name| paths::built_program("debug", &format!("examples/{name}")));
    Ok((server?, client?))
}
