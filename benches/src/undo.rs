//! Undo of a large change, compared with the budget.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::measure::median;
use crate::table::{Row, Unit};

/// Files that a session changes.
const FILES: usize = 1_000;
const ROUNDS: usize = 5;
/// Budget of undoing them, in seconds.
const BUDGET: f64 = 1.0;

/// Time of `rye session undo`, compared with the budget and with writing the files.
pub fn run() -> Result<Vec<Row>> {
    let home = tempfile::tempdir()?;
    let project = home.path().join("project");
    let config = home.path().join(".ai/config/agent");
    fs::create_dir_all(&config)?;
    fs::create_dir_all(project.join(".ai"))?;
    let rules = "rules: [{ tool: 'builtin:bash', action: allow }]\n";
    fs::write(config.join("approvals.yaml"), rules)?;
    let script = json!({
        "steps": [
            { "tool_calls": [{
                "name": "bash",
                "args": { "command": "for f in d*/*.txt; do echo changed >> $f; done" },
            }] },
            { "text": "done" },
        ],
    });
    fs::write(project.join("script.yaml"), script.to_string())?;
    let text = text()?;
    write_files(&project, &text)?;
    let (mut floors, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let prompt = [
            "prompt",
            "go",
            "--model",
            "scripted:script.yaml",
            "--sandbox",
            "local",
            "--json",
        ];
        let output = rye(home.path(), &prompt)?;
        let lines = String::from_utf8(output.stdout)?;
        let outcome: Value = serde_json::from_str(lines.lines().last().context("no outcome")?)?;
        let session = outcome["session"].as_str().context("no session")?;
        let began = Instant::now();
        rye(home.path(), &["session", "undo", session])?;
        ours.push(began.elapsed().as_secs_f64());
        let restored = fs::read_to_string(project.join("d0/0.txt"))?;
        ensure!(restored == text, "the file was not restored");
        let began = Instant::now();
        write_files(&project, &text)?;
        floors.push(began.elapsed().as_secs_f64());
    }
    let (floor, ours) = (median(floors), median(ours));
    Ok(vec![
        Row::time("undo of 1,000 files vs. budget", (BUDGET, ours), 1.0),
        Row {
            name: "undo of 1,000 files vs. writing them".to_owned(),
            ours,
            baseline: floor,
            goal: crate::table::NO_GOAL,
            unit: Unit::Seconds,
        },
    ])
}

/// About 2 KB.
fn text() -> Result<String> {
    let mut text = String::new();
    for line in 0..60 {
        writeln!(text, "line {line} of a file that is changed")?;
    }
    Ok(text)
}

fn write_files(project: &Path, text: &str) -> Result<()> {
    for file in 0..FILES {
        let dir = project.join(format!("d{}", file % 10));
        fs::create_dir_all(&dir)?;
        fs::write(dir.join(format!("{}.txt", file / 10)), text)?;
    }
    Ok(())
}

fn rye(home: &Path, args: &[&str]) -> Result<Output> {
    let rye = std::env::var_os("RYE_BIN").context("RYE_BIN is not set: cargo xtask bench")?;
    let output = Command::new(rye)
        .args(args)
        .env_clear()
        .env("HOME", home)
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .current_dir(home.join("project"))
        .output()?;
    ensure!(output.status.success(), "rye {args:?} failed: {output:?}");
    Ok(output)
}
