//! The five tools, the clients' configurations and the help.

use std::fmt::Write as _;

use crate::mcp_support::stdio::Client;
use crate::mcp_support::{env, tool};
use crate::support::{TestEnv, assert_transcript};
use serde_json::{Value, json};

/// The result of `tools/list`.
fn tools(env: &TestEnv) -> Value {
    let mut client = Client::connect(env);
    client.request_and_wait("tools/list", &json!({}))["result"].clone()
}

/// The names of a page of a list, and the cursor of the next page.
fn page(client: &mut Client, list: &str, cursor: Option<&Value>) -> (Vec<String>, Value) {
    let params = match cursor {
        Some(cursor) => json!({ "cursor": cursor }),
        None => json!({}),
    };
    let result = &client.request_and_wait(&format!("{list}/list"), &params)["result"];
    let names = result[list].as_array().unwrap().iter();
    let names = names.map(|one| one["name"].as_str().unwrap().to_owned());
    (names.collect(), result["nextCursor"].clone())
}

#[test]
fn tool_definitions() {
    let listed = tools(&env());
    let text = serde_json::to_string_pretty(&listed).unwrap();
    assert_transcript!(text);
    // The documentation states this size.
    let size = listed["tools"].to_string().len();
    assert!((4_000..5_000).contains(&size), "{size} bytes");
}

#[test]
fn tool_list_does_not_depend_on_the_number_of_items() {
    let env = env();
    let before = tools(&env);
    for n in 0..1000 {
        tool(&env, &format!("many/tool-{n:04}"), "echo one of many");
    }
    let directive = env.read("project/.ai/directives/tidy.md");
    for n in 0..150 {
        let path = format!("project/.ai/directives/many/directive-{n:04}.md");
        let name = format!("name=\"directive-{n:04}\"");
        env.write(&path, &directive.replace("name=\"tidy\"", &name));
    }
    let signed = env.run(&["sign", "--all"]);
    assert!(signed.status.success(), "{signed:?}");
    assert_eq!(tools(&env), before);
    let mut client = Client::connect(&env);
    let ask = json!({ "name": "search", "arguments": { "query": "", "limit": 200 } });
    let found = client.request_and_wait("tools/call", &ask);
    let total = &found["result"]["structuredContent"]["total"];
    assert!(total.as_u64().unwrap() > 1000, "{total}");
    // Growing lists are paginated.
    let (first, cursor) = page(&mut client, "prompts", None);
    let (second, end) = page(&mut client, "prompts", Some(&cursor));
    assert_eq!((first.len(), second.len()), (100, 51));
    assert!(first.last() < second.first() && end.is_null());
}

#[test]
fn configuration_written_for_each_client() {
    let env = TestEnv::new();
    let clients = [
        "claude-code",
        "claude-desktop",
        "codex",
        "cursor",
        "gemini",
        "opencode",
        "vscode",
        "windsurf",
        "zed",
    ];
    let project = env.path("project");
    let project = project.to_str().unwrap();
    let mut calls = Vec::new();
    for client in clients {
        calls.push(format!("mcp install --client {client} --print"));
    }
    for client in ["claude-code", "codex"] {
        let call = format!("mcp install --client {client} --print --project {project}");
        calls.push(call);
    }
    calls.push("mcp install --client nope --print".to_owned());
    let calls: Vec<_> = calls.iter().map(String::as_str).collect();
    let printed = env.transcript(&calls);
    let printed = printed.replace(env!("CARGO_BIN_EXE_rye"), "RYE");
    assert_transcript!(printed);
    // `--print` writes nothing.
    let written = std::fs::read_dir(env.path("user")).unwrap().count();
    assert_eq!(written, 0);
}

#[test]
fn help_for_commands_and_topics() {
    let env = TestEnv::new();
    let mut printed = env.transcript(&["help nope", "help"]);
    let output = env.run(&["help", "mcp"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let first: Vec<_> = text.lines().take(5).collect();
    let _ = writeln!(printed, "$ rye help mcp\n{}\n…", first.join("\n"));
    // A topic with the name of a command follows the command's help.
    assert!(text.contains("\n# Rye for MCP clients\n"), "{text}");
    assert_transcript!(printed);
}
