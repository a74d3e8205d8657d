//! A tool call of an agent, as a person has it: `rye prompt` with its sessions in a file, and
//! a shell that really runs. From the request that wants the call to the one that brings its
//! result; where a rule allows it, and where somebody approves each call at a gate.

use std::fs;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, ensure};
use rye_model_wire::{Completion, MockProvider, Reply};
use serde_json::json;

use super::{home, middle, prompt, rye};
use crate::table::{NO_GOAL, Row};

/// What a call may take, all of it written down.
const ALLOWED: f64 = 0.005;
const PROCESSES: usize = 5;
const CALLS: usize = 41;
/// The first ones of a process make and warm what later ones find.
const WARM: usize = 5;

/// A call that is allowed, and one that is approved, which is written down as well.
pub(super) fn run() -> Result<[Row; 2]> {
    let allowed = "shell tool call to the next request: allowed, taken";
    let approved = "the same, approved at a gate";
    Ok([
        Row::time(allowed, (ALLOWED, calls("allow")?), 1.0),
        Row::time(approved, (ALLOWED, calls("ask")?), NO_GOAL),
    ])
}

/// What a call takes under a rule.
fn calls(rule: &str) -> Result<f64> {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    let wire = MockProvider::new(move |_, request| {
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.push(request.received_at);
        let number = seen.len();
        let said = if number > CALLS {
            Completion::text("Done.")
        } else {
            let id = format!("call_{number}");
            Completion::call(&id, "bash", json!({ "command": "echo hello" }))
        };
        Reply::stream(rye_model_wire::Api::OpenAiChat.stream(&said))
    });
    let home = home(&wire.url())?;
    let rules = home.path().join(".ai/config/agent/approvals.yaml");
    let rule = format!("rules:\n  - {{ tool: 'builtin:bash', action: {rule} }}\n");
    fs::write(rules, rule)?;
    let mut times = Vec::new();
    for _ in 0..PROCESSES {
        let status = prompt(&rye()?, home.path(), "work")
            .args(["--sandbox", "local", "--yes"])
            .status()?;
        ensure!(status.success(), "`rye prompt` has failed");
        let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
        ensure!(asked.len() == CALLS + 1, "{} requests came", asked.len());
        let between = asked.windows(2).skip(WARM);
        times.extend(between.map(|pair| (pair[1] - pair[0]).as_secs_f64()));
        asked.clear();
    }
    Ok(middle(times))
}
