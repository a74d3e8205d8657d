//! Calls that need approval, from a client without forms.

use crate::mcp_support::stdio::Client;
use crate::mcp_support::{env, tool};
use crate::support::{TestEnv, assert_transcript, transcript_entry};
use serde_json::{Value, json};

/// Writes a tool that counts its runs and needs approval.
fn write_tool_with_approval(env: &TestEnv, command: &str) {
    tool(env, "count", command);
    let text = env.read("project/.ai/tools/count.yaml");
    let text = format!("requires_approval: true\n{text}");
    env.write("project/.ai/tools/count.yaml", &text);
    let signed = env.run(&["sign", "count"]);
    assert!(signed.status.success(), "{signed:?}");
}

fn env_with_tool() -> TestEnv {
    let env = env();
    write_tool_with_approval(&env, "echo ran >>count");
    env
}

fn call(client: &mut Client, word: &str) -> Value {
    let arguments =
        json!({ "item_type": "tool", "item_id": "count", "parameters": { "word": word } });
    let params = json!({ "name": "execute", "arguments": arguments });
    client.request_and_wait("tools/call", &params)["result"].clone()
}

/// The id of the gate that a refused call names.
fn gate_id(result: &Value) -> String {
    assert_eq!(result["isError"], true, "{result}");
    let error = &result["structuredContent"]["error"];
    assert_eq!(error["code"], "approval_required", "{result}");
    let gate = error["gate"].as_str().unwrap().to_owned();
    let text = result["content"][0]["text"].as_str().unwrap();
    let short = rye_engine::protocol::GateId::from(gate.clone()).short();
    assert!(
        text.contains(&format!("rye gate approve {short}")),
        "{text}"
    );
    gate
}

fn run_count(env: &TestEnv) -> usize {
    let reply = std::fs::read_to_string(env.path("project/count"));
    reply.map_or(0, |reply| reply.lines().count())
}

fn gates(env: &TestEnv) -> Vec<Value> {
    let listed = crate::support::json(&env.run(&["--json", "gate", "list"]));
    listed["gates"].as_array().unwrap().clone()
}

fn approve(env: &TestEnv, gate: &str) {
    let approved = env.run(&["gate", "approve", gate]);
    assert!(approved.status.success(), "{approved:?}");
}

#[test]
fn approval_from_another_process_runs_the_same_call_once() {
    let env = env_with_tool();
    let mut client = Client::connect(&env);
    let waits = gate_id(&call(&mut client, "one"));
    assert_eq!(gate_id(&call(&mut client, "one")), waits);
    let listed = gates(&env);
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0]["id"], waits.as_str());
    assert_eq!(listed[0]["context"]["params"]["word"], "one");
    approve(&env, &waits);
    assert!(gates(&env).is_empty());
    assert_eq!(run_count(&env), 0);
    // Another server process of the same user works too.
    drop(client);
    let mut client = Client::connect(&env);
    let result = call(&mut client, "one");
    assert_eq!(result["isError"], false, "{result}");
    assert_eq!(run_count(&env), 1);
    gate_id(&call(&mut client, "one"));
    assert_eq!(run_count(&env), 1);
}

#[test]
fn changed_parameters_or_bytes_need_another_approval() {
    let env = env_with_tool();
    let mut client = Client::connect(&env);
    let first = gate_id(&call(&mut client, "one"));
    approve(&env, &first);
    let second = gate_id(&call(&mut client, "two"));
    assert_ne!(second, first);
    let body = |gate: &str| {
        let listed = gates(&env);
        let found = listed.iter().find(|it| it["id"] == gate).cloned();
        found.unwrap()["body"].as_str().unwrap().to_owned()
    };
    let printed = body(&second);
    assert!(
        printed.contains("- parameter `word` changed from \"one\" to \"two\""),
        "{printed}"
    );
    write_tool_with_approval(&env, "echo others >>count");
    let third = gate_id(&call(&mut client, "one"));
    let printed = body(&third);
    assert!(
        printed.starts_with("Changed since the approval:\n- count changed from "),
        "{printed}"
    );
    assert_eq!(run_count(&env), 0);
    approve(&env, &third);
    assert_eq!(call(&mut client, "one")["isError"], false);
    assert_eq!(run_count(&env), 1);
}

#[test]
fn order_of_parameters_does_not_matter() {
    let env = env_with_tool();
    let mut client = Client::connect(&env);
    let mut call = |parameters: Value| {
        let arguments =
            json!({ "item_type": "tool", "item_id": "count", "parameters": parameters });
        client.call("execute", &arguments, |method| panic!("asks {method}"))
    };
    let waits = gate_id(&call(json!({ "a": 1, "b": { "c": 1, "d": 2 } })));
    let reordered = json!({ "b": { "d": 2, "c": 1 }, "a": 1 });
    assert_eq!(gate_id(&call(reordered.clone())), waits);
    approve(&env, &waits);
    assert_eq!(call(reordered)["isError"], false);
    assert_eq!(run_count(&env), 1);
}

#[test]
fn approval_covers_one_of_several_concurrent_calls() {
    let env = env_with_tool();
    let mut client = Client::connect(&env);
    let waits = gate_id(&call(&mut client, "one"));
    approve(&env, &waits);
    let arguments =
        json!({ "item_type": "tool", "item_id": "count", "parameters": { "word": "one" } });
    let params = json!({ "name": "execute", "arguments": arguments });
    for _ in 0..20 {
        client.request("tools/call", &params);
    }
    let mut ran = 0;
    for _ in 0..20 {
        let answer = client.next().unwrap();
        if answer["result"]["isError"] == false {
            ran += 1;
        }
    }
    assert_eq!((ran, run_count(&env)), (1, 1));
}

#[test]
fn gate_of_another_project_names_it() {
    let env = env_with_tool();
    let mut client = Client::connect(&env);
    gate_id(&call(&mut client, "one"));
    let project = env.path("project");
    let here = String::from_utf8(env.run(&["gate", "list"]).stdout).unwrap();
    let line = format!("\n  in {}\n", project.display());
    assert!(!here.contains(&line), "{here}");
    let mut elsewhere = env.command();
    elsewhere.current_dir(env.path("elsewhere"));
    let output = elsewhere.args(["gate", "list"]).output().unwrap();
    let there = String::from_utf8(output.stdout).unwrap();
    assert!(there.contains(&line), "{there}");
}

#[test]
fn gate_is_shown_and_answered() {
    let env = env_with_tool();
    let mut client = Client::connect(&env);
    let waits = gate_id(&call(&mut client, "one"));
    let mut seen = transcript_entry("rye gate list", &env.run(&["gate", "list"]));
    let calls = [
        &["gate", "approve", "--for", "project", &waits][..],
        &["gate", "answer", "--action", "maybe", &waits],
        &["gate", "deny", &waits],
        &["gate", "approve", &waits],
    ];
    for args in calls {
        seen += &transcript_entry(&format!("rye {}", args.join(" ")), &env.run(args));
    }
    let declined = call(&mut client, "one");
    let error = &declined["structuredContent"]["error"];
    assert_eq!(error["code"], "approval_declined", "{declined}");
    seen += &transcript_entry(
        &format!("rye gate deny {waits}"),
        &env.run(&["gate", "deny", &waits]),
    );
    assert_eq!(run_count(&env), 0);
    assert_transcript!(seen);
}

#[test]
fn result_of_an_approved_call_is_in_its_session() {
    let env = env();
    for (command, word, status) in [("echo told", "one", "success"), ("exit 3", "two", "error")] {
        write_tool_with_approval(&env, command);
        let mut client = Client::connect(&env);
        let gate = gate_id(&call(&mut client, word));
        approve(&env, &gate);
        call(&mut client, word);
        let session = gate.trim_start_matches("gate:");
        let shown = env.run(&["--json", "session", "show", session]);
        let shown = crate::support::json(&shown).to_string();
        assert!(shown.contains("tool_result"), "{shown}");
        assert!(
            shown.contains(&format!("\"status\":\"{status}\"")),
            "{shown}"
        );
        assert_eq!(shown.contains("told"), status == "success", "{shown}");
        let verified = env.run(&["session", "verify", session]);
        assert!(verified.status.success(), "{verified:?}");
    }
}
