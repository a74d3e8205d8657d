//! `rye prompt --session`, `rye session abort|pause|resume-queue|watch` and `rye gate withdraw`
//! while a server holds the session, and while no process does.

use crate::serve::env_with;
use crate::serve_support::Server;
use crate::support::{json as document, outcome};
use serde_json::{Value, json};

const ANSWERS: &str = "steps:
  - { text: 'first' }
  - { text: 'second', chunk_chars: 2, chunk_ms: 1 }
  - { text: 'slow', chunk_chars: 1, chunk_ms: 20000 }
";

/// A command that needs approval between two answers.
const GATED: &str = "steps:
  - { text: 'first' }
  - tool_calls: [{ name: bash, args: { command: 'echo hi > out.txt' } }]
  - { text: 'done' }
";

/// The JSON lines of a command.
fn lines(output: &std::process::Output) -> Vec<Value> {
    let text = std::str::from_utf8(&output.stdout).unwrap();
    let lines = text.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().unwrap()
}

#[tokio::test]
async fn prompt_to_a_session_of_another_process_is_answered_from_there() {
    let env = env_with(ANSWERS);
    let server = Server::start(&env);
    let session = server.create_session().await;
    let item = server.prompt(&session, "go").await;
    assert_eq!(server.answer(&item).await["text"], "first");
    let output = env.run(&["prompt", "again", "--session", &session]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(std::str::from_utf8(&output.stdout).unwrap(), "second\n");
    let state = document(&env.run(&["session", "show", &session, "--json"]));
    assert_eq!(state["threads"][0]["entries"].as_array().unwrap().len(), 4);
}

#[tokio::test]
async fn gate_of_a_session_of_another_process_is_approved_from_here() {
    let env = env_with(GATED);
    let server = Server::start(&env);
    let session = server.create_session().await;
    let item = server.prompt(&session, "go").await;
    server.answer(&item).await;
    let prompt = ["prompt", "write", "--session", &session, "--json"];
    let output = env.run(&[&prompt[..], &["--no-wait"]].concat());
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    assert!(!env.path("project/out.txt").exists());
    let gate = outcome(&output)["error"]["gate"]
        .as_str()
        .unwrap()
        .to_owned();
    let output = env.run(&["gate", "approve", &gate]);
    assert!(output.status.success(), "{output:?}");
    let output = env.run(&["session", "watch", &session, "--until-idle", "--after", "0"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(env.read("project/out.txt"), "hi\n");
    let shown = std::str::from_utf8(&output.stdout).unwrap();
    for part in [
        "first",
        "gate       run: echo hi > out.txt",
        "done",
        "turn end",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

#[tokio::test]
async fn session_is_controlled_whichever_process_holds_it() {
    let env = env_with(ANSWERS);
    let server = Server::start(&env);
    let session = server.create_session().await;
    for _ in 0..2 {
        let item = server.prompt(&session, "go").await;
        server.answer(&item).await;
    }
    let mut events = server.events(&session, "").await;
    let running = server.prompt(&session, "take your time").await;
    events.until("message_start").await;
    let aborted = document(&env.run(&["session", "abort", &session, "--json"]));
    assert_eq!(aborted["by_other_process"], true, "{aborted}");
    assert_eq!(server.answer(&running).await["end"], "abort");
    let paused = env.run(&["session", "pause", &session, "--thread", "default"]);
    assert!(paused.status.success(), "{paused:?}");
    let unknown = env.run(&["session", "pause", &session, "--thread", "other", "--json"]);
    assert_eq!(document(&unknown)["error"]["code"], "not_found");
    let waiting = server.prompt(&session, "later").await;
    let item = format!("/api/prompts/{waiting}?wait=1");
    assert_eq!(server.get(&item).await.1["status"], "open");
    drop(server);

    // No process holds it any more.
    let aborted = document(&env.run(&["session", "abort", &session, "--json"]));
    assert_eq!(aborted["by_other_process"], false, "{aborted}");
    let watch = [
        "session",
        "watch",
        &session,
        "--after",
        "0",
        "--until-idle",
        "--json",
    ];
    let events = lines(&env.run(&watch));
    let numbers: Vec<_> = events
        .iter()
        .map(|it| it["sequence"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    let ends = events.iter().filter(|it| it["type"] == "turn_end");
    let reasons: Vec<_> = ends.map(|it| it["data"]["reason"].clone()).collect();
    assert_eq!(reasons, ["end_turn", "end_turn", "abort", "abort"]);
    let resumed = env.run(&["session", "resume-queue", &session]);
    assert!(resumed.status.success(), "{resumed:?}");
}

#[tokio::test]
async fn withdrawn_gate_fails_its_call_and_the_turn_continues() {
    let env = env_with(GATED);
    let server = Server::start(&env);
    let session = server.create_session().await;
    let item = server.prompt(&session, "go").await;
    server.answer(&item).await;
    let mut events = server.events(&session, "").await;
    let item = server.prompt(&session, "write").await;
    let gate = events.until("decision_gate").await.data["data"]["gate"]["id"].clone();
    let gate = gate.as_str().unwrap();
    let withdrawn = env.run(&["gate", "withdraw", gate, "--reason", "not now", "--json"]);
    assert_eq!(document(&withdrawn)["gate"], gate);
    let end = events.until("decision_gate_withdrawn").await;
    assert_eq!(end.data["data"]["reason"], "not now");
    assert_eq!(server.answer(&item).await["text"], "done");
    assert!(!env.path("project/out.txt").exists());
    let again = document(&env.run(&["gate", "withdraw", gate, "--json"]));
    assert_eq!(again["error"]["code"], "gate_closed");
    let path = format!("/api/gates/{gate}/decision");
    let (status, closed) = server.post(&path, &json!({ "action": "approve" })).await;
    assert_eq!(
        (status.as_u16(), &closed["code"]),
        (410, &json!("gate_closed"))
    );
}
