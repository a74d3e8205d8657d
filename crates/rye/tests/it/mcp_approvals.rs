//! What a client cannot do without a person: run code of its own, by any way.

use std::os::unix::fs::symlink;

use crate::mcp_support::stdio::Client;
use crate::mcp_support::{appears, env, tool};
use crate::support::TestEnv;
use serde_json::{Value, json};

const OWN: &str = "#!/bin/bash\n# executor_id: rye/core/runtimes/bash/bash\n\
                   # version: \"1.0.0\"\ntouch ran\n";

fn call(client: &mut Client, tool: &str, arguments: &Value) -> Value {
    let params = json!({ "name": tool, "arguments": arguments });
    client.ask("tools/call", &params)["result"].clone()
}

fn execute(client: &mut Client, item: &str, parameters: &Value) -> Value {
    let arguments = json!({ "item_type": "tool", "item_id": item, "parameters": parameters });
    call(client, "execute", &arguments)
}

fn write(client: &mut Client, path: &str, content: &str) -> Value {
    let parameters = json!({ "path": path, "content": content });
    execute(client, "rye/file-system/write", &parameters)
}

/// The gate at which a call waits.
fn gate(result: &Value) -> String {
    assert_eq!(result["isError"], true, "{result}");
    let error = &result["structuredContent"]["error"];
    assert_eq!(error["code"], "approval_required", "{result}");
    error["gate"].as_str().unwrap().to_owned()
}

fn is_good(result: &Value) {
    assert_eq!(result["isError"], false, "{result}");
}

fn approve(env: &TestEnv, gate: &str) {
    let approved = env.run(&["gate", "approve", gate]);
    assert!(approved.status.success(), "{approved:?}");
}

/// What a person is shown of a gate.
fn body(env: &TestEnv, gate: &str) -> String {
    let listed = crate::support::json(&env.run(&["--json", "gate", "list"]));
    let gates = listed["gates"].as_array().unwrap().iter();
    let mut gates = gates.filter(|it| it["id"] == gate);
    gates.next().unwrap()["body"].as_str().unwrap().to_owned()
}

#[test]
fn a_graph_in_the_background_runs_nothing_that_needs_an_approval() {
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
    is_good(&started);
    let id = started["structuredContent"]["run"]["id"].as_str().unwrap();
    let runs = env.path("user/.local/state/rye/runs");
    let result = appears(&runs.join(id).join("result.json"));
    let result: Value = serde_json::from_str(&result).unwrap();
    assert_eq!(result["envelope"]["status"], "error", "{result}");
    let message = result["envelope"]["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("rye/bash/bash needs a person's approval"),
        "{message}"
    );
    assert!(!env.path("project/ran").exists());
    // A person's own call is another matter.
    let output = env.run(&["execute", "flows/go"]);
    assert!(output.status.success(), "{output:?}");
    assert!(env.path("project/ran").exists());
}

#[test]
fn a_runtime_is_no_tool_by_which_a_client_runs_what_it_likes() {
    let env = env();
    let mut client = Client::connect(&env);
    let parameters = json!({ "command": "touch ran" });
    let runtime = "rye/core/runtimes/bash/bash";
    let waits = gate(&execute(&mut client, runtime, &parameters));
    let told = body(&env, &waits);
    assert!(told.contains("its parameters say what runs"), "{told}");
    let arguments = json!({
        "item_type": "tool", "item_id": runtime, "parameters": parameters, "async": true,
    });
    let refused = call(&mut client, "execute", &arguments);
    let error = &refused["structuredContent"]["error"];
    assert_eq!(error["code"], "approval_required", "{refused}");
    assert!(!env.path("project/ran").exists());
    approve(&env, &waits);
    is_good(&execute(&mut client, runtime, &parameters));
    assert!(env.path("project/ran").exists());
}

#[test]
fn what_passes_unverified_is_asked_about() {
    let mut env = env();
    env.set("RYE_DEV_MODE", "1");
    tool(&env, "draft", "touch ran");
    let mut client = Client::connect(&env);
    let waits = gate(&execute(&mut client, "draft", &json!({})));
    let told = body(&env, &waits);
    assert!(told.contains("because of RYE_DEV_MODE"), "{told}");
    let arguments = json!({ "item_type": "tool", "item_id": "draft", "async": true });
    let refused = call(&mut client, "execute", &arguments);
    let error = &refused["structuredContent"]["error"];
    assert_eq!(error["code"], "approval_required", "{refused}");
    assert!(!env.path("project/ran").exists());
    approve(&env, &waits);
    is_good(&execute(&mut client, "draft", &json!({})));
    assert!(env.path("project/ran").exists());
    // What was signed is not asked about.
    is_good(&execute(&mut client, "greet", &json!({})));
}

#[test]
fn a_file_of_the_items_is_written_only_if_a_person_agrees() {
    let env = env();
    symlink(".ai", env.path("project/linked")).unwrap();
    std::fs::create_dir(env.path("project/.git")).unwrap();
    let mut client = Client::connect(&env);
    is_good(&write(&mut client, "src/own.sh", OWN));
    for path in [
        ".ai/tools/own.sh",
        "src/../.ai/tools/own.sh",
        "linked/tools/own.sh",
        ".git/hooks/pre-commit",
    ] {
        gate(&write(&mut client, path, OWN));
        assert!(!env.path("project").join(path).exists(), "{path}");
    }
    let edit = json!({ "path": "linked/tools/greet.yaml", "old": "hello", "new": "bye" });
    gate(&execute(&mut client, "rye/file-system/edit", &edit));
    let waits = gate(&write(&mut client, ".ai/tools/own.sh", OWN));
    let told = body(&env, &waits);
    assert!(told.contains("it would change .ai/tools/own.sh"), "{told}");
    approve(&env, &waits);
    is_good(&write(&mut client, ".ai/tools/own.sh", OWN));
    assert_eq!(env.read("project/.ai/tools/own.sh"), OWN);
}

#[test]
fn a_folder_that_is_no_project_is_not_written_to_without_asking() {
    let env = env();
    for folder in ["elsewhere", "user"] {
        let mut client = Client::start_in(&env, folder, &[]);
        client.initialize(&json!({}));
        let arguments = json!({
            "item_type": "tool", "item_id": "rye/file-system/write",
            "parameters": { "path": "profile", "content": "touch ran" },
        });
        gate(&call(&mut client, "execute", &arguments));
        assert!(!env.path(folder).join("profile").exists(), "{folder}");
    }
}

#[test]
fn a_signature_is_given_by_a_person_who_saw_what_is_signed() {
    let env = env();
    env.write("project/.ai/tools/own.sh", OWN);
    let mut client = Client::connect(&env);
    let own = json!({ "item_type": "tool", "item_id": "own" });
    let waits = gate(&call(&mut client, "sign", &own));
    let told = body(&env, &waits);
    for part in ["Sign tool:own?", ".ai/tools/own.sh", "touch ran", "hash: "] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let listed = String::from_utf8(env.run(&["gate", "list"]).stdout).unwrap();
    assert!(
        listed.starts_with("Sign tool:own for an MCP client?\n"),
        "{listed}"
    );
    assert_eq!(env.read("project/.ai/tools/own.sh"), OWN);
    approve(&env, &waits);
    // What was seen is what is signed.
    let other = OWN.replace("touch ran", "touch other");
    env.write("project/.ai/tools/own.sh", &other);
    let again = gate(&call(&mut client, "sign", &own));
    assert_ne!(again, waits);
    let told = body(&env, &again);
    assert!(
        told.starts_with("It was approved, and has changed since:\n- tool:own was "),
        "{told}"
    );
    approve(&env, &again);
    is_good(&call(&mut client, "sign", &own));
    is_good(&execute(&mut client, "own", &json!({})));
    assert!(env.path("project/other").exists());
    // What is signed already is nothing to ask about.
    let unchanged = call(&mut client, "sign", &own);
    assert_eq!(
        unchanged["structuredContent"]["counts"]["unchanged"], 1,
        "{unchanged}"
    );
}

#[test]
fn of_many_items_only_those_are_signed_that_were_seen() {
    let env = env();
    tool(&env, "many/one", "echo one");
    tool(&env, "many/two", "echo two");
    let mut client = Client::connect(&env);
    let many = json!({ "item_type": "tool", "item_id": "many/**" });
    let waits = gate(&call(&mut client, "sign", &many));
    let told = body(&env, &waits);
    assert!(
        told.contains("echo one") && told.contains("echo two"),
        "{told}"
    );
    approve(&env, &waits);
    tool(&env, "many/three", "echo three");
    gate(&call(&mut client, "sign", &many));
    assert!(
        !env.read("project/.ai/tools/many/one.yaml")
            .contains("rye:signed")
    );
}
