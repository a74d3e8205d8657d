//! A shell tool call in `rye prompt`: time from the model request that asks for the call to
//! the request with its result, if a rule allows the call and if each call is approved at a
//! gate.

use std::fs;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, ensure};
use rye_testkit::provider::{Completion, MockProvider, Reply};
use serde_json::json;

use super::{home, prompt, rye};
use crate::measure::median;
use crate::table::{NO_GOAL, Row};

/// Budget of a call, including storage, in seconds.
const BUDGET: f64 = 0.005;
const PROCESSES: usize = 5;
const CALLS: usize = 41;
/// Calls of each process that are a warm-up.
const WARM_UP: usize = 5;

/// Measures allowed and approved calls.
pub(super) fn run() -> Result<[Row; 2]> {
    let allowed = "shell tool call to the next request vs. budget";
    let approved = "the same, approved at a gate";
    Ok([
        Row::time(allowed, (BUDGET, time_calls("allow")?), 1.0),
        Row::time(approved, (BUDGET, time_calls("ask")?), NO_GOAL),
    ])
}

/// Median time of a call under a rule.
fn time_calls(rule: &str) -> Result<f64> {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&requests);
    let mock = MockProvider::new(move |_, request| {
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        log.push(request.received_at);
        let number = log.len();
        let completion = if number > CALLS {
            Completion::text("Done.")
        } else {
            let id = format!("call_{number}");
            Completion::call(&id, "bash", json!({ "command": "echo hello" }))
        };
        Reply::stream(rye_testkit::provider::Api::OpenAiChat.stream(&completion))
    });
    let home = home(&mock.url())?;
    let rules = home.path().join(".ai/config/agent/approvals.yaml");
    let rule = format!("rules:\n  - {{ tool: 'builtin:bash', action: {rule} }}\n");
    fs::write(rules, rule)?;
    let mut times = Vec::new();
    for _ in 0..PROCESSES {
        let status = prompt(&rye()?, home.path(), "work")
            .args(["--sandbox", "local", "--yes"])
            .status()?;
        ensure!(status.success(), "`rye prompt` failed");
        let mut requests = requests.lock().unwrap_or_else(PoisonError::into_inner);
        ensure!(
            requests.len() == CALLS + 1,
            "got {} requests",
            requests.len()
        );
        let between = requests.windows(2).skip(WARM_UP);
        times.extend(between.map(|pair| (pair[1] - pair[0]).as_secs_f64()));
        requests.clear();
    }
    Ok(median(times))
}
