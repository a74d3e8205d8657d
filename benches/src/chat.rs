//! Latency and CPU use of `rye chat` on a real terminal with a scripted model. For absolute
//! goals, the baseline is the budget.

mod terminal;

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::measure::median;
use crate::table::{Row, Unit};
use terminal::Terminal;

const STARTS: usize = 31;
/// Keys that are pressed.
const KEYS: usize = 60;
/// Time between two keys: faster than anyone types.
const KEY_INTERVAL: Duration = Duration::from_millis(10);
/// Lines of the conversation before keys are pressed.
const HISTORY_LINES: u32 = 100_000;
/// Budget of a key until it is on the screen, in seconds.
const KEY_LATENCY: f64 = 0.005;
/// How long the chat is idle.
const IDLE: Duration = Duration::from_secs(5);
/// CPU budget of the idle period, in seconds.
const IDLE_CPU: f64 = 0.001;
const TOKENS: u32 = 1200;
/// Share of a core for streaming 200 tokens per second.
const STREAM_CPU: f64 = 0.05;

/// Start, typing, idling and streaming.
pub fn run() -> Result<Vec<Row>> {
    let home = home()?;
    let mut rows = vec![start(&home)?, typing(&home)?, typing_after_history(&home)?];
    rows.extend(idle(&home)?);
    rows.push(stream(&home)?);
    Ok(rows)
}

/// A home directory with a project, in which commands need no approval, and model scripts.
fn home() -> Result<TempDir> {
    let home = tempfile::tempdir()?;
    let config = home.path().join(".ai/config/agent");
    fs::create_dir_all(&config)?;
    fs::create_dir_all(home.path().join("project/.ai"))?;
    let rules = "rules: [{ tool: 'builtin:bash', action: allow }]\n";
    fs::write(config.join("approvals.yaml"), rules)?;
    // 100,000 lines in about three seconds, so that there is time to type.
    let command = "seq 100000 | awk '{ print \"line\", $0, \"of it\" } \
                   NR % 1000 == 0 { fflush(); system(\"sleep 0.025\") }'";
    let lines = serde_json::json!({
        "steps": [
            { "tool_calls": [{ "name": "bash", "args": { "command": command } }] },
            { "text": "the end" },
        ],
    });
    fs::write(home.path().join("project/lines.yaml"), lines.to_string())?;
    let words = serde_json::json!({
        "steps": [{ "text": markdown_page(), "chunk_chars": 4, "chunk_ms": 4 }, { "text": "the end" }],
    });
    fs::write(home.path().join("project/words.yaml"), words.to_string())?;
    let history: Vec<_> = (1..=HISTORY_LINES)
        .map(|it| format!("line {it}\n\n"))
        .collect();
    let history =
        serde_json::json!({ "steps": [{ "text": history.concat() }, { "text": "the end" }] });
    fs::write(
        home.path().join("project/history.yaml"),
        history.to_string(),
    )?;
    Ok(home)
}

/// `TOKENS` deltas of four characters, as a page of Markdown.
fn markdown_page() -> String {
    let paragraph = "Some *words* that say a thing or two about `code`, and where they do not.\n";
    let page = format!(
        "{}\n```rust\nfn main() {{\n    let x = 1; // one\n}}\n```\n\n- one\n- two\n\n",
        paragraph.repeat(6)
    );
    let page = page.repeat(TOKENS as usize * 4 / page.len() + 1);
    page.chars().take(TOKENS as usize * 4).collect()
}

/// Time from the start of the process to the prompt, compared with `/bin/true`.
fn start(home: &TempDir) -> Result<Row> {
    let (mut baselines, mut ours) = (Vec::new(), Vec::new());
    for round in 0..=STARTS {
        let baseline = terminal::time_bin_true()?;
        let began = Instant::now();
        let chat = Terminal::open(home, &["--model", "scripted:demo"])?;
        chat.until("›")?;
        let taken = began.elapsed().as_secs_f64();
        chat.until("ready")?;
        // The first round is a warm-up.
        if round > 0 {
            baselines.push(baseline);
            ours.push(taken);
        }
    }
    let times = (median(baselines), median(ours));
    Ok(Row::time("chat: start to prompt vs. /bin/true", times, 5.0))
}

/// Latency of a key while a tool prints 100,000 lines, compared with an idle chat.
fn typing(home: &TempDir) -> Result<Row> {
    let args = ["--model", "scripted:lines.yaml", "--sandbox", "local"];
    let chat = Terminal::open(home, &args)?;
    chat.until("ready")?;
    let quiet = key_latencies(&chat, KEYS)?;
    chat.press("\x15go\r")?;
    chat.until(" lines")?;
    let busy = key_latencies(&chat, KEYS)?;
    ensure!(
        !chat.has_printed("the end"),
        "the tool ended before the keys were pressed"
    );
    chat.until("the end")?;
    let times = (median(quiet), median(busy));
    let what = "chat: key latency during 100,000 lines vs. idle";
    Ok(Row::time(what, times, 2.0))
}

/// Latency of a key in a conversation of 100,000 lines, compared with the budget.
fn typing_after_history(home: &TempDir) -> Result<Row> {
    let chat = Terminal::open(home, &["--model", "scripted:history.yaml"])?;
    chat.until("ready")?;
    chat.press("go\r")?;
    chat.until(&format!("line {HISTORY_LINES}"))?;
    chat.until_last("ready")?;
    let times = (KEY_LATENCY, median(key_latencies(&chat, KEYS)?));
    let what = "chat: key latency after 100,000 lines vs. budget";
    Ok(Row::time(what, times, 1.0))
}

/// Latency of each of `count` keys.
fn key_latencies(chat: &Terminal, count: usize) -> Result<Vec<f64>> {
    let mut times = Vec::new();
    for number in 1..=count {
        std::thread::sleep(KEY_INTERVAL);
        let began = Instant::now();
        chat.press("q")?;
        chat.until(&"q".repeat(number))?;
        times.push(began.elapsed().as_secs_f64());
    }
    Ok(times)
}

/// CPU time and wakeups of an idle chat.
fn idle(home: &TempDir) -> Result<[Row; 2]> {
    let chat = Terminal::open(home, &["--model", "scripted:demo"])?;
    chat.until("ready")?;
    chat.press("hi\r")?;
    chat.until("●")?;
    // Let it finish background work.
    std::thread::sleep(Duration::from_secs(1));
    let before = (chat.cpu_time()?, chat.wakeups()?);
    std::thread::sleep(IDLE);
    let after = (chat.cpu_time()?, chat.wakeups()?);
    let row = |what: &str, baseline, ours, unit| Row {
        name: what.to_owned(),
        ours,
        baseline,
        goal: 1.0,
        unit,
    };
    Ok([
        row(
            "chat: CPU time of 5 s idle vs. budget",
            IDLE_CPU,
            after.0 - before.0,
            Unit::Seconds,
        ),
        Row {
            goal: 0.0,
            ..row(
                "chat: wakeups in that time vs. 1",
                1.0,
                after.1 - before.1,
                Unit::Count,
            )
        },
    ])
}

/// CPU time of streaming 200 tokens per second.
fn stream(home: &TempDir) -> Result<Row> {
    let chat = Terminal::open(home, &["--model", "scripted:words.yaml"])?;
    chat.until("ready")?;
    let before = chat.cpu_time()?;
    chat.press("go\r")?;
    chat.until("responding")?;
    chat.until_last("ready")?;
    let taken = chat.cpu_time()? - before;
    let each = taken / f64::from(TOKENS);
    let times = (STREAM_CPU, each * 200.0);
    Ok(Row::time(
        "chat: CPU time of streaming 200 tokens/s vs. budget",
        times,
        1.0,
    ))
}

/// Path of the measured binary.
fn rye() -> Result<std::path::PathBuf> {
    let rye = std::env::var_os("RYE_BIN").context("RYE_BIN is not set: cargo xtask bench")?;
    Ok(rye.into())
}
