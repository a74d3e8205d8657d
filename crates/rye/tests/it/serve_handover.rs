//! Servers that stop or die: their sessions continue at other servers of the database.

use rustix::process::Signal;
use serde_json::json;

use crate::serve::env_with;
use crate::serve_schedules::wait_for;
use crate::serve_support::Server;
use crate::support::{TestEnv, json as output_json};

/// A slow model call with a tool call, and an answer after it.
const SLOW: &str = "steps:
  - { text: first, delay_ms: 1500, tool_calls: [{ name: write, args: { path: out.txt, content: once } }] }
  - { text: second, delay_ms: 1500 }
";

/// A model call that streams for a while.
const STREAMS: &str = "steps:
  - { text: 'one two three four five six seven eight', chunk_chars: 2, chunk_ms: 150 }
";

/// Waits until a turn of a session has begun.
async fn wait_for_turn(server: &Server, session: &str) {
    wait_for("a turn", async || {
        let (_, state) = server.get(&format!("/api/sessions/{session}")).await;
        state["threads"][0]["turn"].is_object().then_some(())
    })
    .await;
}

/// The texts of the model in the history of a session.
fn texts(env: &TestEnv, session: &str) -> String {
    let shown = env.run(&["session", "show", session, "--json"]);
    output_json(&shown).to_string()
}

#[tokio::test]
async fn stopped_server_commits_what_runs_and_another_one_continues_at_once() {
    let env = env_with(SLOW);
    let mut first = Server::start(&env);
    let second = Server::start(&env);
    let session = first.create_session().await;
    let item = first.prompt(&session, "go").await;
    wait_for_turn(&first, &session).await;
    // In mid-turn.
    first.signal(Signal::TERM);
    assert!(first.status().success());
    let answer = second.answer(&item).await;
    assert_eq!(
        (&answer["end"], &answer["text"]),
        (&json!("end_turn"), &json!("second"))
    );
    assert_eq!(env.read("project/out.txt"), "once");
    // The call of the first server counts: the model was asked twice, not three times.
    let (_, state) = second.get(&format!("/api/sessions/{session}")).await;
    assert_eq!(state["session"]["usage"]["turns"], 2, "{state}");
    assert!(texts(&env, &session).contains("first"));
}

#[tokio::test]
async fn stopped_server_tells_streams_to_reconnect_and_loses_no_event() {
    let env = env_with(STREAMS);
    let mut first = Server::start(&env);
    let second = Server::start(&env);
    let session = first.create_session().await;
    let mut events = first.events(&session, "?after=0").await;
    let item = first.prompt(&session, "go").await;
    let mut last = None;
    // In mid-stream.
    loop {
        let event = events.next().await.unwrap();
        last = event.id.or(last);
        if event.name == "text_delta" {
            break;
        }
    }
    first.signal(Signal::TERM);
    let closing = loop {
        let event = events.next().await.expect("the stream ends without a word");
        last = event.id.clone().or(last);
        if event.name == "closing" {
            break event;
        }
    };
    assert!(closing.data["reconnect_after_ms"].as_u64().is_some());
    assert_eq!(events.next().await, None);
    let query = format!("?after={}", last.unwrap());
    let mut events = second.events(&session, &query).await;
    let end = events.until("turn_end").await;
    assert_eq!(end.data["data"]["reason"], "end_turn");
    assert!(first.status().success());
    let answer = second.answer(&item).await;
    assert_eq!(answer["text"], "one two three four five six seven eight");
}

#[tokio::test]
async fn sessions_of_a_killed_server_are_continued_without_a_request() {
    let env = env_with(SLOW);
    // With a key, histories are signed and can be verified.
    assert!(env.run(&["init"]).status.success());
    let mut first = Server::start(&env);
    let sessions = [first.create_session().await, first.create_session().await];
    for session in &sessions {
        first.prompt(session, "go").await;
        wait_for_turn(&first, session).await;
    }
    first.signal(Signal::KILL);
    first.status();
    // Both look for unfinished sessions; nobody asks them for these.
    let _servers = [Server::start(&env), Server::start(&env)];
    for session in &sessions {
        let shown = wait_for("the end of the turn", async || {
            let shown = texts(&env, session);
            shown.contains("second").then_some(shown)
        })
        .await;
        let verified = env.run(&["session", "verify", session]);
        assert!(verified.status.success(), "{verified:?}\n{shown}");
        assert_eq!(shown.matches("\"tool_result\"").count(), 1, "{shown}");
    }
}

/// A session of the command line belongs to the person there.
#[tokio::test]
async fn interrupted_session_of_the_command_line_is_left_alone() {
    let env = env_with("steps: [{ text: late, delay_ms: 600000 }]\nafter_last: { text: late }");
    let prompt = ["prompt", "go", "--model", "scripted:agent.yaml", "--json"];
    let mut child = env.command().args(prompt).spawn().unwrap();
    let session = wait_for("the session", async || {
        let list = output_json(&env.run(&["session", "list", "--json"]));
        let session = list["sessions"].as_array()?.first()?.clone();
        Some(session["id"].as_str()?.to_owned())
    })
    .await;
    wait_for("the turn", async || {
        texts(&env, &session).contains("\"go\"").then_some(())
    })
    .await;
    child.kill().unwrap();
    child.wait().unwrap();
    let server = Server::start(&env);
    // An unattended session that becomes due meanwhile is continued, this one is not.
    let other = server.create_session().await;
    let path = format!("/api/sessions/{other}/threads");
    assert_eq!(server.get(&path).await.0, 200);
    // Several rounds of the upkeep.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    let (_, state) = server.get(&format!("/api/sessions/{session}")).await;
    assert_eq!(state["queue"].as_array().unwrap().len(), 1, "{state}");
}
