//! `rye acp` with the official clients: the TypeScript and Python SDKs, and `acpx`.
//!
//! The SDK clients are scripts in `crates/rye-acp/tests/clients`: each carries out a plan and
//! prints its observations. `cargo xtask test` installs what they need.

use std::process::{Command, Output};

use crate::acp_support::{
    Plan, RawClient, Sdk, call, command, env, new_session, prompt, text, updates, with,
};
use crate::mcp_support::tools_dir;
use crate::support::TestEnv;
use serde_json::{Value, json};

const CAREFUL: &str =
    "{ name: call_tool, args: { tool_id: 'rye:careful', params: {}, summary: be careful } }";

/// Runs a test with both SDKs.
macro_rules! with_both_sdks {
    ($($name:ident),* $(,)?) => {
        mod typescript {
            $(#[test] fn $name() { super::$name(super::Sdk::TypeScript); })*
        }
        mod python {
            $(#[test] fn $name() { super::$name(super::Sdk::Python); })*
        }
    };
}

with_both_sdks!(
    turn_is_streamed_with_its_calls_and_diffs,
    permissions_are_decisions_at_gates,
    cancelled_turn_ends_and_the_next_prompt_works,
    session_is_loaded_with_its_history_after_a_crash,
    permission_that_was_pending_is_asked_again,
);

fn turn_is_streamed_with_its_calls_and_diffs(sdk: Sdk) {
    let env = env("steps:
  - thinking: let me think
    text: I write a file.
    chunk_chars: 4
    tool_calls:
      - { name: plan, args: { steps: [{ text: write, status: in_progress }] } }
      - { name: write, args: { path: a.txt, content: \"one\\ntwo\\n\" } }
      - { name: edit, args: { path: a.txt, old: two, new: three } }
      - { name: bash, args: { command: cat a.txt } }
      - { name: read, args: { path: gone.txt } }
  - text: All done.
");
    let report = Plan::new(&env, &[new_session(&env), prompt("go")]).run(sdk);
    let agent = &report["initialize"]["result"];
    assert_eq!(agent["protocolVersion"], 1);
    assert_eq!(agent["agentInfo"]["name"], "rye");
    assert_eq!(agent["agentCapabilities"]["loadSession"], true);
    assert_eq!(report["exit"], 0);
    let turn = &report["steps"][1];
    assert_eq!(turn["result"]["stopReason"], "end_turn", "{turn:#}");
    assert_eq!(text(turn, "agent_thought_chunk"), "let me think");
    assert_eq!(
        text(turn, "agent_message_chunk"),
        "I write a file.All done."
    );
    let chunks = updates(turn, "agent_message_chunk");
    assert!(chunks.len() > 4, "it is streamed: {chunks:?}");
    // The editor sent the prompt itself.
    assert_eq!(updates(turn, "user_message_chunk"), [] as [&Value; 0]);
    let plan = &updates(turn, "plan")[0]["entries"][0];
    assert_eq!(
        (&plan["content"], &plan["status"]),
        (&json!("write"), &json!("in_progress"))
    );
    let path = env.path("project/a.txt");
    let diff = |old: Option<&str>, new: &str| {
        let mut diff = json!({ "type": "diff", "path": path, "newText": new });
        if let Some(old) = old {
            diff["oldText"] = json!(old);
        }
        json!([diff])
    };
    let write = call(turn, "Write a.txt");
    assert_eq!(write["kind"], "edit");
    assert_eq!(write["status"], "completed");
    assert_eq!(write["locations"][0]["path"], json!(path));
    assert_eq!(write["content"], diff(None, "one\ntwo\n"));
    let edit = call(turn, "Edit a.txt");
    assert_eq!(edit["content"], diff(Some("one\ntwo\n"), "one\nthree\n"));
    let bash = call(turn, "`cat a.txt`");
    assert_eq!(
        (&bash["kind"], &bash["status"]),
        (&json!("execute"), &json!("completed"))
    );
    let output = &bash["content"][0]["content"]["text"];
    assert_eq!(output, "```console\none\nthree\n```");
    let read = call(turn, "Read gone.txt");
    assert_eq!(
        (&read["kind"], &read["status"]),
        (&json!("read"), &json!("failed"))
    );
    assert_eq!(updates(turn, "usage_update").len(), 2);
}

fn permissions_are_decisions_at_gates(sdk: Sdk) {
    let call_twice = format!("  - tool_calls: [{CAREFUL}]\n  - text: called\n").repeat(4);
    let env = env(&format!("steps:\n{call_twice}"));
    let answer = |option: &str| with(prompt("call it"), "answers", json!([option]));
    let steps = [
        new_session(&env),
        answer("deny"),
        answer("approve"),
        answer("approve_session"),
        prompt("again"),
    ];
    let report = Plan::new(&env, &steps).run(sdk);
    let asked = |step: usize| report["steps"][step]["permissions"].as_array().unwrap();
    let request = &asked(1)[0];
    let options = request["options"].as_array().unwrap().iter();
    let options: Vec<_> = options.map(|it| (&it["optionId"], &it["kind"])).collect();
    let expected = [
        ("approve", "allow_once"),
        ("approve_session", "allow_always"),
        ("approve_project", "allow_always"),
        ("deny", "reject_once"),
    ];
    let expected = expected.map(|(id, kind)| (json!(id), json!(kind)));
    assert_eq!(options, expected.each_ref().map(|(id, kind)| (id, kind)));
    assert_eq!(request["toolCall"]["title"], "rye:careful: be careful");
    let body = request["toolCall"]["content"][0]["content"]["text"].as_str();
    assert!(body.unwrap().contains("signed by"), "{request:#}");
    let status = |step: usize| call(&report["steps"][step], "Call rye:careful")["status"].clone();
    assert_eq!(
        [1, 2, 3, 4].map(status),
        ["failed", "completed", "completed", "completed"]
    );
    assert_eq!([1, 2, 3, 4].map(|step| asked(step).len()), [1, 1, 1, 0]);
    assert_eq!(
        env.read("project/careful.txt"),
        "careful\ncareful\ncareful\n"
    );
    // The decisions are signed by the user.
    let session = report["session"].as_str().unwrap();
    let verified = env.run(&["session", "verify", session]);
    assert!(verified.status.success(), "{verified:?}");
}

fn cancelled_turn_ends_and_the_next_prompt_works(sdk: Sdk) {
    let env = env("steps:
  - text: This takes very long, so that there is time to cancel it.
    chunk_chars: 1
    chunk_ms: 300
  - tool_calls: [{ name: bash, args: { command: sleep 600 } }]
  - text: Here I am.
");
    let cancel = |on: &str| with(prompt("go"), "cancelOn", on);
    let steps = [
        new_session(&env),
        cancel("agent_message_chunk"),
        cancel("tool_call_update"),
        prompt("are you there?"),
    ];
    let report = Plan::new(&env, &steps).run(sdk);
    let turn = |step: usize| &report["steps"][step];
    assert_eq!(turn(1)["result"]["stopReason"], "cancelled", "{report:#}");
    assert_eq!(turn(2)["result"]["stopReason"], "cancelled");
    assert_eq!(call(turn(2), "`sleep 600`")["status"], "failed");
    assert_eq!(turn(3)["result"]["stopReason"], "end_turn");
    assert_eq!(text(turn(3), "agent_message_chunk"), "Here I am.");
}

/// The request that loads the session.
fn load(env: &TestEnv) -> Value {
    let params = json!({
        "sessionId": "$session", "cwd": env.path("project"), "mcpServers": [],
    });
    json!({ "method": "session/load", "params": params })
}

fn session_is_loaded_with_its_history_after_a_crash(sdk: Sdk) {
    let env = env("steps:
  - thinking: I think
    text: First
    tool_calls: [{ name: write, args: { path: a.txt, content: one } }]
  - text: answer.
  - text: Second answer.
");
    let steps = [
        new_session(&env),
        prompt("one"),
        json!({ "restart": true }),
        load(&env),
        prompt("two"),
        json!({ "method": "session/list", "params": { "cwd": env.path("project") } }),
    ];
    let report = Plan::new(&env, &steps).run(sdk);
    let loaded = &report["steps"][3];
    assert!(loaded["error"].is_null(), "{loaded:#}");
    assert_eq!(text(loaded, "user_message_chunk"), "one");
    assert_eq!(text(loaded, "agent_thought_chunk"), "I think");
    assert_eq!(text(loaded, "agent_message_chunk"), "Firstanswer.");
    assert_eq!(call(loaded, "Write a.txt")["status"], "completed");
    let turn = &report["steps"][4];
    assert_eq!(text(turn, "agent_message_chunk"), "Second answer.");
    let listed = &report["steps"][5]["result"]["sessions"];
    assert_eq!(listed[0]["sessionId"], report["session"]);
    assert_eq!(listed[0]["title"], "one");
    assert_eq!(listed.as_array().unwrap().len(), 1);
}

fn permission_that_was_pending_is_asked_again(sdk: Sdk) {
    let env = env(&format!(
        "steps:\n  - tool_calls: [{CAREFUL}]\n  - text: called\n  - text: next\n"
    ));
    // The editor dies while the user is asked.
    let first = std::thread::scope(|scope| {
        let mut client = RawClient::start(&env);
        let session = client.new_session(&env);
        client.send_prompt(&session, "call it");
        client.request_of_agent("session/request_permission");
        scope.spawn(move || client.kill()).join().unwrap();
        session
    });
    let steps = [
        with(
            with(load(&env), "answers", json!(["approve"])),
            "awaitsPermission",
            true,
        ),
        prompt("go on"),
    ];
    let plan = Plan::new(&env, &steps).with("session", json!(first));
    let report = plan.run(sdk);
    let loaded = &report["steps"][0];
    assert_eq!(
        loaded["permissions"].as_array().unwrap().len(),
        1,
        "{loaded:#}"
    );
    let request = &loaded["permissions"][0]["toolCall"];
    assert_eq!(request["title"], "rye:careful: be careful");
    // The prompt waits for the turn that was interrupted.
    assert_eq!(report["steps"][1]["result"]["stopReason"], "end_turn");
    assert_eq!(env.read("project/careful.txt"), "careful\n");
}

/// Runs `acpx` once with the agent.
fn acpx(env: &TestEnv, options: &[&str]) -> Output {
    let mut client = Command::new(tools_dir("node").join("bin/node"));
    let variables = env.command();
    let variables = variables
        .get_envs()
        .filter_map(|(name, value)| Some((name, value?)));
    client
        .arg(tools_dir("acpx").join("bin/acpx"))
        .args(options)
        .args(["--format", "quiet", "--agent", &command(env).join(" ")])
        .args(["exec", "call it"])
        .env_clear()
        .envs(variables)
        .current_dir(env.path("project"));
    client.output().unwrap()
}

#[test]
fn acpx_runs_a_turn_and_decides() {
    let env = env(&format!(
        "steps:\n  - text: I call it.\n    tool_calls: [{CAREFUL}]\n  - text: ' Done.'\n"
    ));
    let approved = acpx(&env, &["--approve-all"]);
    assert!(approved.status.success(), "{approved:?}");
    let printed = String::from_utf8_lossy(&approved.stdout).into_owned();
    assert_eq!(printed.trim(), "I call it. Done.");
    assert_eq!(env.read("project/careful.txt"), "careful\n");
    // It exits with 5 after a denial.
    let denied = acpx(&env, &["--deny-all"]);
    assert_eq!(denied.status.code(), Some(5), "{denied:?}");
    assert_eq!(env.read("project/careful.txt"), "careful\n");
}
