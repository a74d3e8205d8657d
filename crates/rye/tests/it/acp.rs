//! The protocol of `rye acp`, with an editor that sends any message.

use crate::acp_support::{RawClient, env};
use serde_json::{Value, json};

const ANSWER: &str = "{ steps: [], after_last: { text: noted } }";

/// The code and the message of an error response.
fn error(response: &Value) -> (i64, &str) {
    let error = &response["error"];
    let message = error["message"].as_str();
    (error["code"].as_i64().unwrap(), message.unwrap())
}

#[test]
fn missing_keys_are_named_and_the_key_is_found_once_it_is_set() {
    let env = env(ANSWER);
    let args = ["acp", "--model", "anthropic/claude-sonnet-4-5"];
    let mut client = RawClient::start_with(&env, &args);
    let agent = client.initialise(json!({ "auth": { "terminal": true } }));
    let methods = agent["result"]["authMethods"].as_array().unwrap();
    let method = |id: &str| methods.iter().find(|it| it["id"] == id).unwrap();
    let hint = "no API key for anthropic; run `export ANTHROPIC_API_KEY=…` or \
                `rye vault set ANTHROPIC_API_KEY`";
    assert_eq!(method("anthropic")["description"], hint);
    let args = &method("terminal:anthropic")["args"];
    assert_eq!(*args, json!(["--set-key", "ANTHROPIC_API_KEY"]));
    let params = json!({ "cwd": env.path("project"), "mcpServers": [] });
    let refused = client.request("session/new", params.clone());
    assert_eq!(error(&refused), (-32000, hint));
    let authenticate = json!({ "methodId": "anthropic" });
    let refused = client.request("authenticate", authenticate.clone());
    assert_eq!(error(&refused), (-32000, hint));
    let unknown = client.request("authenticate", json!({ "methodId": "x" }));
    assert_eq!(error(&unknown).0, -32602);
    // What the editor runs in a terminal.
    let stored = env.feed(&["acp", "--set-key", "ANTHROPIC_API_KEY"], b"secret");
    assert!(stored.status.success(), "{stored:?}");
    let accepted = client.request("authenticate", authenticate);
    assert_eq!(accepted["result"], json!({}));
    let created = client.request("session/new", params);
    assert!(created["result"]["sessionId"].is_string(), "{created}");
}

#[test]
fn invalid_requests_are_refused_with_a_reason() {
    let env = env(ANSWER);
    let mut client = RawClient::start_uninitialised(&env);
    let new = |cwd: &str| json!({ "cwd": cwd, "mcpServers": [] });
    // Nothing works before the connection is initialised.
    let early = client.request("session/new", new("/tmp"));
    assert!(early["error"].is_object(), "{early}");
    client.initialise(json!({}));
    let text = json!([{ "type": "text", "text": "hi" }]);
    for (method, params, code, reason) in [
        (
            "session/new",
            new("relative"),
            -32602,
            "cwd `relative` is not an absolute path",
        ),
        (
            "session/new",
            new("/no/such"),
            -32602,
            "cwd `/no/such` is not a directory",
        ),
        ("session/new", json!({}), -32602, "Invalid params"),
        (
            "session/prompt",
            json!({ "sessionId": "x", "prompt": text }),
            -32002,
            "there is no session x",
        ),
        (
            "session/load",
            json!({ "sessionId": "no such id", "cwd": "/tmp", "mcpServers": [] }),
            -32002,
            "there is no session no such id",
        ),
        (
            "session/list",
            json!({ "cursor": "\u{e9}" }),
            -32602,
            "the cursor is not one",
        ),
        (
            "session/close",
            json!({ "sessionId": "x" }),
            -32002,
            "there is no session x",
        ),
        (
            "session/juggle",
            json!({}),
            -32601,
            "unknown method session/juggle",
        ),
    ] {
        let refused = client.request(method, params);
        let (found, message) = error(&refused);
        assert_eq!(found, code, "{refused}");
        assert!(message.starts_with(reason), "{method}: {message}");
    }
    let session = client.new_session(&env);
    let empty = json!({ "sessionId": session, "prompt": [] });
    let refused = client.request("session/prompt", empty);
    assert_eq!(error(&refused), (-32602, "the prompt is empty"));
    let answered = client.send_prompt(&session, "hi");
    assert_eq!(
        client.response(answered)["result"]["stopReason"],
        "end_turn"
    );
    assert_eq!(client.stop(), Some(0));
}

/// The sessions and what they contain, as stored.
fn shown(env: &crate::support::TestEnv, session: &str) -> Value {
    crate::support::json(&env.run(&["session", "show", session, "--json"]))
}

#[test]
fn messages_that_are_no_requests_are_answered_and_the_session_goes_on() {
    let env = env(ANSWER);
    let mut client = RawClient::start(&env);
    let session = client.new_session(&env);
    for (line, code) in [
        ("{ not json", -32700),
        ("\u{fffd}\u{0}", -32700),
        ("17", -32600),
        ("[]", -32600),
        (
            r#"[{"jsonrpc":"2.0","id":77,"method":"session/list","params":{}}]"#,
            -32600,
        ),
        (r#"{"jsonrpc":"2.0","method":5,"id":78}"#, -32600),
    ] {
        client.send_line(line.as_bytes());
        let refused = client.wait_for(|message| message["error"]["code"] == code);
        assert!(refused["id"].is_null() || refused["id"] == 78, "{refused}");
    }
    // Not UTF-8, and responses and notifications that nobody waits for.
    client.send_line(b"{\"jsonrpc\":\"2.0\",\"id\":79,\"method\":\"\xff\",\"params\":{}}");
    let refused = client.wait_for(|message| message["id"] == 79);
    assert_eq!(error(&refused).0, -32601);
    client.send(&json!({ "jsonrpc": "2.0", "id": 999, "result": {} }));
    client.notify("session/cancel", json!({ "sessionId": "x" }));
    client.notify("session/cancel", json!({ "sessionId": session }));
    client.notify("session/juggle", json!({}));
    let answered = client.send_prompt(&session, "hi");
    assert_eq!(
        client.response(answered)["result"]["stopReason"],
        "end_turn"
    );
    assert_eq!(client.stop(), Some(0));
}

#[test]
fn requests_out_of_order_are_answered() {
    let env = env(
        "{ steps: [{ text: one, chunk_chars: 1, chunk_ms: 20 }, { text: two }], \
                   after_last: { text: more } }",
    );
    let mut client = RawClient::start(&env);
    let session = client.new_session(&env);
    // A prompt waits for the one before it, and a second load replaces the first.
    let first = client.send_prompt(&session, "first");
    let second = client.send_prompt(&session, "second");
    let load = json!({ "sessionId": session, "cwd": env.path("project"), "mcpServers": [] });
    for id in [second, first] {
        assert_eq!(client.response(id)["result"]["stopReason"], "end_turn");
    }
    for _ in 0..2 {
        let loaded = client.request("session/load", load.clone());
        assert!(loaded["error"].is_null(), "{loaded}");
    }
    client.take_skipped();
    let third = client.send_prompt(&session, "third");
    client.response(third);
    let messages = client.take_skipped();
    let updates = messages.iter().map(|it| &it["params"]["update"]);
    let chunks = updates.filter(|it| it["sessionUpdate"] == "agent_message_chunk");
    let texts = chunks.filter_map(|it| it["content"]["text"].as_str());
    // Shown once, although the session was opened three times.
    assert_eq!(texts.collect::<String>(), "more");
    // Cancelling what has ended, and closing twice.
    client.notify("session/cancel", json!({ "sessionId": session }));
    let close = json!({ "sessionId": session });
    let closed = client.request("session/close", close.clone());
    assert_eq!(closed["result"], json!({}));
    assert_eq!(error(&client.request("session/close", close)).0, -32002);
    assert_eq!(client.stop(), Some(0));
}

#[test]
fn large_prompt_is_accepted_and_a_larger_message_refused() {
    let env = env("{ context_window: 100000000, steps: [], after_last: { text: noted } }");
    let mut client = RawClient::start(&env);
    let session = client.new_session(&env);
    let large = "word ".repeat(400_000);
    let answered = client.send_prompt(&session, &large);
    let response = client.response(answered);
    assert_eq!(response["result"]["stopReason"], "end_turn", "{response}");
    let stored = shown(&env, &session);
    let prompt = &stored["threads"][0]["entries"][0]["kind"]["parts"][0]["text"];
    assert_eq!(prompt.as_str().map(str::len), Some(large.len()));
    let larger = "x".repeat(65 * 1024 * 1024);
    let refused = client.send_prompt(&session, &larger);
    let refused = client.response(refused);
    assert_eq!(
        error(&refused),
        (-32602, "the message is too long: the maximum is 64 MiB")
    );
    let answered = client.send_prompt(&session, "hi");
    assert_eq!(
        client.response(answered)["result"]["stopReason"],
        "end_turn"
    );
}

#[test]
fn editor_that_vanishes_in_mid_stream_leaves_the_session_intact() {
    let env = env("steps:
  - text: A long answer that nobody reads to its end.
    chunk_chars: 1
    chunk_ms: 200
  - text: A second try.
");
    let mut client = RawClient::start(&env);
    let session = client.new_session(&env);
    client.send_prompt(&session, "go");
    client.update("agent_message_chunk");
    // Ends by itself, without an error.
    assert_eq!(client.stop(), Some(0));
    let mut client = RawClient::start(&env);
    let load = json!({ "sessionId": session, "cwd": env.path("project"), "mcpServers": [] });
    let loaded = client.request("session/load", load);
    assert!(loaded["error"].is_null(), "{loaded}");
    let prompt = client.update("user_message_chunk");
    assert_eq!(prompt["content"]["text"], "go");
    // The turn that was interrupted goes on, although nobody waits for it.
    let answered = client.send_prompt(&session, "still there?");
    assert_eq!(
        client.response(answered)["result"]["stopReason"],
        "end_turn"
    );
    assert_eq!(client.stop(), Some(0));
    let verified = env.run(&["session", "verify", &session]);
    assert!(verified.status.success(), "{verified:?}");
}

const CAREFUL: &str = "steps:
  - tool_calls:
      - { name: call_tool, args: { tool_id: 'rye:careful', params: {}, summary: be careful } }
  - text: called
";

#[test]
fn gate_that_is_decided_elsewhere_ends_the_permission_request() {
    let env = env(CAREFUL);
    let mut client = RawClient::start(&env);
    let session = client.new_session(&env);
    let answered = client.send_prompt(&session, "call it");
    let request = client.request_of_agent("session/request_permission");
    let gates = crate::support::json(&env.run(&["gate", "list", "--json"]));
    let gate = gates["gates"][0]["id"].as_str().unwrap();
    assert!(env.run(&["gate", "approve", gate]).status.success());
    let cancelled = client.wait_for(|message| message["method"] == "$/cancel_request");
    assert_eq!(cancelled["params"]["requestId"], request["id"]);
    assert_eq!(
        client.response(answered)["result"]["stopReason"],
        "end_turn"
    );
    // An answer that comes too late changes nothing.
    client.answer_permission(&request, "deny");
    assert_eq!(env.read("project/careful.txt"), "careful\n");
    assert_eq!(client.stop(), Some(0));
}

#[test]
fn permission_request_that_the_user_dismisses_stops_the_turn() {
    let env = env(CAREFUL);
    let mut client = RawClient::start(&env);
    let session = client.new_session(&env);
    let answered = client.send_prompt(&session, "call it");
    let request = client.request_of_agent("session/request_permission");
    let outcome = json!({ "outcome": { "outcome": "cancelled" } });
    client.send(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": outcome }));
    assert_eq!(
        client.response(answered)["result"]["stopReason"],
        "cancelled"
    );
    assert!(!env.path("project/careful.txt").exists());
}

#[test]
fn editor_without_permission_requests_names_the_command_that_decides() {
    let env = env(CAREFUL);
    let mut client = RawClient::start(&env);
    let session = client.new_session(&env);
    let answered = client.send_prompt(&session, "call it");
    let request = client.request_of_agent("session/request_permission");
    let unknown = json!({ "code": -32601, "message": "Method not found" });
    client.send(&json!({ "jsonrpc": "2.0", "id": request["id"], "error": unknown }));
    let note = client.update("agent_message_chunk");
    let note = note["content"]["text"].as_str().unwrap();
    let (_, command) = note.split_once("Run `rye ").unwrap();
    let command = command.split('`').next().unwrap();
    let decided = env.run(&command.split(' ').collect::<Vec<_>>());
    assert!(decided.status.success(), "{decided:?}");
    assert_eq!(
        client.response(answered)["result"]["stopReason"],
        "end_turn"
    );
}

#[test]
fn question_is_answered_by_the_next_prompt() {
    let env = env("steps:
  - tool_calls: [{ name: ask, args: { question: What is your name? } }]
  - text: 'Hello ${last_tool_result}!'
");
    let mut client = RawClient::start(&env);
    let session = client.new_session(&env);
    let asked = client.send_prompt(&session, "greet me");
    assert_eq!(client.response(asked)["result"]["stopReason"], "end_turn");
    let question = client.update("agent_message_chunk");
    let question = question["content"]["text"].as_str().unwrap();
    assert!(question.contains("What is your name?"), "{question}");
    client.take_skipped();
    let answered = client.send_prompt(&session, "Ada");
    assert_eq!(
        client.response(answered)["result"]["stopReason"],
        "end_turn"
    );
    let greeting = client.update("agent_message_chunk");
    assert_eq!(greeting["content"]["text"], "Hello Ada!");
}

#[test]
fn question_with_likely_answers_offers_them() {
    let env = env("steps:
  - tool_calls: [{ name: ask, args: { question: Which?, options: [red, blue] } }]
  - text: 'You chose ${last_tool_result}.'
");
    let mut client = RawClient::start(&env);
    let session = client.new_session(&env);
    let answered = client.send_prompt(&session, "ask me");
    let request = client.choose("2");
    let options = request["params"]["options"].as_array().unwrap().iter();
    let options: Vec<_> = options.map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(options, ["red", "blue", "Do not answer"]);
    assert_eq!(
        client.response(answered)["result"]["stopReason"],
        "end_turn"
    );
    let text = client.update("agent_message_chunk");
    assert_eq!(text["content"]["text"], "You chose blue.");
}

#[test]
fn gate_of_a_task_is_asked_in_the_session_that_started_it() {
    let env = env("steps:
  - tool_calls: [{ name: task, args: { prompt: do it, model: 'scripted:task.yaml' } }]
  - text: The task is done.
");
    env.write("project/task.yaml", CAREFUL);
    let mut client = RawClient::start(&env);
    let session = client.new_session(&env);
    let answered = client.send_prompt(&session, "start a task");
    let request = client.choose("approve");
    let id = &request["params"]["toolCall"]["toolCallId"];
    assert_eq!(
        client.response(answered)["result"]["stopReason"],
        "end_turn"
    );
    // The editor shows the call of the task, which it did not know, and its end.
    let messages = client.take_skipped();
    let updates = messages.iter().map(|message| &message["params"]["update"]);
    let of_call: Vec<_> = updates.filter(|it| it["toolCallId"] == *id).collect();
    assert_eq!(of_call[0]["sessionUpdate"], "tool_call");
    assert_eq!(of_call[1]["status"], "completed", "{of_call:#?}");
    assert_eq!(env.read("project/careful.txt"), "careful\n");
}

#[test]
fn deleted_session_is_gone() {
    let env = env(ANSWER);
    let mut client = RawClient::start(&env);
    let session = client.new_session(&env);
    let id = json!({ "sessionId": session });
    let deleted = client.request("session/delete", id.clone());
    assert_eq!(deleted["result"], json!({}));
    let listed = client.request("session/list", json!({}));
    assert_eq!(listed["result"]["sessions"], json!([]));
    let refused = client.request("session/delete", id);
    assert_eq!(error(&refused).0, -32002);
    let refused = client.send_prompt(&session, "hi");
    assert_eq!(error(&client.response(refused)).0, -32002);
}

#[test]
fn each_session_works_in_the_project_of_its_directory() {
    let env = env(
        "steps: [{ tool_calls: [{ name: read, args: { path: name.txt } }] }, \
                   { text: '${last_tool_result}' }]\n",
    );
    let mut client = RawClient::start(&env);
    for name in ["a", "b"] {
        env.write(&format!("{name}/.ai/x.txt"), "");
        env.write(&format!("{name}/name.txt"), name);
        let params = json!({ "cwd": env.path(name), "mcpServers": [] });
        let created = client.request("session/new", params);
        let session = created["result"]["sessionId"].as_str().unwrap().to_owned();
        let answered = client.send_prompt(&session, "read it");
        client.response(answered);
        let text = client.update("agent_message_chunk");
        let text = text["content"]["text"].as_str().unwrap();
        assert!(text.contains(name), "{text}");
    }
}

#[test]
fn turn_that_fails_is_an_error_response() {
    let env = env("steps: [{ error: invalid_request }]\n");
    let mut client = RawClient::start(&env);
    let session = client.new_session(&env);
    let failed = client.send_prompt(&session, "go");
    let failed = client.response(failed);
    let (code, message) = error(&failed);
    assert_eq!(code, -32603);
    assert!(!message.is_empty());
}
