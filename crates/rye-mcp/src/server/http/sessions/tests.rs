use rmcp::RoleServer;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::streamable_http_server::session::{ServerSseMessage, SessionManager as _};
use serde_json::{Value, json};
use tokio_stream::{Stream, StreamExt as _};

use super::*;

fn client(message: Value) -> ClientJsonRpcMessage {
    serde_json::from_value(message).unwrap()
}

fn server(message: Value) -> ServerJsonRpcMessage {
    serde_json::from_value(message).unwrap()
}

fn call(id: u64) -> ClientJsonRpcMessage {
    client(json!({
        "jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": { "name": "x", "_meta": { "progressToken": id } },
    }))
}

fn answer(id: u64) -> ServerJsonRpcMessage {
    server(json!({ "jsonrpc": "2.0", "id": id, "result": {} }))
}

fn progress(token: u64, progress: u64) -> ServerJsonRpcMessage {
    let params = json!({ "progressToken": token, "progress": progress });
    server(json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params }))
}

fn news() -> ServerJsonRpcMessage {
    server(json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" }))
}

/// The ids of all events up to the end.
async fn ids(stream: impl Stream<Item = ServerSseMessage>) -> Vec<String> {
    let ids = stream.map(|event| event.event_id.unwrap_or_default());
    ids.collect().await
}

async fn say(end: &mut End, message: ServerJsonRpcMessage) {
    Transport::<RoleServer>::send(end, message).await.unwrap();
}

#[tokio::test]
async fn what_is_about_a_request_comes_on_its_stream_which_ends_with_the_answer() {
    let sessions = Sessions::default();
    let (id, mut end) = sessions.create_session().await.unwrap();
    let one = sessions.create_stream(&id, call(1)).await.unwrap();
    let two = sessions.create_stream(&id, call(2)).await.unwrap();
    assert!(end.receive().await.is_some() && end.receive().await.is_some());
    say(&mut end, progress(2, 1)).await;
    say(&mut end, answer(2)).await;
    say(&mut end, progress(1, 1)).await;
    say(&mut end, progress(1, 2)).await;
    say(&mut end, answer(1)).await;
    assert_eq!(ids(one).await, ["0/0", "1/0", "2/0", "3/0"]);
    assert_eq!(ids(two).await, ["0/1", "1/1", "2/1"]);
}

#[tokio::test]
async fn who_was_cut_off_hears_the_rest_before_and_after_the_answer() {
    let sessions = Sessions::default();
    let (id, mut end) = sessions.create_session().await.unwrap();
    drop(sessions.create_stream(&id, call(1)).await.unwrap());
    say(&mut end, progress(1, 1)).await;
    let back = sessions.resume(&id, "0/0".into()).await.unwrap();
    say(&mut end, answer(1)).await;
    assert_eq!(ids(back).await, ["1/0", "2/0"]);
    let again = sessions.resume(&id, "1/0".into()).await.unwrap();
    assert_eq!(ids(again).await, ["2/0"]);
    for wrong in ["0/7", "x", "0/x", "-1/0"] {
        assert!(sessions.resume(&id, wrong.into()).await.is_err(), "{wrong}");
    }
    let (other, _end) = sessions.create_session().await.unwrap();
    assert!(sessions.resume(&other, "0/0".into()).await.is_err());
}

#[tokio::test]
async fn the_last_answers_are_kept_and_those_of_a_session_that_ended_are_not() {
    let sessions = Sessions::default();
    let (id, mut end) = sessions.create_session().await.unwrap();
    for number in 0..=KEPT as u64 {
        drop(sessions.create_stream(&id, call(number)).await.unwrap());
        end.receive().await.unwrap();
        say(&mut end, answer(number)).await;
    }
    assert!(sessions.resume(&id, "0/0".into()).await.is_err());
    assert!(sessions.resume(&id, "0/1".into()).await.is_ok());
    sessions.close_session(&id).await.unwrap();
    assert!(sessions.given.0.lock().unwrap().is_empty());
}

#[tokio::test]
async fn one_hears_what_is_about_no_request_and_a_second_listener_does_not_cut_it_off() {
    let sessions = Sessions::default();
    let (id, mut end) = sessions.create_session().await.unwrap();
    say(&mut end, news()).await;
    let mut first = sessions.create_standalone_stream(&id).await.unwrap();
    let mut second = sessions.create_standalone_stream(&id).await.unwrap();
    assert_eq!(first.next().await.unwrap().event_id.unwrap(), "1");
    say(&mut end, news()).await;
    drop(first);
    // What the first had not heard, who comes next hears.
    let third = sessions.create_standalone_stream(&id).await.unwrap();
    sessions.close_session(&id).await.unwrap();
    assert_eq!(ids(third).await, ["2"]);
    assert!(second.next().await.is_none());
}

#[tokio::test]
async fn a_slow_listener_loses_news_and_never_the_answer() {
    let sessions = Sessions::default();
    let (id, mut end) = sessions.create_session().await.unwrap();
    let stream = sessions.create_stream(&id, call(1)).await.unwrap();
    for number in 0..1000 {
        say(&mut end, progress(1, number)).await;
    }
    say(&mut end, answer(1)).await;
    let ids = ids(stream).await;
    assert_eq!(ids.len(), 256);
    assert_eq!(ids.last().unwrap(), "1001/0");
}

#[tokio::test]
async fn a_session_that_ends_ends_its_streams_and_takes_no_more() {
    let sessions = Sessions::default();
    let (id, mut end) = sessions.create_session().await.unwrap();
    let stream = sessions.create_stream(&id, call(1)).await.unwrap();
    let cancelled = client(json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 },
    }));
    sessions.accept_message(&id, cancelled).await.unwrap();
    assert_eq!(ids(stream).await, ["0/0"]);
    let stream = sessions.create_stream(&id, call(2)).await.unwrap();
    for _ in 0..3 {
        assert!(end.receive().await.is_some());
    }
    drop(end);
    assert_eq!(ids(stream).await, ["0/1"]);
    assert!(sessions.create_stream(&id, call(3)).await.is_err());
    sessions.close_session(&id).await.unwrap();
    assert!(!sessions.has_session(&id).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn only_a_session_in_which_nothing_happens_is_forgotten() {
    let sessions = Sessions::default();
    let (id, mut end) = sessions.create_session().await.unwrap();
    let stream = sessions.create_stream(&id, call(1)).await.unwrap();
    end.receive().await.unwrap();
    let hours = Duration::from_hours(2);
    // A call runs, so it goes on.
    assert!(tokio::time::timeout(hours, end.receive()).await.is_err());
    say(&mut end, answer(1)).await;
    drop(stream);
    let listener = sessions.create_standalone_stream(&id).await.unwrap();
    assert!(tokio::time::timeout(hours, end.receive()).await.is_err());
    drop(listener);
    let ended = tokio::time::timeout(hours, end.receive()).await;
    assert!(ended.unwrap().is_none());
}
