//! Sessions of `rye acp` that are also used elsewhere, and files that the editor has open.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::Instant;

use crate::acp_support::{RawClient, env};
use crate::mcp_support::{TIMEOUT, wait_for_status};
use crate::support::TestEnv;
use serde_json::{Value, json};

fn start(env: &TestEnv, capabilities: Value) -> RawClient {
    let model = format!("scripted:{}", env.path("project/agent.yaml").display());
    let args = ["acp", "--model", &model, "--sandbox", "local"];
    let mut client = RawClient::start_with(env, &args);
    client.initialise(capabilities);
    client
}

/// Sends a prompt that must end normally.
fn prompt(client: &mut RawClient, session: &str, text: &str) {
    let answered = client.send_prompt(session, text);
    let response = client.response(answered);
    assert_eq!(response["result"]["stopReason"], "end_turn", "{response}");
}

/// Runs a line in `rye chat` once no other process has the session, and returns what it prints.
fn chat_when_free(env: &TestEnv, session: &str, line: &[u8]) -> String {
    let started = Instant::now();
    loop {
        let output = env.feed(&["chat", "--session", session, "--plain"], line);
        if output.status.success() {
            return String::from_utf8_lossy(&output.stdout).into_owned();
        }
        let reason = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(reason.contains("is in use by"), "{reason}");
        assert!(started.elapsed() < TIMEOUT, "the editor keeps the session");
    }
}

/// The texts of prompts and answers among messages.
fn texts(messages: &[Value]) -> Vec<String> {
    let updates = messages.iter().map(|it| &it["params"]["update"]);
    let texts = updates.filter_map(|it| it["content"]["text"].as_str());
    texts.map(str::to_owned).collect()
}

#[test]
fn idle_session_of_the_editor_can_be_continued_in_a_chat() {
    let env = env("steps: [{ text: first }, { text: second }, { text: third }]\n");
    let mut client = start(&env, json!({}));
    let session = client.new_session(&env);
    prompt(&mut client, &session, "one");
    client.take_skipped();
    // The editor has it open, and shows what the chat does.
    let printed = chat_when_free(&env, &session, b"two\n");
    assert!(printed.contains("second"), "{printed}");
    client.wait_for(|it| it["params"]["update"]["content"]["text"] == "two");
    client.wait_for(|it| it["params"]["update"]["content"]["text"] == "second");
    prompt(&mut client, &session, "three");
    assert_eq!(client.stop(), Some(0));
    let mut client = start(&env, json!({}));
    let load = json!({ "sessionId": session, "cwd": env.path("project"), "mcpServers": [] });
    client.request("session/load", load);
    let all = texts(&client.take_skipped());
    assert_eq!(all, ["one", "first", "two", "second", "three", "third"]);
    let verified = env.run(&["session", "verify", &session]);
    assert!(verified.status.success(), "{verified:?}");
}

#[test]
fn busy_session_of_the_editor_stays_there() {
    let env = env("steps: [{ text: slow, chunk_chars: 1, chunk_ms: 60000 }]\n");
    let mut client = start(&env, json!({}));
    let session = client.new_session(&env);
    let answered = client.send_prompt(&session, "go");
    client.update("agent_message_chunk");
    let refused = env.feed(&["chat", "--session", &session, "--plain"], b"two\n");
    let reason = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(reason.contains("is in use by"), "{reason}");
    client.notify("session/cancel", json!({ "sessionId": session }));
    assert_eq!(
        client.response(answered)["result"]["stopReason"],
        "cancelled"
    );
}

#[test]
fn session_of_a_chat_is_listed_and_continued_in_the_editor() {
    let env = env("steps: [{ text: first }, { text: second }]\n");
    let model = format!("scripted:{}", env.path("project/agent.yaml").display());
    let chat = ["chat", "--plain", "--model", &model, "--sandbox", "local"];
    let ended = env.feed(&chat, b"one\n");
    assert!(ended.status.success(), "{ended:?}");
    let mut client = start(&env, json!({}));
    let listed = client.request("session/list", json!({ "cwd": env.path("project") }));
    let session = listed["result"]["sessions"][0]["sessionId"].as_str();
    let session = session.unwrap_or_else(|| panic!("{listed}")).to_owned();
    let load = json!({ "sessionId": session, "cwd": env.path("project"), "mcpServers": [] });
    client.request("session/load", load);
    assert_eq!(texts(&client.take_skipped()), ["one", "first"]);
    prompt(&mut client, &session, "two");
    assert!(texts(&client.take_skipped()).contains(&"second".to_owned()));
}

#[test]
fn session_of_the_editor_can_be_watched_in_a_terminal() {
    let env = env("steps: [{ text: watched answer }]\n");
    let mut client = start(&env, json!({}));
    let session = client.new_session(&env);
    let mut watch = env.command();
    watch.args(["session", "watch", &session, "--after", "0", "--json"]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    prompt(&mut client, &session, "one");
    // The stream ends with the turn, so this does not wait forever.
    let ended = lines.find(|line| line.as_ref().unwrap().contains("\"turn_end\""));
    assert!(ended.is_some());
    watch.kill().unwrap();
    wait_for_status(&mut watch);
}

#[test]
fn tools_read_and_write_the_text_that_the_editor_has() {
    let env = env("steps:
  - tool_calls: [{ name: read, args: { path: a.txt } }, { name: read, args: { path: b.txt } }]
  - text: '${last_tool_result}'
  - tool_calls: [{ name: edit, args: { path: a.txt, old: unsaved, new: changed } }]
  - text: edited
  - tool_calls: [{ name: write, args: { path: new.txt, content: new } }]
  - text: written
");
    env.write("project/a.txt", "saved\n");
    env.write("project/b.txt", "saved b\n");
    let fs = json!({ "fs": { "readTextFile": true, "writeTextFile": true } });
    let mut client = start(&env, fs);
    let session = client.new_session(&env);
    let respond = |client: &mut RawClient, request: &Value, result: Value| {
        client.send(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }));
    };
    let refuse = |client: &mut RawClient, request: &Value| {
        let error = json!({ "code": -32603, "message": "not open" });
        client.send(&json!({ "jsonrpc": "2.0", "id": request["id"], "error": error }));
    };

    // One file is open with unsaved text, the other is not.
    let answered = client.send_prompt(&session, "read");
    for _ in 0..2 {
        let request = client.request_of_agent("fs/read_text_file");
        assert_eq!(request["params"]["sessionId"], json!(session));
        if request["params"]["path"] == json!(env.path("project/a.txt")) {
            respond(&mut client, &request, json!({ "content": "unsaved\n" }));
        } else {
            refuse(&mut client, &request);
        }
    }
    assert_eq!(
        client.response(answered)["result"]["stopReason"],
        "end_turn"
    );
    let messages = client.take_skipped();
    let results = messages
        .iter()
        .map(|it| it["params"]["update"]["content"][0].to_string());
    let results: String = results.collect();
    assert!(results.contains("unsaved"), "{results}");
    assert!(results.contains("saved b"), "{results}");

    let answered = client.send_prompt(&session, "edit");
    let write = loop {
        let request = client.wait_for(|it| {
            it["method"]
                .as_str()
                .is_some_and(|method| method.starts_with("fs/"))
        });
        if request["method"] == "fs/write_text_file" {
            break request;
        }
        respond(&mut client, &request, json!({ "content": "unsaved\n" }));
    };
    assert_eq!(write["params"]["content"], "changed\n");
    respond(&mut client, &write, json!({}));
    assert_eq!(
        client.response(answered)["result"]["stopReason"],
        "end_turn"
    );
    // The editor writes the file, and this one does not.
    assert_eq!(env.read("project/a.txt"), "saved\n");

    // What the editor refuses to write is written directly.
    let answered = client.send_prompt(&session, "write");
    let write = client.request_of_agent("fs/write_text_file");
    refuse(&mut client, &write);
    assert_eq!(
        client.response(answered)["result"]["stopReason"],
        "end_turn"
    );
    assert_eq!(env.read("project/new.txt"), "new");
}
