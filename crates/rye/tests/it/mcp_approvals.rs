//! What an MCP client can't do without approval: run its own code, in any way.

use std::os::unix::fs::symlink;

use crate::mcp_support::stdio::Client;
use crate::mcp_support::{env, tool};
use crate::support::TestEnv;
use rye_engine::protocol::GateId;
use serde_json::{Value, json};

const CLIENT_SCRIPT: &str = "#!/bin/bash\n# executor_id: rye/core/runtimes/bash/bash\n\
                   # version: \"1.0.0\"\ntouch ran\n";

fn call(client: &mut Client, tool: &str, arguments: &Value) -> Value {
    let params = json!({ "name": tool, "arguments": arguments });
    client.request_and_wait("tools/call", &params)["result"].clone()
}

fn execute(client: &mut Client, item: &str, parameters: &Value) -> Value {
    let arguments = json!({ "item_type": "tool", "item_id": item, "parameters": parameters });
    call(client, "execute", &arguments)
}

fn write(client: &mut Client, path: &str, content: &str) -> Value {
    let parameters = json!({ "path": path, "content": content });
    execute(client, "rye/file-system/write", &parameters)
}

/// The id of the gate at which a call waits.
fn gate_id(result: &Value) -> String {
    assert_eq!(result["isError"], true, "{result}");
    let error = &result["structuredContent"]["error"];
    assert_eq!(error["code"], "approval_required", "{result}");
    error["gate"].as_str().unwrap().to_owned()
}

fn assert_success(result: &Value) {
    assert_eq!(result["isError"], false, "{result}");
}

fn approve(env: &TestEnv, gate: &str) {
    let approved = env.run(&["gate", "approve", gate]);
    assert!(approved.status.success(), "{approved:?}");
}

/// The text of a gate.
fn gate_body(env: &TestEnv, gate: &str) -> String {
    let listed = crate::support::json(&env.run(&["--json", "gate", "list"]));
    let gates = listed["gates"].as_array().unwrap().iter();
    let mut gates = gates.filter(|it| it["id"] == gate);
    gates.next().unwrap()["body"].as_str().unwrap().to_owned()
}

#[test]
fn background_graph_runs_nothing_that_needs_approval() {
    let env = env();
    let graph = "version: \"1.0.0\"\ntool_type: graph\n\
        executor_id: rye/core/runtimes/state-graph/runtime\n\
        permissions: [\"rye.execute.tool.*\"]\n\
        config:\n  start: go\n  nodes:\n    go:\n      action: { primary: execute, \
        item_type: tool, item_id: rye/bash/bash, params: { command: touch ran } }\n";
    env.write("project/.ai/tools/flows/go.yaml", graph);
    assert!(env.run(&["sign", "flows/go"]).status.success());
    let mut client = Client::connect(&env);
    let arguments = json!({ "item_type": "tool", "item_id": "flows/go", "async": true });
    let started = call(&mut client, "execute", &arguments);
    assert_success(&started);
    let id = started["structuredContent"]["run"]["id"].as_str().unwrap();
    assert!(env.run(&["run", "tail", "--follow", id]).status.success());
    let result = crate::support::json(&env.run(&["run", "status", "--json", id]));
    assert_eq!(result["run"]["state"], "failed", "{result}");
    let message = result["graph_error"]["message"].as_str().unwrap();
    assert!(message.contains("rye/bash/bash"), "{message}");
    assert!(!env.path("project/ran").exists());
    // A person's own call runs with a warning.
    let output = env.run(&["execute", "flows/go"]);
    assert!(output.status.success(), "{output:?}");
    assert!(env.path("project/ran").exists());
}

#[test]
fn calling_a_runtime_needs_approval() {
    let env = env();
    let mut client = Client::connect(&env);
    let parameters = json!({ "command": "touch ran" });
    let runtime = "rye/core/runtimes/bash/bash";
    let waits = gate_id(&execute(&mut client, runtime, &parameters));
    let printed = gate_body(&env, &waits);
    assert!(
        printed.contains("reason: its parameters contain code to run"),
        "{printed}"
    );
    let arguments = json!({
        "item_type": "tool", "item_id": runtime, "parameters": parameters, "async": true,
    });
    let refused = call(&mut client, "execute", &arguments);
    let error = &refused["structuredContent"]["error"];
    assert_eq!(error["code"], "approval_required", "{refused}");
    assert!(!env.path("project/ran").exists());
    approve(&env, &waits);
    assert_success(&execute(&mut client, runtime, &parameters));
    assert!(env.path("project/ran").exists());
}

#[test]
fn unverified_item_in_development_mode_needs_approval() {
    let mut env = env();
    env.set("RYE_DEV_MODE", "1");
    tool(&env, "draft", "touch ran");
    let mut client = Client::connect(&env);
    let waits = gate_id(&execute(&mut client, "draft", &json!({})));
    let printed = gate_body(&env, &waits);
    assert!(
        printed.contains("unverified files, which RYE_DEV_MODE accepts"),
        "{printed}"
    );
    let arguments = json!({ "item_type": "tool", "item_id": "draft", "async": true });
    let refused = call(&mut client, "execute", &arguments);
    let error = &refused["structuredContent"]["error"];
    assert_eq!(error["code"], "approval_required", "{refused}");
    assert!(!env.path("project/ran").exists());
    approve(&env, &waits);
    assert_success(&execute(&mut client, "draft", &json!({})));
    assert!(env.path("project/ran").exists());
    // A signed item needs no approval.
    assert_success(&execute(&mut client, "greet", &json!({})));
}

#[test]
fn writing_an_item_needs_approval() {
    let env = env();
    symlink(".ai", env.path("project/linked")).unwrap();
    std::fs::create_dir(env.path("project/.git")).unwrap();
    let mut client = Client::connect(&env);
    assert_success(&write(&mut client, "src/own.sh", CLIENT_SCRIPT));
    for path in [
        ".ai/tools/own.sh",
        "src/../.ai/tools/own.sh",
        "linked/tools/own.sh",
        ".git/hooks/pre-commit",
    ] {
        gate_id(&write(&mut client, path, CLIENT_SCRIPT));
        assert!(!env.path("project").join(path).exists(), "{path}");
    }
    let edit = json!({ "path": "linked/tools/greet.yaml", "old": "hello", "new": "bye" });
    gate_id(&execute(&mut client, "rye/file-system/edit", &edit));
    let waits = gate_id(&write(&mut client, ".ai/tools/own.sh", CLIENT_SCRIPT));
    let printed = gate_body(&env, &waits);
    assert!(
        printed.contains("reason: it writes to .ai/tools/own.sh: "),
        "{printed}"
    );
    approve(&env, &waits);
    assert_success(&write(&mut client, ".ai/tools/own.sh", CLIENT_SCRIPT));
    assert_eq!(env.read("project/.ai/tools/own.sh"), CLIENT_SCRIPT);
}

#[test]
fn writing_outside_of_a_project_needs_approval() {
    let env = env();
    for folder in ["elsewhere", "user"] {
        let mut client = Client::start_in(&env, folder, &[]);
        client.initialize(&json!({}));
        let arguments = json!({
            "item_type": "tool", "item_id": "rye/file-system/write",
            "parameters": { "path": "profile", "content": "touch ran" },
        });
        gate_id(&call(&mut client, "execute", &arguments));
        assert!(!env.path(folder).join("profile").exists(), "{folder}");
    }
}

#[test]
fn signing_needs_approval_of_the_shown_content() {
    let env = env();
    env.write("project/.ai/tools/own.sh", CLIENT_SCRIPT);
    let mut client = Client::connect(&env);
    let own = json!({ "item_type": "tool", "item_id": "own" });
    let waits = gate_id(&call(&mut client, "sign", &own));
    let printed = gate_body(&env, &waits);
    for part in ["Sign tool:own?", ".ai/tools/own.sh", "touch ran", "hash: "] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    let listed = String::from_utf8(env.run(&["gate", "list"]).stdout).unwrap();
    let short = GateId::from(waits.clone()).short();
    let title = format!("{short}  Sign tool:own for an MCP client?\n");
    assert!(listed.starts_with(&title), "{listed}");
    assert_eq!(env.read("project/.ai/tools/own.sh"), CLIENT_SCRIPT);
    approve(&env, &waits);
    // Exactly the shown content is signed.
    let other = CLIENT_SCRIPT.replace("touch ran", "touch other");
    env.write("project/.ai/tools/own.sh", &other);
    let again = gate_id(&call(&mut client, "sign", &own));
    assert_ne!(again, waits);
    let printed = gate_body(&env, &again);
    assert!(
        printed.starts_with("Changed since the approval:\n- tool:own changed from "),
        "{printed}"
    );
    approve(&env, &again);
    assert_success(&call(&mut client, "sign", &own));
    assert_success(&execute(&mut client, "own", &json!({})));
    assert!(env.path("project/other").exists());
    // A signed item is not signed again.
    let unchanged = call(&mut client, "sign", &own);
    assert_eq!(
        unchanged["structuredContent"]["counts"]["unchanged"], 1,
        "{unchanged}"
    );
}

#[test]
fn only_shown_items_are_signed() {
    let env = env();
    tool(&env, "many/one", "echo one");
    tool(&env, "many/two", "echo two");
    let mut client = Client::connect(&env);
    let many = json!({ "item_type": "tool", "item_id": "many/**" });
    let waits = gate_id(&call(&mut client, "sign", &many));
    let printed = gate_body(&env, &waits);
    assert!(
        printed.contains("echo one") && printed.contains("echo two"),
        "{printed}"
    );
    approve(&env, &waits);
    tool(&env, "many/three", "echo three");
    gate_id(&call(&mut client, "sign", &many));
    assert!(
        !env.read("project/.ai/tools/many/one.yaml")
            .contains("rye:signed")
    );
}

/// A tool with a high risk, and a graph that calls it.
fn write_risky_tool(env: &TestEnv) {
    tool(env, "risky", "touch ran");
    let risky = env.read("project/.ai/tools/risky.yaml");
    let risky = format!("risk_level: high\n{risky}");
    env.write("project/.ai/tools/risky.yaml", &risky);
    let graph = "version: \"1.0.0\"\ntool_type: graph\n\
        executor_id: rye/core/runtimes/state-graph/runtime\n\
        permissions: [\"rye.execute.tool.*\"]\n\
        config:\n  start: go\n  nodes:\n    go:\n      action: { primary: execute, \
        item_type: tool, item_id: risky }\n";
    env.write("project/.ai/tools/flows/risky.yaml", graph);
    let signed = env.run(&["sign", "risky", "flows/risky"]);
    assert!(signed.status.success(), "{signed:?}");
}

#[test]
fn policy_decides_about_calls_of_clients_and_their_graphs() {
    let env = env();
    write_risky_tool(&env);
    let mut client = Client::connect(&env);
    for (rules, expected) in [
        ("[]", Some("approval_required")),
        (
            "[{ tool: 'rye:risky', action: ask }]",
            Some("approval_required"),
        ),
        ("[{ tool: 'rye:risky', action: allow }]", None),
        ("[{ risk: [high], space: [project], action: allow }]", None),
        (
            "[{ risk: [low], action: allow }]",
            Some("approval_required"),
        ),
        ("[{ space: [project], action: deny }]", Some("denied")),
        (
            "[{ tool: 'rye:ris*', action: deny }, { action: allow }]",
            Some("denied"),
        ),
    ] {
        env.write(
            "user/.ai/config/agent/approvals.yaml",
            &format!("rules: {rules}\n"),
        );
        let ran = || std::fs::remove_file(env.path("project/ran")).is_ok();
        let called = execute(&mut client, "risky", &json!({}));
        let error = &called["structuredContent"]["error"]["code"];
        assert_eq!(error.as_str(), expected, "{rules}: {called}");
        assert_eq!(ran(), expected.is_none(), "{rules}");
        // Rules for the graph itself are the same, except that it states no risk.
        if !rules.contains("space: [project], action: deny") {
            let called = execute(&mut client, "flows/risky", &json!({}));
            assert_eq!(called["isError"], expected.is_some(), "{rules}: {called}");
            assert_eq!(ran(), expected.is_none(), "{rules}");
        }
        let arguments = json!({ "item_type": "tool", "item_id": "risky", "async": true });
        if expected.is_some() {
            let refused = call(&mut client, "execute", &arguments);
            let error = &refused["structuredContent"]["error"]["code"];
            assert_eq!(error.as_str(), expected, "{rules}: {refused}");
        }
    }
}

#[test]
fn no_rule_allows_what_clients_are_always_asked_about() {
    let env = env();
    let rules = "rules: [{ action: allow }]\n";
    env.write("user/.ai/config/agent/approvals.yaml", rules);
    let mut client = Client::connect(&env);
    // A rule allows a tool that requires approval.
    assert_success(&execute(&mut client, "careful", &json!({})));
    gate_id(&write(&mut client, ".ai/tools/own.sh", CLIENT_SCRIPT));
    let code = json!({ "command": "touch ran" });
    gate_id(&execute(&mut client, "rye/core/runtimes/bash/bash", &code));
    let fresh = json!({ "item_type": "tool", "item_id": "fresh" });
    gate_id(&call(&mut client, "sign", &fresh));
    let copy = json!({ "item_type": "tool", "item_id": "greet", "destination": "user" });
    gate_id(&call(&mut client, "load", &copy));
}

#[test]
fn invalid_policy_stops_calls_of_clients() {
    let env = env();
    let mut client = Client::connect(&env);
    assert_success(&execute(&mut client, "greet", &json!({})));
    env.write("user/.ai/config/agent/approvals.yaml", "verdict: 1\n");
    let refused = execute(&mut client, "greet", &json!({}));
    let error = &refused["structuredContent"]["error"];
    assert_eq!(error["code"], "invalid_config", "{refused}");
}
