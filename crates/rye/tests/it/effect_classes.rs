//! What happens to a call of a signed item whose process was killed: its effect class decides.

use std::process::Command;

use crate::support::{TestEnv, json, kill_at_gate};

const PROMPT: &[&str] = &[
    "prompt",
    "go",
    "--sandbox",
    "local",
    "--model",
    "scripted:agent.yaml",
];
const AGENT: &str = "\
steps:
  - tool_calls: [{ name: call_tool, args: { tool_id: 'rye:work', params: { to: bob }, summary: work } }]
  - text: 'It said: ${last_tool_result}'
";

/// A tool that reports its start to a named pipe and waits for a file before it ends.
fn tool(effect: &str, pipe: &str) -> String {
    format!(
        "version: \"1.0.0\"\ndescription: Works\nrisk_level: low\n{effect}\
         executor_id: rye/core/runtimes/bash/bash\nconfig:\n  \
         command: 'echo ran >> ran.txt; [ -e go ] || {{ echo > {pipe}; sleep 60; }}'\n"
    )
}

fn make_pipe(env: &TestEnv, name: &str) {
    let path = env.path("project").join(name);
    let made = Command::new("mkfifo").arg(path).status();
    assert!(made.unwrap().success());
}

/// A session whose process was killed while the item ran.
fn session_killed_during_item(effect: &str) -> (TestEnv, String) {
    let mut env = TestEnv::new();
    env.set("USER", "ada");
    env.write("project/agent.yaml", AGENT);
    assert!(env.run(&["init"]).status.success());
    env.write("project/.ai/tools/work.yaml", &tool(effect, "begun"));
    let signed = env.run(&["sign", "work"]);
    assert!(signed.status.success(), "{signed:?}");
    make_pipe(&env, "begun");
    let mut child = env.command().args(PROMPT).spawn().unwrap();
    // Blocks until the item runs.
    assert_eq!(env.read("project/begun"), "\n");
    child.kill().unwrap();
    child.wait().unwrap();
    env.write("project/go", "");
    let listed = json(&env.run(&["session", "list", "--json"]));
    let id = listed["sessions"][0]["id"].as_str().unwrap().to_owned();
    (env, id)
}

fn run_count(env: &TestEnv) -> usize {
    env.read("project/ran.txt").lines().count()
}

#[test]
fn interrupted_item_is_handled_by_its_effect_class() {
    for (effect, times) in [
        ("", 1),
        ("effect: at_most_once\n", 1),
        ("effect: idempotent\n", 2),
        ("effect: pure\n", 2),
    ] {
        let (env, id) = session_killed_during_item(effect);
        let output = env.run(&["session", "resume", &id]);
        let reply = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(run_count(&env), times, "{effect}: {output:?}");
        let interrupted = reply.contains("It said: interrupted; it is unknown");
        assert_eq!(interrupted, times == 1, "{reply}");
    }
}

/// Resumes a session and kills it while the item runs.
fn resume_and_kill(env: &TestEnv, id: &str) {
    std::fs::remove_file(env.path("project/go")).unwrap();
    let mut child = env.command();
    let mut child = child.args(["session", "resume", id]).spawn().unwrap();
    assert_eq!(env.read("project/begun"), "\n");
    child.kill().unwrap();
    child.wait().unwrap();
    env.write("project/go", "");
}

#[test]
fn effect_ask_opens_a_gate_after_every_crash() {
    let (env, id) = session_killed_during_item("effect: ask\n");
    let mut asked = Vec::new();
    for times in 1..=2 {
        let resumed = env.command().args(["session", "resume", &id]).spawn();
        kill_at_gate(&env, resumed.unwrap());
        assert_eq!(run_count(&env), times);
        let gates = json(&env.run(&["gate", "list", "--json"]));
        let gate = &gates["gates"][0];
        assert_eq!(gate["title"], "rye:work was interrupted");
        assert_eq!(gate["context"]["tool_id"], "rye:work");
        assert_eq!(gate["context"]["params"]["to"], "bob");
        let body = gate["body"].as_str().unwrap();
        assert!(body.contains("\n│   \"to\": \"bob\"\n"), "{body}");
        let gate = gate["id"].as_str().unwrap().to_owned();
        let answered = env.run(&["gate", "answer", &gate, "--action", "run_again"]);
        assert!(answered.status.success(), "{answered:?}");
        assert!(!asked.contains(&gate), "{gate} was answered before");
        asked.push(gate);
        if times == 1 {
            resume_and_kill(&env, &id);
        }
    }
    let output = env.run(&["session", "resume", &id]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(run_count(&env), 3, "{output:?}");
    let verified = env.run(&["session", "verify", &id]);
    assert!(verified.status.success(), "{verified:?}");
}

#[test]
fn parallel_calls_that_died_in_a_crash_replay_without_differences() {
    let env = TestEnv::new();
    assert!(env.run(&["init"]).status.success());
    let mut calls = Vec::new();
    for (name, effect) in [("once", ""), ("again", "effect: idempotent\n")] {
        make_pipe(&env, name);
        env.write(
            &format!("project/.ai/tools/{name}.yaml"),
            &tool(effect, name),
        );
        let signed = env.run(&["sign", name]);
        assert!(signed.status.success(), "{signed:?}");
        let args = format!("{{ tool_id: 'rye:{name}', summary: work }}");
        calls.push(format!("{{ name: call_tool, args: {args} }}"));
    }
    let calls = calls.join(", ");
    let script = format!("steps:\n  - tool_calls: [{calls}]\n  - text: done\n");
    env.write("project/agent.yaml", &script);
    let mut child = env.command().args(PROMPT).spawn().unwrap();
    // Blocks until both run.
    assert_eq!(env.read("project/once"), "\n");
    assert_eq!(env.read("project/again"), "\n");
    child.kill().unwrap();
    child.wait().unwrap();
    env.write("project/go", "");
    let listed = json(&env.run(&["session", "list", "--json"]));
    let id = listed["sessions"][0]["id"].as_str().unwrap();
    let resumed = env.run(&["session", "resume", id]);
    assert!(resumed.status.success(), "{resumed:?}");
    assert_eq!(run_count(&env), 3, "{resumed:?}");
    let replay = json(&env.run(&["replay", id, "--json"]));
    assert_eq!(replay["differences"], serde_json::json!([]), "{replay}");
}

/// The command's supervisor is killed, but not the agent: the command may have had effects, and
/// its outcome is unknown.
#[test]
fn call_with_a_killed_supervisor_counts_as_interrupted() {
    let cut_off = "echo paid >> paid.txt; kill -9 $PPID; sleep 60";
    let own = format!("{{ name: bash, args: {{ command: '{cut_off}' }} }}");
    let item = "{ name: call_tool, args: { tool_id: 'rye:pay', summary: pay } }";
    for call in [&own, item] {
        let env = TestEnv::new();
        assert!(env.run(&["init"]).status.success());
        let tool = format!(
            "version: \"1.0.0\"\ndescription: Pays\nrisk_level: low\n\
             executor_id: rye/core/runtimes/bash/bash\nconfig:\n  command: '{cut_off}'\n"
        );
        env.write("project/.ai/tools/pay.yaml", &tool);
        assert!(env.run(&["sign", "pay"]).status.success());
        let script =
            format!("steps:\n  - tool_calls: [{call}]\n  - text: '${{last_tool_result}}'\n");
        env.write("project/agent.yaml", &script);
        let output = env.run(&[PROMPT, &["--yes"]].concat());
        let reply = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            reply.contains("interrupted; it is unknown"),
            "{call}: {output:?}"
        );
        assert_eq!(env.read("project/paid.txt"), "paid\n");
        let listed = json(&env.run(&["session", "list", "--json"]));
        let id = listed["sessions"][0]["id"].as_str().unwrap();
        let replayed = env.run(&["replay", id]);
        assert!(replayed.status.success(), "{call}: {replayed:?}");
    }
}

#[test]
fn effect_ask_offers_three_answers() {
    for (answer, times) in [("skip", 1), ("run_again", 2)] {
        let (env, id) = session_killed_during_item("effect: ask\n");
        let mut resumed = env.command();
        let resumed = resumed.args(["session", "resume", &id]).spawn().unwrap();
        kill_at_gate(&env, resumed);
        assert_eq!(run_count(&env), 1, "the gate is still pending");
        let gates = json(&env.run(&["gate", "list", "--json"]));
        let gate = gates["gates"][0]["id"].as_str().unwrap();
        let answered = env.run(&["gate", "answer", gate, "--action", answer]);
        assert!(answered.status.success(), "{answered:?}");
        let output = env.run(&["session", "resume", &id]);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(run_count(&env), times, "{answer}: {output:?}");
    }
}
