//! Event streams of `rye serve`: cut anywhere, resumed anywhere, nothing lost and nothing twice.

use std::collections::BTreeSet;

use crate::serve::env_with;
use crate::serve_support::{Events, Server, SseEvent, SseParser};
use crate::support::TestEnv;
use reqwest::{Method, Response};
use serde_json::{Value, json};

/// A command that needs no approval, and an answer that is generated in pieces.
const CHATTY: &str = "steps:
  - tool_calls: [{ name: read, args: { path: notes.txt } }]
  - { text: 'the notes say: höflich', chunk_chars: 4, chunk_ms: 1 }
  - { text: 'second answer' }
";

fn chatty_env() -> TestEnv {
    let env = env_with(CHATTY);
    env.write("project/notes.txt", "höflich\n");
    env
}

/// Ids of the stored events that a client received, and all data.
#[derive(Default)]
struct Received {
    stored: Vec<(String, Value)>,
}

impl Received {
    fn add(&mut self, events: impl IntoIterator<Item = SseEvent>) {
        let stored = events
            .into_iter()
            .filter_map(|event| Some((event.id?, event.data)));
        self.stored.extend(stored);
    }

    fn last_id(&self) -> Option<&str> {
        self.stored.last().map(|(id, _)| id.as_str())
    }

    fn sequences(&self) -> Vec<u64> {
        self.stored
            .iter()
            .map(|(_, data)| data["sequence"].as_u64().unwrap())
            .collect()
    }
}

/// Connects to a stream of a session after the last event that was received.
async fn connect(server: &Server, session: &str, query: &str, last: Option<&str>) -> Response {
    let path = format!("/api/sessions/{session}/events{query}");
    let mut request = server.request(Method::GET, &path);
    if let Some(last) = last {
        request = request.header("Last-Event-ID", last);
    }
    let response = request.send().await.unwrap();
    assert!(response.status().is_success(), "{}", response.status());
    response
}

/// The whole stream of an idle session, as bytes.
async fn whole_stream(server: &Server, session: &str) -> Vec<u8> {
    let response = connect(server, session, "?after=0&until=idle", None).await;
    response.bytes().await.unwrap().to_vec()
}

/// Parses the beginning of a stream, which may end within a character.
fn parse(bytes: &[u8]) -> Vec<SseEvent> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap(),
    };
    SseParser::default().push(text)
}

async fn finished_session(server: &Server) -> String {
    let session = server.create_session().await;
    let item = server.prompt(&session, "go").await;
    assert_eq!(server.answer(&item).await["text"], "the notes say: höflich");
    session
}

#[tokio::test]
async fn stream_cut_at_every_byte_and_resumed_equals_the_stored_events() {
    let env = chatty_env();
    let servers = [Server::start(&env), Server::start(&env)];
    let session = finished_session(&servers[0]).await;
    let whole = whole_stream(&servers[0], &session).await;
    let mut expected = Received::default();
    expected.add(parse(&whole));
    let count = expected.stored.len() as u64;
    assert_eq!(expected.sequences(), (1..=count).collect::<Vec<_>>());
    // Whichever server is asked, and wherever the first connection ends.
    assert_eq!(
        parse(&whole_stream(&servers[1], &session).await),
        parse(&whole)
    );
    let mut tails: std::collections::HashMap<(usize, String), Vec<SseEvent>> = [].into();
    for cut in 0..=whole.len() {
        let mut received = Received::default();
        received.add(parse(&whole[..cut]));
        let Some(last) = received.last_id().map(str::to_owned) else {
            continue;
        };
        // The response depends on the position only, so ask once for each.
        let other = cut % 2;
        let key = (other, last.clone());
        if !tails.contains_key(&key) {
            let response = connect(&servers[other], &session, "?until=idle", Some(&last)).await;
            let is_end = response.status() == 204;
            let tail = parse(&response.bytes().await.unwrap());
            assert_eq!(is_end, tail.is_empty());
            tails.insert(key.clone(), tail);
        }
        received.add(tails[&key].clone());
        assert_eq!(received.stored, expected.stored, "cut after {cut} bytes");
    }
}

#[tokio::test]
async fn stream_cut_while_the_session_runs_misses_nothing_at_two_servers() {
    let env = chatty_env();
    let servers = [Server::start(&env), Server::start(&env)];
    let session = servers[0].create_session().await;
    let item = servers[1].prompt(&session, "go").await;
    let mut received = Received::default();
    // Cut after more and more bytes, alternating between the server that runs the session and
    // the other one.
    for round in 1.. {
        let last = received.last_id().unwrap_or("0").to_owned();
        let server = &servers[round % 2];
        let mut response = connect(server, &session, "?until=idle", Some(&last)).await;
        if response.status() == 204 {
            break;
        }
        let mut bytes = Vec::new();
        let mut is_cut = false;
        while let Some(chunk) = response.chunk().await.unwrap() {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > round * 97 {
                bytes.truncate(round * 97);
                is_cut = true;
                break;
            }
        }
        received.add(parse(&bytes));
        assert!(round < 1000 || is_cut, "the stream makes no progress");
    }
    assert_eq!(servers[0].answer(&item).await["end"], "end_turn");
    let mut expected = Received::default();
    expected.add(parse(&whole_stream(&servers[0], &session).await));
    assert_eq!(received.stored, expected.stored);
}

#[tokio::test]
async fn without_a_position_the_state_comes_first_and_live_text_has_no_id() {
    let env = chatty_env();
    let server = Server::start(&env);
    let session = server.create_session().await;
    let mut events = server.events(&session, "").await;
    let init = events.next().await.unwrap();
    assert_eq!(init.name, "init");
    assert_eq!(init.data["session"]["id"], session.as_str());
    assert_eq!(init.id.as_deref(), init.data["cursor"].as_str());
    server.prompt(&session, "go").await;
    let mut text = String::new();
    loop {
        let event = events.next().await.unwrap();
        match event.name.as_str() {
            "text_delta" => {
                assert_eq!(event.id, None);
                text += event.data["data"]["text"].as_str().unwrap();
            }
            "turn_end" => break,
            _ => {}
        }
    }
    assert_eq!(text, "the notes say: höflich");
}

#[tokio::test]
async fn filter_selects_events_by_name_and_thread() {
    let env = chatty_env();
    let server = Server::start(&env);
    let session = finished_session(&server).await;
    let path = format!("/api/sessions/{session}/threads/other/prompts");
    let (status, accepted) = server.post(&path, &json!({ "text": "go" })).await;
    assert_eq!(status, 202, "{accepted}");
    server.answer(accepted["id"].as_str().unwrap()).await;
    let query = "?after=0&until=idle&types=turn_end,thread_start&thread=other";
    let events = server.events(&session, query).await.rest().await;
    let names: Vec<_> = events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(names, ["thread_start", "turn_end"]);
    let threads: BTreeSet<_> = events
        .iter()
        .map(|it| it.data["thread"].to_string())
        .collect();
    assert_eq!(threads.len(), 1);
}

#[tokio::test]
async fn position_that_does_not_exist_is_reset() {
    let env = chatty_env();
    let server = Server::start(&env);
    let session = finished_session(&server).await;
    let (_, state) = server.get(&format!("/api/sessions/{session}")).await;
    let cursor = state["cursor"].as_str().unwrap().to_owned();
    let (incarnation, number) = cursor.rsplit_once('-').unwrap();
    let future = format!("{incarnation}-{}", number.parse::<u64>().unwrap() + 1);
    for unknown in [future, format!("abc-{number}")] {
        let query = format!("?after={unknown}");
        let mut events = server.events(&session, &query).await;
        assert_eq!(events.next().await.unwrap().name, "reset");
        let init = events.next().await.unwrap();
        assert_eq!(
            (init.name.as_str(), init.id.as_deref()),
            ("init", Some(&*cursor))
        );
    }
    // A deleted session that is imported again is another incarnation.
    let path = format!("/api/sessions/{session}/export");
    let export = server
        .request(Method::GET, &path)
        .send()
        .await
        .unwrap()
        .bytes()
        .await
        .unwrap();
    let path = format!("/api/sessions/{session}");
    let deleted = server.request(Method::DELETE, &path).send().await.unwrap();
    assert_eq!(deleted.status(), 204);
    let path = "/api/sessions/import?allow_unverified=true";
    let import = server.request(Method::POST, path).body(export);
    let (status, imported) = crate::serve_support::answer(import).await;
    assert_eq!(status, 201, "{imported}");
    let mut events = server.events(&session, &format!("?after={cursor}")).await;
    assert_eq!(events.next().await.unwrap().name, "reset");
    // Text that is no position is an error.
    let path = format!("/api/sessions/{session}/events?after=soon");
    assert_eq!(server.get(&path).await.1["code"], "invalid_cursor");
}

#[tokio::test]
async fn events_of_all_sessions_arrive_also_from_another_process() {
    let env = chatty_env();
    let servers = [Server::start(&env), Server::start(&env)];
    let path = "/api/events?types=turn_end";
    let response = servers[0].request(Method::GET, path).send().await.unwrap();
    let mut events = Events::new(response);
    assert_eq!(events.next().await.unwrap().name, "init");
    for server in &servers {
        let session = finished_session(server).await;
        let end = events.until("turn_end").await;
        assert_eq!((end.id, &end.data["session"]), (None, &json!(session)));
        // The position continues the session's own stream.
        let cursor = end.data["cursor"].as_str().unwrap();
        let query = format!("?after={cursor}&until=idle");
        let response = connect(server, &session, &query, None).await;
        let rest = parse(&response.bytes().await.unwrap());
        assert!(
            rest.iter().all(|event| event.name != "turn_end"),
            "{rest:?}"
        );
    }
}

/// A command ends when its agent waits for a decision, and holds the session for a moment only.
#[tokio::test]
async fn gates_of_sessions_that_nobody_holds_open_and_close_at_once() {
    let env = env_with(
        "steps:
  - tool_calls: [{ name: bash, args: { command: 'echo hi' } }]
  - { text: 'done' }
",
    );
    let server = Server::start(&env);
    let path = "/api/events?types=decision_gate,decision_gate_resolved";
    let response = server.request(Method::GET, path).send().await.unwrap();
    let mut events = Events::new(response);
    assert_eq!(events.next().await.unwrap().name, "init");
    for decision in ["deny", "approve"] {
        let prompt = ["prompt", "go", "--model", "scripted:agent.yaml"];
        let options = ["--sandbox", "local", "--no-wait"];
        let waiting = env.run(&[&prompt[..], &options].concat());
        assert!(!waiting.status.success(), "{waiting:?}");
        let opened = events.next().await.unwrap();
        assert_eq!(opened.name, "decision_gate");
        let id = opened.data["data"]["gate"]["id"].as_str().unwrap();
        let decided = env.run(&["gate", decision, id]);
        assert!(decided.status.success(), "{decided:?}");
        let closed = events.next().await.unwrap();
        assert_eq!(closed.name, "decision_gate_resolved");
        assert_eq!(closed.data["data"]["gate"], json!(id), "{closed:?}");
    }
}

/// The decision is written past the server, which holds the session.
#[tokio::test]
async fn gate_that_another_process_decides_closes_at_once_and_in_order() {
    let env = env_with(
        "steps:
  - tool_calls: [{ name: bash, args: { command: 'echo hi' } }]
  - { text: 'done' }
",
    );
    let server = Server::start(&env);
    let response = server.request(Method::GET, "/api/events").send().await;
    let mut events = Events::new(response.unwrap());
    assert_eq!(events.next().await.unwrap().name, "init");
    let session = server.create_session().await;
    server.prompt(&session, "go").await;
    let mut numbers = Vec::new();
    let mut names = Vec::new();
    while names.last().is_none_or(|name| name != "turn_end") {
        let event = events.next().await.unwrap();
        numbers.extend(event.data["sequence"].as_u64());
        if event.name == "decision_gate" {
            let id = event.data["data"]["gate"]["id"].as_str().unwrap();
            assert!(env.run(&["gate", "approve", id]).status.success());
        }
        names.push(event.name);
    }
    assert!(
        names.iter().any(|it| it == "decision_gate_resolved"),
        "{names:?}"
    );
    let first = numbers[0];
    let expected: Vec<_> = (first..).take(numbers.len()).collect();
    assert_eq!(numbers, expected);
}

#[tokio::test]
async fn deletion_ends_the_stream() {
    let env = chatty_env();
    let server = Server::start(&env);
    let session = finished_session(&server).await;
    let mut events = server.events(&session, "").await;
    assert_eq!(events.next().await.unwrap().name, "init");
    let path = format!("/api/sessions/{session}");
    let deleted = server.request(Method::DELETE, &path).send().await.unwrap();
    assert_eq!(deleted.status(), 204);
    let names: Vec<_> = events
        .rest()
        .await
        .into_iter()
        .map(|event| event.name)
        .collect();
    assert_eq!(names.last().unwrap(), "deleted");
}
