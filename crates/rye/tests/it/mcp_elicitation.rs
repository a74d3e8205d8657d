//! Servers that request user input during a call.

use std::path::Path;

use crate::mcp_support::env;
use crate::mcp_support::stdio::Client;
use crate::support::TestEnv;
use serde_json::{Value, json};

/// A project with the tools of an eliciting server as items.
fn env_with_eliciting_server() -> TestEnv {
    let env = env();
    let script = "tests/it/mcp_support/asking_server.py";
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(script);
    let script = script.to_str().unwrap();
    let add = ["mcp", "add", "travel", "--", "python3", script];
    for args in [&add[..], &["mcp", "discover", "travel"]] {
        let output = env.run(args);
        assert!(output.status.success(), "{output:?}");
    }
    // Without a rule, a call of the server's tool would ask because of its risk.
    let rules = "rules: [{ tool: 'rye:mcp/travel/*', action: allow }]\n";
    env.write("user/.ai/config/agent/approvals.yaml", rules);
    env
}

fn initialize(client: &mut Client, capabilities: &Value) {
    let hello = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": capabilities,
        "clientInfo": { "name": "test", "version": "1.0.0" },
    });
    client.request_and_wait("initialize", &hello);
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap()
}

#[test]
fn elicitation_is_forwarded_to_the_calling_client() {
    let env = env_with_eliciting_server();
    let mut client = Client::start(&env);
    initialize(&mut client, &json!({ "elicitation": { "form": {} } }));
    let call = crate::mcp_support::execute("mcp/travel/book");
    for (action, content) in [
        ("accept", json!({ "city": "Rome" })),
        ("decline", Value::Null),
    ] {
        let id = client.request("tools/call", &call);
        let question = client.next().unwrap();
        assert_eq!(question["method"], "elicitation/create", "{question}");
        let message = question["params"]["message"].as_str().unwrap();
        assert_eq!(
            message,
            "The MCP server mcp/servers/travel asks:\n\n│ Where do you go?"
        );
        let schema = &question["params"]["requestedSchema"];
        assert_eq!(schema["properties"]["city"]["type"], "string");
        let mut result = json!({ "action": action });
        if !content.is_null() {
            result["content"] = content;
        }
        client.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": result }));
        let answer = client.wait_for_answer(id);
        let reply = text(&answer);
        match action {
            // A missing field has its default.
            "accept" => assert!(
                reply.contains("Rome") && reply.contains("nights"),
                "{reply}"
            ),
            _ => assert!(reply.contains("decline"), "{reply}"),
        }
    }
}

#[test]
fn elicitation_is_not_offered_without_a_user() {
    let env = env_with_eliciting_server();
    let mut client = Client::connect(&env);
    let answer = client.request_and_wait(
        "tools/call",
        &crate::mcp_support::execute("mcp/travel/book"),
    );
    assert!(text(&answer).contains("cancel"), "{answer}");
    // Without a terminal, the capability is not declared.
    let output = env.run(&["mcp", "call", "travel", "book"]);
    let reply = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(reply.trim(), "nobody can be asked");
}
