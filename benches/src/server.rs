//! The HTTP server: requests beside a bare axum handler, and event streams.
//!
//! The server is `rye serve` with SQLite. The baseline runs in this process: the same handler
//! without routing, authentication and checks, with the same engine on a database of its own.

mod bare;
mod client;
mod streams;

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::measure::try_interleaved;
use crate::table::{Row, Unit};
use client::Client;

const ROUNDS: usize = 40;
/// Requests per round.
const REQUESTS: usize = 200;
/// Prompts per round. They stay in the queue of a paused session.
const PROMPTS: usize = 10;

/// An answer that is streamed for half a second.
const SCRIPT: &str =
    "steps: []\nafter_last: { text: 'an answer of some words', chunk_chars: 1, chunk_ms: 20 }\n";

/// Requests, latency of events, and memory of idle streams.
pub fn run() -> Result<Vec<Row>> {
    let server = Server::start()?;
    let bare = bare::Bare::start()?;
    let mut ours = Client::connect(server.address, &server.token)?;
    let mut baseline = Client::connect(bare.address, "")?;
    let alive = |client: &mut Client| {
        for _ in 0..REQUESTS {
            client.get("/healthz", 200)?;
        }
        anyhow::Ok(())
    };
    let healthz = try_interleaved(ROUNDS, || alive(&mut baseline), || alive(&mut ours))?;
    let session = Server::create_session(&mut ours)?;
    ours.post(&format!("/api/sessions/{session}/pause"), "{}", 204)?;
    let path = format!("/api/sessions/{session}/threads/default/prompts");
    let prompt = |client: &mut Client| {
        for _ in 0..PROMPTS {
            client.post(&path, r#"{"text":"one more"}"#, 202)?;
        }
        anyhow::Ok(())
    };
    let prompts = try_interleaved(ROUNDS, || prompt(&mut baseline), || prompt(&mut ours))?;
    let latency = streams::latency(&server, &mut ours)?;
    let memory = streams::idle_memory(&server, &session)?;
    Ok(vec![
        Row::time("200 times GET /healthz vs. bare axum", healthz, 1.3),
        Row::time("10 prompts accepted durably vs. bare axum", prompts, 1.3),
        Row::time(
            "commit to SSE frame, p99 with 100 sessions vs. 5 ms",
            (0.005, latency),
            1.0,
        ),
        Row {
            name: "memory of 5,000 idle streams vs. 20 KiB each".to_owned(),
            ours: memory,
            baseline: f64::from(streams::IDLE) * 20.0 * 1024.0,
            goal: 1.0,
            unit: Unit::Bytes,
        },
    ])
}

/// `rye serve` in a temporary project.
struct Server {
    child: Child,
    address: SocketAddr,
    token: String,
    _directory: TempDir,
}

impl Server {
    fn start() -> Result<Self> {
        let directory = TempDir::new()?;
        let project = directory.path().join("project");
        std::fs::create_dir_all(project.join(".ai"))?;
        std::fs::write(project.join("agent.yaml"), SCRIPT)?;
        let options = ["serve", "--addr", "127.0.0.1:0", "--json"];
        let mut serve = rye(directory.path(), &project)?;
        serve.args(options);
        serve.args(["--model", "scripted:agent.yaml", "--sandbox", "virtual"]);
        let mut child = serve.stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        let output = child.stdout.take().context("no standard output")?;
        BufReader::new(output).read_line(&mut line)?;
        let ready: Value = serde_json::from_str(&line)?;
        let url = ready["url"].as_str().context("no URL")?;
        let address = url.trim_start_matches("http://").parse()?;
        let mut create = rye(directory.path(), &project)?;
        create.args([
            "token", "create", "--name", "bench", "--scope", "admin", "--json",
        ]);
        let output = create.output()?;
        ensure!(output.status.success(), "{output:?}");
        let token: Value = serde_json::from_slice(&output.stdout)?;
        let token = token["secret"].as_str().context("no token")?.to_owned();
        Ok(Self {
            child,
            address,
            token,
            _directory: directory,
        })
    }

    fn create_session(client: &mut Client) -> Result<String> {
        let state = client.post("/api/sessions", "{}", 201)?;
        let state: Value = serde_json::from_str(&state)?;
        let id = state["session"]["id"].as_str();
        Ok(id.context("no id")?.to_owned())
    }

    /// Resident memory, in bytes.
    fn resident(&self) -> Result<f64> {
        let path = format!("/proc/{}/smaps_rollup", self.child.id());
        let text = std::fs::read_to_string(path)?;
        let line = text.lines().find_map(|line| line.strip_prefix("Rss:"));
        let kibibytes = line.and_then(|line| line.split_whitespace().next());
        let kibibytes: f64 = kibibytes.context("no Rss")?.parse()?;
        Ok(kibibytes * 1024.0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn rye(home: &Path, project: &Path) -> Result<Command> {
    let binary = std::env::var("RYE_BIN").context("RYE_BIN is not set: cargo xtask bench")?;
    let mut command = Command::new(binary);
    command.env_clear().env("HOME", home).env("USER", "bench");
    command.env("PATH", "/usr/bin:/bin").current_dir(project);
    Ok(command)
}
