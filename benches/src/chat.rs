//! What a person feels of `rye chat`: how soon they can write, how soon a letter is seen, and
//! what it costs to be looked at and to listen. On a real terminal, with a scripted model.
//! Where the goal is an amount and not a ratio, the floor is the amount that is allowed.

mod terminal;

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::table::{Row, Unit};
use terminal::Terminal;

const STARTS: usize = 31;
/// Letters that are typed, and how long after one another: faster than anybody can.
const LETTERS: usize = 60;
const BETWEEN: Duration = Duration::from_millis(10);
/// How long nothing happens.
const IDLE: Duration = Duration::from_secs(5);
/// The least that can be called something.
const ALMOST_NOTHING: f64 = 0.001;
const TOKENS: u32 = 1200;
/// Of a core, for 200 tokens a second.
const SHARE: f64 = 0.05;

/// A start, letters, silence and a stream.
pub fn run() -> Result<Vec<Row>> {
    let home = home()?;
    let mut rows = vec![start(&home)?, typing(&home)?];
    rows.extend(idle(&home)?);
    rows.push(stream(&home)?);
    Ok(rows)
}

/// A home in which commands need no approval, a project, and what the model says.
fn home() -> Result<TempDir> {
    let home = tempfile::tempdir()?;
    let config = home.path().join(".ai/config/agent");
    fs::create_dir_all(&config)?;
    fs::create_dir_all(home.path().join("project/.ai"))?;
    let rules = "rules: [{ tool: 'builtin:bash', action: allow }]\n";
    fs::write(config.join("approvals.yaml"), rules)?;
    // A hundred thousand lines in some three seconds, so that there is time to type.
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
        "steps": [{ "text": words(), "chunk_chars": 4, "chunk_ms": 4 }, { "text": "the end" }],
    });
    fs::write(home.path().join("project/words.yaml"), words.to_string())?;
    Ok(home)
}

/// So many pieces of four letters, as a page with all that pages have.
fn words() -> String {
    let paragraph = "Some *words* that say a thing or two about `code`, and where they do not.\n";
    let page = format!(
        "{}\n```rust\nfn main() {{\n    let x = 1; // one\n}}\n```\n\n- one\n- two\n\n",
        paragraph.repeat(6)
    );
    let page = page.repeat(TOKENS as usize * 4 / page.len() + 1);
    page.chars().take(TOKENS as usize * 4).collect()
}

/// From the start of the process until one can write, beside a process that does nothing.
fn start(home: &TempDir) -> Result<Row> {
    let (mut floors, mut ours) = (Vec::new(), Vec::new());
    for round in 0..=STARTS {
        let floor = terminal::of_nothing()?;
        let began = Instant::now();
        let chat = Terminal::open(home, &["--model", "scripted:demo"])?;
        chat.until("›")?;
        let taken = began.elapsed().as_secs_f64();
        chat.until("ready")?;
        // The first warms what can be warm.
        if round > 0 {
            floors.push(floor);
            ours.push(taken);
        }
    }
    let times = (middle(floors), middle(ours));
    Ok(Row::time("chat: start to prompt, /bin/true", times, 5.0))
}

/// From a letter to its picture while a tool prints 100,000 lines, beside the same while
/// nothing happens.
fn typing(home: &TempDir) -> Result<Row> {
    let args = ["--model", "scripted:lines.yaml", "--sandbox", "local"];
    let chat = Terminal::open(home, &args)?;
    chat.until("ready")?;
    let quiet = letters(&chat, LETTERS)?;
    chat.press("\x15go\r")?;
    chat.until(" lines")?;
    let busy = letters(&chat, LETTERS)?;
    ensure!(
        !chat.has_said("the end"),
        "the lines were over before the letters"
    );
    chat.until("the end")?;
    let times = (middle(quiet), middle(busy));
    let what = "chat: a letter among 100,000 lines, alone";
    Ok(Row::time(what, times, 2.0))
}

/// How long each of so many letters took to be seen.
fn letters(chat: &Terminal, count: usize) -> Result<Vec<f64>> {
    let mut times = Vec::new();
    for number in 1..=count {
        std::thread::sleep(BETWEEN);
        let began = Instant::now();
        chat.press("q")?;
        chat.until(&"q".repeat(number))?;
        times.push(began.elapsed().as_secs_f64());
    }
    Ok(times)
}

/// What is used up while nothing happens: nothing.
fn idle(home: &TempDir) -> Result<[Row; 2]> {
    let chat = Terminal::open(home, &["--model", "scripted:demo"])?;
    chat.until("ready")?;
    chat.press("hi\r")?;
    chat.until("It said:")?;
    // What it still puts in order is no part of it.
    std::thread::sleep(Duration::from_secs(1));
    let before = (chat.processor_time()?, chat.wakings()?);
    std::thread::sleep(IDLE);
    let after = (chat.processor_time()?, chat.wakings()?);
    let row = |what: &str, floor, ours, unit| Row {
        what: what.to_owned(),
        ours,
        floor,
        goal: 1.0,
        unit,
    };
    Ok([
        row(
            "chat: processor time in 5 s of silence: allowed, taken",
            ALMOST_NOTHING,
            after.0 - before.0,
            Unit::Seconds,
        ),
        Row {
            goal: 0.0,
            ..row(
                "chat: how often it woke up then, beside once",
                1.0,
                after.1 - before.1,
                Unit::Pieces,
            )
        },
    ])
}

/// What 200 tokens a second cost, of a second.
fn stream(home: &TempDir) -> Result<Row> {
    let chat = Terminal::open(home, &["--model", "scripted:words.yaml"])?;
    chat.until("ready")?;
    let before = chat.processor_time()?;
    chat.press("go\r")?;
    chat.until("speaks")?;
    chat.until_last("ready")?;
    let taken = chat.processor_time()? - before;
    let each = taken / f64::from(TOKENS);
    let times = (SHARE, each * 200.0);
    Ok(Row::time(
        "chat: a second of 200 tokens: allowed, taken",
        times,
        1.0,
    ))
}

fn middle(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// The binary that is measured.
fn rye() -> Result<std::path::PathBuf> {
    let rye = std::env::var_os("RYE_BIN").context("RYE_BIN is not set: cargo xtask bench")?;
    Ok(rye.into())
}
