//! Time from a prompt to the first streamed token through `rye acp`, compared with the engine.

use std::fs;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use rye_engine::protocol::{EventKind, SessionId};
use rye_engine::{Engine, EventStream, NewSession, Prompt};
use rye_model::Catalogue;
use rye_sandbox::VirtualSandbox;
use rye_store::SqliteStore;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::measure::median;
use crate::table::{NO_GOAL, Row, Unit};

const ROUNDS: usize = 100;
/// What the protocol may add, in seconds.
const BUDGET: f64 = 0.003;

const SCRIPT: &str =
    "{ steps: [], after_last: { text: 'an answer of some words', chunk_chars: 4 } }";

/// Prompts to an engine in this process, with its own database, and to `rye acp`.
pub fn run() -> Result<Vec<Row>> {
    let home = tempfile::tempdir()?;
    fs::create_dir_all(home.path().join("project/.ai"))?;
    fs::write(home.path().join("project/agent.yaml"), SCRIPT)?;
    let mut own = Own::new(&home)?;
    let mut editor = Editor::start(&home)?;
    let (mut own_times, mut editor_times) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        // Alternately, so that a busy machine slows both.
        let times = (own.prompt()?, editor.prompt()?);
        // The first round is a warm-up.
        if round > 0 {
            own_times.push(times.0);
            editor_times.push(times.1);
        }
    }
    let (engine, acp) = (median(own_times), median(editor_times));
    Ok(vec![
        Row::time(
            "prompt to first token through ACP vs. engine",
            (engine, acp),
            NO_GOAL,
        ),
        Row {
            name: "what ACP adds to the first token vs. 3 ms".to_owned(),
            ours: (acp - engine).max(0.0),
            baseline: BUDGET,
            goal: 1.0,
            unit: Unit::Seconds,
        },
    ])
}

/// An engine with a durable store, without items, guides and policy.
struct Own {
    runtime: Runtime,
    engine: Engine,
    session: SessionId,
    events: EventStream,
}

impl Own {
    fn new(home: &TempDir) -> Result<Self> {
        // As `rye` has it.
        let mut runtime = Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build()?;
        let (engine, session, events) = runtime.block_on(async {
            let name = "scripted:agent";
            let models = Catalogue::new(home.path()).with(name, SCRIPT.parse()?);
            let engine = Engine::builder()
                .store(SqliteStore::open(home.path().join("engine.db"))?)
                .models(models.default_model(name))
                .sandbox(Arc::new(VirtualSandbox::new()))
                .build()?;
            let session = engine.create_session(NewSession::default()).await?;
            let session = session.id().clone();
            let events = engine.follow(&session, 0).await?;
            anyhow::Ok((engine, session, events))
        })?;
        Ok(Self {
            runtime,
            engine,
            session,
            events,
        })
    }

    /// Sends a prompt, and returns the seconds until the first token, after the end of the turn.
    fn prompt(&mut self) -> Result<f64> {
        self.runtime.block_on(async {
            let start = Instant::now();
            let prompt = Prompt::from("go");
            self.engine.submit(&self.session, prompt).await?;
            let mut first = None;
            while let Some(notice) = self.events.next().await? {
                match notice.event.kind {
                    EventKind::TextDelta { .. } => {
                        first.get_or_insert_with(|| start.elapsed().as_secs_f64());
                    }
                    EventKind::TurnEnd { .. } => return first.context("no token"),
                    _ => {}
                }
            }
            bail!("the session has ended")
        })
    }
}

/// A client of `rye acp`.
struct Editor {
    agent: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    session: String,
    last_id: u64,
}

impl Editor {
    fn start(home: &TempDir) -> Result<Self> {
        let rye = std::env::var_os("RYE_BIN").context("RYE_BIN is not set: cargo xtask bench")?;
        let project = home.path().join("project");
        let model = format!("scripted:{}", project.join("agent.yaml").display());
        let mut agent = Command::new(rye)
            .args(["acp", "--sandbox", "virtual", "--model", &model])
            .env_clear()
            .env("HOME", home.path())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start rye acp")?;
        let input = agent.stdin.take().context("no standard input")?;
        let output = agent.stdout.take().context("no standard output")?;
        let mut editor = Self {
            agent,
            input,
            output: BufReader::new(output).lines(),
            session: String::new(),
            last_id: 0,
        };
        let initialize = json!({ "protocolVersion": 1, "clientCapabilities": {} });
        editor.request("initialize", &initialize)?;
        let new = json!({ "cwd": project, "mcpServers": [] });
        let (created, _) = editor.request("session/new", &new)?;
        let id = created["result"]["sessionId"].as_str();
        id.with_context(|| format!("no session: {created}"))?
            .clone_into(&mut editor.session);
        Ok(editor)
    }

    /// Sends a request, and returns the response and the seconds until the first text.
    fn request(&mut self, method: &str, params: &Value) -> Result<(Value, Option<f64>)> {
        self.last_id += 1;
        let id = self.last_id;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let start = Instant::now();
        writeln!(self.input, "{request}")?;
        let mut first = None;
        for line in &mut self.output {
            let message: Value = serde_json::from_str(&line?)?;
            if message["params"]["update"]["sessionUpdate"] == "agent_message_chunk" {
                first.get_or_insert_with(|| start.elapsed().as_secs_f64());
            }
            if message["id"] == id && message["method"].is_null() {
                return Ok((message, first));
            }
        }
        bail!("rye acp has ended")
    }

    fn prompt(&mut self) -> Result<f64> {
        let text = json!([{ "type": "text", "text": "go" }]);
        let params = json!({ "sessionId": self.session, "prompt": text });
        let (response, first) = self.request("session/prompt", &params)?;
        first.with_context(|| format!("no token: {response}"))
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        let _ = self.agent.kill();
        let _ = self.agent.wait();
    }
}
