//! Runs and their gates seen from other directories, and before the first record.

use std::process::{Command, Output};

use rye_engine::protocol::short_id;
use serde_json::Value;

use super::{env_with_examples, holder, wait_for_state};
use crate::support::{TestEnv, json};

/// Runs `rye` in another directory.
fn run_elsewhere(env: &TestEnv, args: &[&str]) -> Output {
    let folder = env.path("user");
    env.command()
        .current_dir(folder)
        .args(args)
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    format!("{out}{err}")
}

/// A run in the background that waits for an approval.
fn waiting_in_background(env: &TestEnv) -> String {
    let started = json(&env.run(&[
        "graph",
        "run",
        "--async",
        "--json",
        "workflows/release",
        "--version",
        "2",
    ]));
    assert_eq!(wait_for_state(env, "waiting"), started["run"]["id"]);
    wait_for_state(env, "waiting")
}

fn kill(env: &TestEnv, id: &str) {
    let handle = holder(env, id);
    let killed = Command::new("kill")
        .args(["-9", &handle.pid().to_string()])
        .status();
    assert!(killed.unwrap().success());
    let _ = handle.wait(None);
}

#[test]
fn run_has_the_same_state_in_every_directory() {
    let env = env_with_examples();
    let id = waiting_in_background(&env);
    kill(&env, &id);
    assert!(env.run(&["gate", "approve", &id]).status.success());
    let status = text(&env.run(&["run", "status", &id]));
    assert!(status.contains("approved by ada"), "{status}");
    assert!(!status.contains("rye gate approve"), "{status}");
    let status = text(&run_elsewhere(&env, &["run", "status", &id]));
    let project = env.path("project");
    let resume = format!(
        "rye --project {} graph run --resume {}",
        project.display(),
        short_id(&id)
    );
    assert!(status.contains(&resume), "{status}");
    assert!(env.run(&["graph", "run", "--resume", &id]).status.success());
    let listed = json(&run_elsewhere(&env, &["run", "list", "--json"]));
    let runs = listed["runs"].as_array().unwrap();
    let states: Vec<_> = runs.iter().map(|run| &run["state"]).collect();
    assert_eq!(states, ["completed"], "{listed}");
    let status = json(&run_elsewhere(&env, &["run", "status", "--json", &id]));
    assert_eq!(status["run"]["state"], "completed", "{status}");
    let verified = run_elsewhere(&env, &["run", "verify", &id]);
    assert!(verified.status.success(), "{verified:?}");
}

#[test]
fn gate_names_its_project_and_is_answered_from_anywhere() {
    let env = env_with_examples();
    let walker = env
        .command()
        .args(["graph", "run", "workflows/release", "--version", "2"])
        .spawn()
        .unwrap();
    let id = wait_for_state(&env, "waiting");
    let here = text(&env.run(&["gate", "list"]));
    let origin = format!("graph workflows/release, run {}", short_id(&id));
    assert!(here.contains(&format!("{origin}\n")), "{here}");
    let there = text(&run_elsewhere(&env, &["gate", "list"]));
    let project = env.path("project").canonicalize().unwrap();
    let place = format!("{origin}, in {}", project.display());
    assert!(there.contains(&place), "{there}");
    let listed = json(&run_elsewhere(&env, &["gate", "list", "--json"]));
    let gate: &Value = &listed["gates"][0];
    assert_eq!(gate["graph"], "workflows/release", "{listed}");
    assert_eq!(gate["project"], project.to_str().unwrap(), "{listed}");
    let gate = gate["id"].as_str().unwrap();
    let answered = run_elsewhere(&env, &["gate", "approve", gate]);
    assert!(answered.status.success(), "{answered:?}");
    let output = walker.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let none = text(&run_elsewhere(&env, &["gate", "list"]));
    assert!(none.contains("no pending gates"), "{none}");
}
