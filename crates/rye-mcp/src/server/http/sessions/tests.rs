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

fn notification() -> ServerJsonRpcMessage {
    server(json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" }))
}

/// Ids of all events until the end of the stream.
async fn ids(stream: impl Stream<Item = ServerSseMessage>) -> Vec<String> {
    let ids = stream.map(|event| event.event_id.unwrap_or_default());
    ids.collect().await
}

async fn send(transport: &mut SessionTransport, message: ServerJsonRpcMessage) {
    Transport::<RoleServer>::send(transport, message)
        .await
        .unwrap();
}

#[tokio::test]
async fn request_stream_carries_its_messages_and_ends_with_the_response() {
    let sessions = Sessions::default();
    let (id, mut transport) = sessions.create_session().await.unwrap();
    let one = sessions.create_stream(&id, call(1)).await.unwrap();
    let two = sessions.create_stream(&id, call(2)).await.unwrap();
    assert!(transport.receive().await.is_some() && transport.receive().await.is_some());
    send(&mut transport, progress(2, 1)).await;
    send(&mut transport, answer(2)).await;
    send(&mut transport, progress(1, 1)).await;
    send(&mut transport, progress(1, 2)).await;
    send(&mut transport, answer(1)).await;
    assert_eq!(ids(one).await, ["0/0", "1/0", "2/0", "3/0"]);
    assert_eq!(ids(two).await, ["0/1", "1/1", "2/1"]);
}

#[tokio::test]
async fn stream_can_be_resumed_before_and_after_the_response() {
    let sessions = Sessions::default();
    let (id, mut transport) = sessions.create_session().await.unwrap();
    drop(sessions.create_stream(&id, call(1)).await.unwrap());
    send(&mut transport, progress(1, 1)).await;
    let back = sessions.resume(&id, "0/0".into()).await.unwrap();
    send(&mut transport, answer(1)).await;
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
async fn recent_responses_are_kept_until_the_session_ends() {
    let sessions = Sessions::default();
    let (id, mut transport) = sessions.create_session().await.unwrap();
    for number in 0..=MAX_FINISHED as u64 {
        drop(sessions.create_stream(&id, call(number)).await.unwrap());
        transport.receive().await.unwrap();
        send(&mut transport, answer(number)).await;
    }
    assert!(sessions.resume(&id, "0/0".into()).await.is_err());
    assert!(sessions.resume(&id, "0/1".into()).await.is_ok());
    sessions.close_session(&id).await.unwrap();
    assert!(sessions.finished.0.lock().unwrap().is_empty());
}

#[tokio::test]
async fn second_standalone_stream_does_not_replace_the_first() {
    let sessions = Sessions::default();
    let (id, mut transport) = sessions.create_session().await.unwrap();
    send(&mut transport, notification()).await;
    let mut first = sessions.create_standalone_stream(&id).await.unwrap();
    let mut second = sessions.create_standalone_stream(&id).await.unwrap();
    assert_eq!(first.next().await.unwrap().event_id.unwrap(), "1");
    send(&mut transport, notification()).await;
    drop(first);
    // The next subscriber receives what the first did not.
    let third = sessions.create_standalone_stream(&id).await.unwrap();
    sessions.close_session(&id).await.unwrap();
    assert_eq!(ids(third).await, ["2"]);
    assert!(second.next().await.is_none());
}

#[tokio::test]
async fn slow_subscriber_loses_notifications_but_not_the_response() {
    let sessions = Sessions::default();
    let (id, mut transport) = sessions.create_session().await.unwrap();
    let stream = sessions.create_stream(&id, call(1)).await.unwrap();
    for number in 0..1000 {
        send(&mut transport, progress(1, number)).await;
    }
    send(&mut transport, answer(1)).await;
    let ids = ids(stream).await;
    assert_eq!(ids.len(), 256);
    assert_eq!(ids.last().unwrap(), "1001/0");
}

#[tokio::test]
async fn ended_session_ends_its_streams_and_rejects_requests() {
    let sessions = Sessions::default();
    let (id, mut transport) = sessions.create_session().await.unwrap();
    let stream = sessions.create_stream(&id, call(1)).await.unwrap();
    let cancelled = client(json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 },
    }));
    sessions.accept_message(&id, cancelled).await.unwrap();
    assert_eq!(ids(stream).await, ["0/0"]);
    let stream = sessions.create_stream(&id, call(2)).await.unwrap();
    for _ in 0..3 {
        assert!(transport.receive().await.is_some());
    }
    drop(transport);
    assert_eq!(ids(stream).await, ["0/1"]);
    assert!(sessions.create_stream(&id, call(3)).await.is_err());
    sessions.close_session(&id).await.unwrap();
    assert!(!sessions.has_session(&id).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn only_idle_session_times_out() {
    let sessions = Sessions::default();
    let (id, mut transport) = sessions.create_session().await.unwrap();
    let stream = sessions.create_stream(&id, call(1)).await.unwrap();
    transport.receive().await.unwrap();
    let hours = Duration::from_hours(2);
    // A call in progress keeps the session.
    assert!(
        tokio::time::timeout(hours, transport.receive())
            .await
            .is_err()
    );
    send(&mut transport, answer(1)).await;
    drop(stream);
    let subscriber = sessions.create_standalone_stream(&id).await.unwrap();
    assert!(
        tokio::time::timeout(hours, transport.receive())
            .await
            .is_err()
    );
    drop(subscriber);
    let ended = tokio::time::timeout(hours, transport.receive()).await;
    assert!(ended.unwrap().is_none());
}
