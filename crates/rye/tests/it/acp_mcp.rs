//! MCP servers that an editor offers to a session of `rye acp`.

use crate::acp_support::{RawClient, env};
use crate::support::TestEnv;
use serde_json::{Value, json};

/// A server that notes that it was started, and has one tool.
const SERVER: &str = r#"
import json, os, sys
with open("started.txt", "a") as log:
    log.write(os.environ.get("WEATHER_KEY", "none") + "\n")
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    method, params = message["method"], message.get("params") or {}
    if method == "initialize":
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "test", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [{"name": "rain", "description": "Tells whether it rains",
                             "annotations": {"readOnlyHint": True}, "inputSchema": {"type": "object"}}]}
    else:
        result = {"content": [{"type": "text", "text": "it rains"}]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"#;

const LIST: &str = "{ name: list_tools, args: { query: rain } }";
const CONNECT: &str =
    "{ name: call_tool, args: { tool_id: 'mcp:weather/connect', params: {}, summary: connect } }";
const RAIN: &str =
    "{ name: call_tool, args: { tool_id: 'mcp:weather/rain', params: {}, summary: rain } }";

/// A script with a turn for each of these calls, whose answer is the result.
fn script(calls: &[&str]) -> String {
    let turn =
        |call: &&str| format!("  - tool_calls: [{call}]\n  - text: '${{last_tool_result}}'\n");
    format!("steps:\n{}", calls.iter().map(turn).collect::<String>())
}

fn server(env: &TestEnv, key: &str) -> Value {
    json!({
        "name": "weather",
        "command": "python3",
        "args": [env.path("server.py")],
        "env": [{ "name": "WEATHER_KEY", "value": key }],
    })
}

fn new_session(client: &mut RawClient, env: &TestEnv, server: &Value) -> Value {
    let params = json!({ "cwd": env.path("project"), "mcpServers": [server] });
    client.request("session/new", params)
}

fn session_id(created: &Value) -> String {
    let id = created["result"]["sessionId"].as_str();
    id.unwrap_or_else(|| panic!("{created}")).to_owned()
}

/// Sends a prompt, chooses this answer if there is one, and returns the text of the turn.
fn ask(client: &mut RawClient, session: &str, answer: Option<&str>) -> (String, Option<Value>) {
    client.take_skipped();
    let answered = client.send_prompt(session, "go");
    let request = answer.map(|answer| client.choose(answer));
    let response = client.response(answered);
    assert_eq!(response["result"]["stopReason"], "end_turn", "{response}");
    let messages = client.take_skipped();
    let is_asked = messages
        .iter()
        .any(|it| it["method"] == "session/request_permission");
    assert!(!is_asked, "{messages:#?}");
    let updates = messages.iter().map(|it| &it["params"]["update"]);
    let chunks = updates.filter(|it| it["sessionUpdate"] == "agent_message_chunk");
    let texts = chunks.filter_map(|it| it["content"]["text"].as_str());
    (texts.collect(), request)
}

#[test]
fn offered_server_is_used_once_a_person_has_accepted_it() {
    let env = env(&script(&[LIST, RAIN, CONNECT, CONNECT, LIST, RAIN]));
    env.write("server.py", SERVER);
    let mut client = RawClient::start(&env);
    let created = new_session(&mut client, &env, &server(&env, "first-secret"));
    let session = session_id(&created);
    let started = || std::fs::read_to_string(env.path("project/started.txt")).unwrap_or_default();

    // Nothing is started before.
    let (listed, _) = ask(&mut client, &session, None);
    assert!(listed.contains("mcp:weather/connect"), "{listed}");
    let (refused, _) = ask(&mut client, &session, None);
    assert!(refused.contains("has not accepted"), "{refused}");
    ask(&mut client, &session, Some("deny"));
    assert_eq!(started(), "");

    let (connected, request) = ask(&mut client, &session, Some("approve"));
    assert!(connected.contains("mcp:weather/rain"), "{connected}");
    let shown = request.unwrap().to_string();
    assert!(
        shown.contains("server.py") && shown.contains("WEATHER_KEY"),
        "{shown}"
    );
    assert!(!shown.contains("first-secret"), "{shown}");
    assert_eq!(started(), "first-secret\n");
    let (listed, _) = ask(&mut client, &session, None);
    assert!(listed.contains("Tells whether it rains"), "{listed}");
    let (rain, _) = ask(&mut client, &session, None);
    assert!(rain.contains("it rains"), "{rain}");
    assert_eq!(client.stop(), Some(0));

    // It stays accepted, until it changes.
    env.write("project/agent.yaml", &script(&[RAIN, CONNECT]));
    let mut client = RawClient::start(&env);
    let created = new_session(&mut client, &env, &server(&env, "first-secret"));
    let (rain, _) = ask(&mut client, &session_id(&created), None);
    assert!(rain.contains("it rains"), "{rain}");
    let created = new_session(&mut client, &env, &server(&env, "other-secret"));
    let session = session_id(&created);
    let (refused, _) = ask(&mut client, &session, None);
    assert!(refused.contains("has not accepted"), "{refused}");
    let (connected, request) = ask(&mut client, &session, Some("approve"));
    assert!(connected.contains("mcp:weather/rain"), "{connected}");
    let shown = request.unwrap().to_string();
    assert!(shown.contains("has changed"), "{shown}");
    assert!(started().ends_with("other-secret\n"));
}

#[test]
fn unusable_servers_are_refused_with_a_reason() {
    let env = env("{ steps: [], after_last: { text: noted } }");
    let mut client = RawClient::start(&env);
    for (server, reason) in [
        (
            json!({ "name": "a/b", "command": "x", "args": [], "env": [] }),
            "`a/b` is not a name for an MCP server",
        ),
        (
            json!({ "name": "web", "type": "http", "url": "ftp://x", "headers": [] }),
            "MCP server `web`: `url`: `ftp://x` does not start with",
        ),
    ] {
        let refused = new_session(&mut client, &env, &server);
        let message = refused["error"]["message"].as_str();
        let message = message.unwrap_or_else(|| panic!("{refused}"));
        assert!(message.starts_with(reason), "{message}");
    }
}
