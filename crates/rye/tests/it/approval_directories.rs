//! An approval is bound to the directory it was requested for.

use std::fs;

use crate::support::{TestEnv, json, kill_at_gate};
use serde_json::Value;

const COMMAND: &str = "{ name: bash, args: { command: 'pwd >> ran.txt' } }";
const OUTSIDE: &str = "{ name: write, args: { path: ../ran.txt, content: ran } }";
const ITEM: &str = "{ name: call_tool, args: { tool_id: 'rye:work', summary: work } }";
const TOOL: &str = "version: \"1.0.0\"\ndescription: Works\nrisk_level: high\n\
    executor_id: rye/core/runtimes/bash/bash\nconfig:\n  command: 'pwd >> ran.txt'\n";

/// Two projects, and an agent that makes the same call twice.
fn env_with_two_projects(call: &str) -> TestEnv {
    let mut env = TestEnv::new();
    env.set("USER", "ada");
    let step = format!("  - tool_calls: [{call}]\n  - text: done\n");
    env.write("user/agent.yaml", &format!("steps:\n{}", step.repeat(2)));
    fs::create_dir_all(env.path("far/other/.ai")).unwrap();
    assert!(env.run(&["init"]).status.success());
    env.write("user/.ai/tools/work.yaml", TOOL);
    let signed = env.run(&["sign", "work", "--space", "user"]);
    assert!(signed.status.success(), "{signed:?}");
    env
}

/// Runs `rye` until it waits at a gate, and returns the gate.
fn run_to_gate(env: &TestEnv, args: &[&str]) -> Value {
    kill_at_gate(env, env.command().args(args).spawn().unwrap());
    let mut listed = json(&env.run(&["gate", "list", "--json"]));
    listed["gates"].as_array_mut().unwrap().pop().unwrap()
}

/// A session that waits for an approval in the first project: its gate and its id.
fn session_at_gate(env: &TestEnv) -> (String, String) {
    let script = format!("scripted:{}", env.path("user/agent.yaml").display());
    let gate = run_to_gate(
        env,
        &["prompt", "go", "--sandbox", "local", "--model", &script],
    );
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&gate["id"]), text(&gate["origin"]["session"]))
}

fn run_ok(env: &TestEnv, args: &[&str]) {
    let output = env.run(args);
    assert!(output.status.success(), "{args:?}: {output:?}");
}

#[test]
fn approval_is_bound_to_the_directory_it_was_requested_for() {
    for (call, here, there) in [
        (COMMAND, "project/ran.txt", "far/other/ran.txt"),
        (OUTSIDE, "ran.txt", "far/ran.txt"),
        (ITEM, "project/ran.txt", "far/other/ran.txt"),
    ] {
        let env = env_with_two_projects(call);
        let other = env.path("far/other").display().to_string();
        let (first, session) = session_at_gate(&env);
        run_ok(&env, &["gate", "approve", &first]);
        let elsewhere = ["session", "resume", &session, "--project", &other];
        let second = run_to_gate(&env, &elsewhere);
        assert_ne!(second["id"], first.as_str());
        let body = second["body"].as_str().unwrap();
        assert!(body.contains(&other), "{body}");
        for place in [here, there] {
            assert!(!env.path(place).exists(), "{call}: {place}");
        }
        run_ok(&env, &["gate", "approve", second["id"].as_str().unwrap()]);
        run_ok(&env, &elsewhere);
        assert!(env.path(there).exists(), "{call}");
        assert!(!env.path(here).exists(), "{call}");
        run_ok(&env, &["session", "verify", &session]);
    }
}

#[test]
fn approval_is_valid_if_the_session_resumes_from_elsewhere() {
    for (call, here) in [
        (COMMAND, "project/ran.txt"),
        (OUTSIDE, "ran.txt"),
        (ITEM, "project/ran.txt"),
    ] {
        let env = env_with_two_projects(call);
        let (gate, session) = session_at_gate(&env);
        run_ok(&env, &["gate", "approve", &gate]);
        // The same directory through a link.
        std::os::unix::fs::symlink(env.path("project"), env.path("link")).unwrap();
        let link = env.path("link").display().to_string();
        run_ok(&env, &["session", "resume", &session, "--project", &link]);
        assert!(env.path(here).exists(), "{call}");
    }
}

#[test]
fn session_approval_is_bound_to_its_directory() {
    for (call, there) in [
        (COMMAND, "far/other/ran.txt"),
        (OUTSIDE, "far/ran.txt"),
        (ITEM, "far/other/ran.txt"),
    ] {
        let env = env_with_two_projects(call);
        let other = env.path("far/other").display().to_string();
        let (first, session) = session_at_gate(&env);
        run_ok(&env, &["gate", "approve", &first, "--for", "session"]);
        run_ok(&env, &["session", "resume", &session]);
        let args = ["prompt", "again", "--session", &session];
        run_to_gate(&env, &[&args[..], &["--project", &other]].concat());
        assert!(!env.path(there).exists(), "{call}");
    }
}
