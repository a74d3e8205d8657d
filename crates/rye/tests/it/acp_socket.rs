//! `/acp` of `rye serve` with the official TypeScript SDK.

use crate::acp_support::{Plan, Sdk, env, new_session, prompt, text, with};
use crate::serve_support::{Server, create_token};
use crate::support::TestEnv;
use serde_json::{Value, json};

const CAREFUL: &str =
    "{ name: call_tool, args: { tool_id: 'rye:careful', params: {}, summary: be careful } }";

/// Runs steps on a connection with a token, in a session if there is one.
fn run(env: &TestEnv, server: &Server, token: &str, session: &Value, steps: &[Value]) -> Value {
    let url = format!("{}/acp", server.url.replacen("http", "ws", 1));
    let socket = json!({ "url": url, "token": token });
    let plan = Plan::new(env, steps).with("socket", socket);
    plan.with("session", session.clone()).run(Sdk::TypeScript)
}

fn load() -> Value {
    let params = json!({ "sessionId": "$session", "cwd": "/", "mcpServers": [] });
    json!({ "method": "session/load", "params": params })
}

#[test]
fn editor_works_with_a_server_over_websocket() {
    let env = env(&format!(
        "steps:
  - tool_calls: [{CAREFUL}]
  - text: called
  - text: continued
"
    ));
    let server = Server::start(&env);
    let ada = create_token(
        &env,
        &[
            "--scope", "read", "--scope", "prompt", "--scope", "decide", "--user", "ada",
        ],
    );
    let steps = [
        new_session(&env),
        with(prompt("call it"), "answers", json!(["approve"])),
    ];
    let report = run(&env, &server, &ada, &Value::Null, &steps);
    let turn = &report["steps"][1];
    assert_eq!(turn["result"]["stopReason"], "end_turn", "{report:#}");
    assert_eq!(text(turn, "agent_message_chunk"), "called");
    assert_eq!(turn["permissions"].as_array().map(Vec::len), Some(1));
    assert_eq!(env.read("project/careful.txt"), "careful\n");
    // A new connection finds the session and its history.
    let session = &report["session"].clone();
    let list = json!({ "method": "session/list", "params": {} });
    let steps = [list.clone(), load(), prompt("go on")];
    let report = run(&env, &server, &ada, session, &steps);
    let listed = &report["steps"][0]["result"]["sessions"];
    assert_eq!(listed[0]["sessionId"], *session, "{report:#}");
    assert_eq!(text(&report["steps"][1], "agent_message_chunk"), "called");
    assert_eq!(
        text(&report["steps"][2], "agent_message_chunk"),
        "continued"
    );
    let verified = env.run(&["session", "verify", session.as_str().unwrap()]);
    assert!(verified.status.success(), "{verified:?}");

    // Another user does not see it, and a reader changes nothing.
    let eve = create_token(
        &env,
        &["--scope", "read", "--scope", "prompt", "--user", "eve"],
    );
    let report = run(&env, &server, &eve, session, &[list.clone(), load()]);
    assert_eq!(report["steps"][0]["result"]["sessions"], json!([]));
    assert_eq!(report["steps"][1]["error"]["code"], -32002);
    let reader = create_token(&env, &["--scope", "read", "--user", "ada"]);
    let mode = json!({ "sessionId": "$session", "modeId": "auto" });
    let mode = json!({ "method": "session/set_mode", "params": mode });
    let steps = [load(), prompt("go on"), mode, new_session(&env)];
    let report = run(&env, &server, &reader, session, &steps);
    assert_eq!(
        text(&report["steps"][0], "agent_message_chunk"),
        "calledcontinued"
    );
    for (step, scope) in [(1, "prompt"), (2, "decide"), (3, "prompt")] {
        let error = &report["steps"][step]["error"];
        assert_eq!(error["data"]["scope"], scope, "{report:#}");
    }
}

#[tokio::test]
async fn socket_needs_a_token() {
    let env = env("{ steps: [], after_last: { text: noted } }");
    let server = Server::start(&env);
    let refused = reqwest::get(format!("{}/acp", server.url)).await.unwrap();
    assert_eq!(refused.status(), 401);
    let (status, problem) = server.get("/acp").await;
    assert_eq!(
        (status.as_u16(), &problem["code"]),
        (426, &json!("websocket_required"))
    );
}
