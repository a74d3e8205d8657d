//! Servers that ask the person something while a call runs.

use std::path::Path;

use crate::mcp_support::env;
use crate::mcp_support::stdio::Client;
use crate::support::TestEnv;
use serde_json::{Value, json};

/// A project in which the tool of such a server is an item.
fn asking() -> TestEnv {
    let env = env();
    let script = "tests/it/mcp_support/asking_server.py";
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(script);
    let script = script.to_str().unwrap();
    let add = ["mcp", "add", "travel", "--", "python3", script];
    for args in [&add[..], &["mcp", "discover", "travel"]] {
        let output = env.run(args);
        assert!(output.status.success(), "{output:?}");
    }
    env
}

fn hello(client: &mut Client, capabilities: &Value) {
    let hello = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": capabilities,
        "clientInfo": { "name": "test", "version": "1.0.0" },
    });
    client.ask("initialize", &hello);
    client.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap()
}

#[test]
fn a_servers_question_goes_on_to_the_client_whose_call_it_is() {
    let env = asking();
    let mut client = Client::start(&env);
    hello(&mut client, &json!({ "elicitation": { "form": {} } }));
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
        client.say(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": result }));
        let answer = client.answer(id);
        let said = text(&answer);
        match action {
            // What was left out has its default.
            "accept" => assert!(said.contains("Rome") && said.contains("nights"), "{said}"),
            _ => assert!(said.contains("decline"), "{said}"),
        }
    }
}

#[test]
fn where_nobody_can_be_asked_the_server_is_told() {
    let env = asking();
    let mut client = Client::connect(&env);
    let answer = client.ask(
        "tools/call",
        &crate::mcp_support::execute("mcp/travel/book"),
    );
    assert!(text(&answer).contains("cancel"), "{answer}");
    // Without a terminal, it is told from the start.
    let output = env.run(&["mcp", "call", "travel", "book"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(said.trim(), "nobody can be asked");
}
