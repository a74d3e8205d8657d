//! What was approved in one folder and would be done in another: it is asked about again.

use std::fs;

use crate::support::{TestEnv, json, kill_at_gate};
use serde_json::Value;

const COMMAND: &str = "{ name: bash, args: { command: 'pwd >> ran.txt' } }";
const OUTSIDE: &str = "{ name: write, args: { path: ../ran.txt, content: ran } }";
const ITEM: &str = "{ name: call_tool, args: { tool_id: 'rye:work', summary: work } }";
const TOOL: &str = "version: \"1.0.0\"\ndescription: Works\nrisk_level: high\n\
    executor_id: rye/core/runtimes/bash/bash\nconfig:\n  command: 'pwd >> ran.txt'\n";

/// Two projects, each in a folder of its own, and an agent that wants the same twice.
fn ready(call: &str) -> TestEnv {
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

/// Runs `rye` until it waits at a gate, and gives that.
fn gate(env: &TestEnv, args: &[&str]) -> Value {
    kill_at_gate(env, env.command().args(args).spawn().unwrap());
    let mut listed = json(&env.run(&["gate", "list", "--json"]));
    listed["gates"].as_array_mut().unwrap().pop().unwrap()
}

/// A session that waits for an approval in the first project.
fn asked(env: &TestEnv) -> (String, String) {
    let script = format!("scripted:{}", env.path("user/agent.yaml").display());
    let gate = gate(
        env,
        &["prompt", "go", "--sandbox", "local", "--model", &script],
    );
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&gate["id"]), text(&gate["origin"]["session"]))
}

fn done(env: &TestEnv, args: &[&str]) {
    let output = env.run(args);
    assert!(output.status.success(), "{args:?}: {output:?}");
}

#[test]
fn an_approval_holds_in_the_folder_in_which_it_was_asked_for() {
    for (call, here, there) in [
        (COMMAND, "project/ran.txt", "far/other/ran.txt"),
        (OUTSIDE, "ran.txt", "far/ran.txt"),
        (ITEM, "project/ran.txt", "far/other/ran.txt"),
    ] {
        let env = ready(call);
        let other = env.path("far/other").display().to_string();
        let (first, session) = asked(&env);
        done(&env, &["gate", "approve", &first]);
        let elsewhere = ["session", "resume", &session, "--project", &other];
        let second = gate(&env, &elsewhere);
        assert_ne!(second["id"], first.as_str());
        let body = second["body"].as_str().unwrap();
        assert!(body.contains(&other), "{body}");
        for place in [here, there] {
            assert!(!env.path(place).exists(), "{call}: {place}");
        }
        done(&env, &["gate", "approve", second["id"].as_str().unwrap()]);
        done(&env, &elsewhere);
        assert!(env.path(there).exists(), "{call}");
        assert!(!env.path(here).exists(), "{call}");
        done(&env, &["session", "verify", &session]);
    }
}

#[test]
fn an_approval_holds_in_its_folder_from_wherever_the_session_goes_on() {
    for (call, here) in [
        (COMMAND, "project/ran.txt"),
        (OUTSIDE, "ran.txt"),
        (ITEM, "project/ran.txt"),
    ] {
        let env = ready(call);
        let (gate, session) = asked(&env);
        done(&env, &["gate", "approve", &gate]);
        // The same folder by another name.
        std::os::unix::fs::symlink(env.path("project"), env.path("link")).unwrap();
        let link = env.path("link").display().to_string();
        done(&env, &["session", "resume", &session, "--project", &link]);
        assert!(env.path(here).exists(), "{call}");
    }
}

#[test]
fn an_approval_for_the_session_holds_in_its_folder() {
    for (call, there) in [
        (COMMAND, "far/other/ran.txt"),
        (OUTSIDE, "far/ran.txt"),
        (ITEM, "far/other/ran.txt"),
    ] {
        let env = ready(call);
        let other = env.path("far/other").display().to_string();
        let (first, session) = asked(&env);
        done(&env, &["gate", "approve", &first, "--for", "session"]);
        done(&env, &["session", "resume", &session]);
        let args = ["prompt", "again", "--session", &session];
        gate(&env, &[&args[..], &["--project", &other]].concat());
        assert!(!env.path(there).exists(), "{call}");
    }
}
