//! Overhead of model requests. For absolute goals, the baseline is the budget.

mod compaction;
mod shell;
mod stream;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rye_engine::model::{Deltas, Model as _, ModelInfo, ModelRequest};
use rye_engine::protocol::{Message, Part, ResultStatus, Role};
use rye_model::{Api, HttpModel, Key, Price, Provider, Target};
use rye_testkit::provider::{Completion, MockProvider, Reply};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::measure::{interleaved, median, try_interleaved};
use crate::table::{Row, Unit};

/// Processes that are started.
const STARTS: usize = 41;
/// Requests in one process.
const CALLS: usize = 301;
/// Budget from the start of the process to its first request, in seconds.
const START_BUDGET: f64 = 0.020;
/// Budget for the peak memory at that time, in bytes.
const MEMORY_BUDGET: f64 = 30.0 * 1_048_576.0;
/// Budget for the first delta on top of the server's own time, in seconds.
const FIRST_DELTA_BUDGET: f64 = 0.005;

/// Process start, tool calls, first delta and long histories.
pub fn run() -> Result<Vec<Row>> {
    let mut rows = from_prompt_to_request()?;
    rows.extend(shell::run()?);
    rows.push(first_delta()?);
    rows.extend(Api::ALL.into_iter().map(build_request));
    rows.push(compaction::run());
    rows.push(stream::run()?);
    Ok(rows)
}

/// Path of the measured binary.
fn rye() -> Result<PathBuf> {
    let rye = std::env::var_os("RYE_BIN").map(PathBuf::from);
    rye.context("RYE_BIN is not set: cargo xtask bench")
}

/// `rye prompt` in the project of a home directory, without output.
fn prompt(rye: &Path, home: &Path, words: &str) -> Command {
    let mut command = Command::new(rye);
    command
        .args(["prompt", words, "--model", "local/x", "--quiet"])
        .env_clear()
        .env("HOME", home)
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .current_dir(home.join("project"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// A home directory with a local model and a project.
fn home(url: &str) -> Result<TempDir> {
    let home = tempfile::tempdir()?;
    let config = home.path().join(".ai/config/agent");
    fs::create_dir_all(&config)?;
    fs::create_dir_all(home.path().join("project/.ai"))?;
    let text = format!(
        "providers: {{ local: {{ api: openai-chat, base_url: '{url}/v1', models: {{ x: {{}} }} }} }}\n"
    );
    fs::write(config.join("models.yaml"), text)?;
    Ok(home)
}

fn from_prompt_to_request() -> Result<Vec<Row>> {
    let rye = rye()?;
    // Time of each request and memory of the process that sent it.
    let process = Arc::new(AtomicU32::new(0));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (client, samples) = (Arc::clone(&process), Arc::clone(&seen));
    let events = rye_testkit::provider::Api::OpenAiChat.stream(&Completion::text("Hello."));
    let mock = MockProvider::new(move |_, request| {
        while client.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        let memory = peak_memory(client.load(Ordering::Acquire)).unwrap_or(f64::NAN);
        let mut seen = samples.lock().unwrap_or_else(PoisonError::into_inner);
        seen.push((request.received_at, memory));
        Reply::stream(events.clone())
    });
    let home = home(&mock.url())?;
    let (mut times, mut memories) = (Vec::new(), Vec::new());
    for round in 0..=STARTS {
        process.store(0, Ordering::Release);
        let began = Instant::now();
        let mut child = prompt(&rye, home.path(), "hello").spawn()?;
        process.store(child.id(), Ordering::Release);
        ensure!(child.wait()?.success(), "`rye prompt` failed");
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, memory) = seen.pop().context("the server got no request")?;
        // The first round creates the session file and is a warm-up.
        if round > 0 {
            times.push((at - began).as_secs_f64());
            memories.push(memory);
        }
    }
    Ok(vec![
        Row::time(
            "rye prompt: time to first request vs. budget",
            (START_BUDGET, median(times)),
            1.0,
        ),
        Row {
            name: "rye prompt: memory at that time vs. budget".to_owned(),
            ours: median(memories),
            baseline: MEMORY_BUDGET,
            goal: 1.0,
            unit: Unit::Bytes,
        },
    ])
}

/// Peak memory of a process, in bytes.
fn peak_memory(process: u32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kilobytes: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024.0)
}

/// Time to the first delta, compared with a plain socket that sends the same request.
fn first_delta() -> Result<Row> {
    let events = rye_testkit::provider::Api::OpenAiChat.stream(&Completion::text("Hello."));
    let mock = MockProvider::with_replies([Reply::stream(events)]);
    let (provider, target) = model(Api::OpenAiChat, &mock.url());
    let request = history(1);
    let body = Api::OpenAiChat.body(&request, &target);
    let model = HttpModel::new(provider, target, Price::default());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let address = mock.url().replace("http://", "");
    let mut connection = TcpStream::connect(&address)?;
    connection.set_nodelay(true)?;
    let (mut baselines, mut ours) = (Vec::new(), Vec::new());
    try_interleaved(
        CALLS,
        || {
            baselines.push(plain_request(&mut connection, &body)?);
            Ok(())
        },
        || {
            let (began, first) = (Instant::now(), Arc::new(OnceLock::new()));
            let received = Arc::clone(&first);
            let deltas: Deltas = Arc::new(move |_| {
                received.get_or_init(|| began.elapsed());
            });
            runtime.block_on(model.call(request.clone(), deltas))?;
            ours.push(*first.get().context("no delta arrived")?);
            anyhow::Ok(())
        },
    )?;
    let median = |all: Vec<Duration>| median(all.iter().map(Duration::as_secs_f64).collect());
    let (baseline, ours) = (median(baselines), median(ours));
    Ok(Row::time(
        "time to first delta vs. plain socket + 5 ms",
        (baseline + FIRST_DELTA_BUDGET, ours),
        1.0,
    ))
}

/// Sends a request over a socket and returns the time to the first event. Reads to the end.
fn plain_request(connection: &mut TcpStream, body: &[u8]) -> Result<Duration> {
    let began = Instant::now();
    let length = body.len();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n"
    );
    connection.write_all(&[head.as_bytes(), body].concat())?;
    let (mut all, mut piece, mut first) = (Vec::new(), [0; 8192], None);
    while !all.ends_with(b"0\r\n\r\n") {
        let read = connection.read(&mut piece)?;
        ensure!(read > 0, "the server closed the connection");
        all.extend_from_slice(&piece[..read]);
        let has_event = all.windows(6).any(|it| it == b"data: ");
        if has_event {
            first.get_or_insert_with(|| began.elapsed());
        }
    }
    first.context("the answer has no event")
}

fn model(api: Api, url: &str) -> (Provider, Target) {
    let provider = Provider {
        api,
        base_url: format!("{url}/v1"),
        key: Key::None,
        headers: Vec::new(),
        idle_timeout: Duration::from_mins(1),
    };
    let target = Target {
        name: "local/x".to_owned(),
        id: "x".to_owned(),
        info: ModelInfo {
            context_window: 1_000_000,
            max_output: 4_000,
            images: false,
        },
        thinking: None,
        effort: None,
    };
    (provider, target)
}

/// A history with a call and its result in each turn: about 200 tokens per turn.
fn history(turns: usize) -> ModelRequest {
    let mut messages = Vec::new();
    for turn in 0..turns {
        let id = format!("call_{turn}");
        let text = "The quick brown fox jumps over the lazy dog. ".repeat(8);
        messages.push(Message::text(Role::User, format!("{turn}: {text}")));
        messages.push(Message::new(
            Role::Assistant,
            vec![call(
                &id,
                json!({ "command": "cat notes.txt", "turn": turn }),
            )],
        ));
        messages.push(Message::new(Role::Tool, vec![result(&id, &text)]));
    }
    messages.push(Message::text(Role::User, "Continue."));
    ModelRequest {
        system: "Be brief.".to_owned(),
        messages: Arc::new(messages.into_iter().map(Arc::new).collect()),
        tools: Arc::default(),
        max_output: None,
        for_summary: false,
        previous_compactions: 0,
        compacted_answers: 0,
    }
}

fn call(id: &str, args: Value) -> Part {
    Part::ToolCall {
        call_id: id
            .parse()
            .unwrap_or_else(|_| rye_engine::protocol::CallId::new()),
        tool: "bash".to_owned(),
        args,
    }
}

fn result(id: &str, text: &str) -> Part {
    Part::ToolResult {
        call_id: id
            .parse()
            .unwrap_or_else(|_| rye_engine::protocol::CallId::new()),
        tool: "bash".to_owned(),
        status: ResultStatus::Success,
        text: text.to_owned(),
        data: Value::Null,
        error: None,
        elided: false,
    }
}

/// Builds a request with 200,000 tokens, compared with serialising them as JSON once.
fn build_request(api: Api) -> Row {
    let request = history(1_000);
    let (_, target) = model(api, "http://127.0.0.1");
    let plain: Vec<&Message> = request.messages.iter().map(AsRef::as_ref).collect();
    let times = interleaved(
        101,
        || serde_json::to_vec(&plain).map(|it| it.len()),
        || api.body(&request, &target).len(),
    );
    let what = format!(
        "request of 200,000 tokens for {} vs. serialising",
        api.as_str()
    );
    Row::time(&what, times, 2.0)
}
