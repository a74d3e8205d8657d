//! Event streams over WebSocket, with commands in the other direction.

use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::StatusCode;
use axum::response::Response;
use rye_store::Scope;
use serde::Deserialize;
use serde_json::{Value, json};

use super::control::Command;
use super::gates::{NewDecision, decide_one};
use super::prompts::{NewPrompt, submit};
use super::streams::{EventParams, open};
use crate::access::Sessions;
use crate::auth::Principal;
use crate::events::Frame;
use crate::extract::{Params, Segments, parse};
use crate::metrics::{OpenStream, Transport};
use crate::problem::{Problem, ProblemDocument};
use crate::server::App;

/// Interval of pings that keep proxies from closing an idle connection.
const PING_INTERVAL: Duration = Duration::from_secs(15);

/// Maximum size of a command.
const MAX_COMMAND: usize = 16 * 1024 * 1024;

/// A command of a client.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum Action {
    Prompt {
        thread: Option<String>,
        /// Identifies the prompt if it is sent again.
        key: Option<String>,
        prompt: NewPrompt,
    },
    Abort {
        thread: Option<String>,
    },
    Pause {
        thread: Option<String>,
    },
    Resume {
        thread: Option<String>,
    },
    Decide {
        gate: String,
        decision: NewDecision,
    },
}

/// Streams the events of a session over WebSocket, and takes commands
///
/// Each message of the server is `{"id", "event", "data"}` as in the event stream. A client sends
/// `{"request": ANY, "type": "prompt" | "abort" | "pause" | "resume" | "decide", …}` and gets
/// `{"event": "reply", "data": {"request", "status", …}}`.
#[utoipa::path(
    get,
    operation_id = "openSocket",
    path = "/api/sessions/{session}/ws",
    tag = "events",
    params(("session" = String, Path, description = "Id of the session"), EventParams),
    responses(
        (status = 101, description = "Switching to WebSocket"),
        (status = 404, description = "Unknown session", body = ProblemDocument),
        (status = 426, description = "Not a WebSocket request", body = ProblemDocument),
    ),
)]
pub(crate) async fn socket(
    State(app): State<App>,
    who: Principal,
    Segments(session): Segments<String>,
    Params(params): Params<EventParams>,
    upgrade: Result<WebSocketUpgrade, axum::extract::ws::rejection::WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    who.require(Scope::Read)?;
    let stream = open(&app, &who, &session, params, None).await?;
    let upgrade = upgrade.map_err(|error| {
        let status = StatusCode::UPGRADE_REQUIRED;
        Problem::new(status, "websocket_required", error.body_text())
    })?;
    let upgrade = upgrade.max_message_size(MAX_COMMAND);
    Ok(upgrade.on_upgrade(async move |mut socket| {
        let Some(mut stream) = stream else {
            let _ = socket.send(Message::Close(None)).await;
            return;
        };
        let open = OpenStream::new(&app, Transport::Websocket);
        let mut ping = tokio::time::interval(PING_INTERVAL);
        loop {
            let message = tokio::select! {
                frame = stream.next() => match frame {
                    Some(frame) => {
                        open.sent(&frame);
                        frame_message(&frame)
                    }
                    None => break,
                },
                command = socket.recv() => match command {
                    Some(Ok(Message::Text(text))) => {
                        Box::pin(reply(&app, &who, &session, text.as_str())).await
                    }
                    Some(Ok(Message::Close(_)) | Err(_)) | None => break,
                    // Pongs.
                    Some(Ok(_)) => continue,
                },
                _ = ping.tick() => Message::Ping(axum::body::Bytes::new()),
            };
            if socket.send(message).await.is_err() {
                break;
            }
        }
        close(socket).await;
    }))
}

async fn close(mut socket: WebSocket) {
    // The client may be gone.
    let _ = socket.send(Message::Close(None)).await;
}

fn frame_message(frame: &Frame) -> Message {
    let id = frame.cursor.as_ref().map(ToString::to_string);
    let text = json!({ "id": id, "event": frame.name, "data": frame.data });
    Message::Text(text.to_string().into())
}

/// Carries out a command and returns the reply.
async fn reply(app: &App, who: &Principal, session: &str, text: &str) -> Message {
    let (request, action) = parse_command(text);
    let outcome = match action {
        Ok(action) => act(app, who, session, action).await,
        Err(problem) => Err(problem),
    };
    let data = match outcome {
        Ok(result) => json!({ "request": request, "status": 200, "result": result }),
        Err(problem) => json!({
            "request": request,
            "status": problem.status().as_u16(),
            "problem": problem.json(),
        }),
    };
    let text = json!({ "id": null, "event": "reply", "data": data });
    Message::Text(text.to_string().into())
}

/// Parses a command. The reply has the same `request`, which the client chooses.
fn parse_command(text: &str) -> (Value, Result<Action, Problem>) {
    // Not flattened into the action: serde does not reject unknown fields then.
    let mut command: Value = match parse(text.as_bytes()) {
        Ok(command) => command,
        Err(problem) => return (Value::Null, Err(problem)),
    };
    let request = command.as_object_mut().and_then(|it| it.remove("request"));
    let action = serde_json::from_value(command).map_err(|error| {
        let detail = format!("invalid command: {error}");
        Problem::invalid("invalid_body", detail)
    });
    (request.unwrap_or_default(), action)
}

async fn act(app: &App, who: &Principal, session: &str, action: Action) -> Result<Value, Problem> {
    let (thread, command) = match action {
        Action::Prompt {
            thread,
            key,
            prompt,
        } => {
            let thread = thread.unwrap_or_else(|| "default".to_owned());
            let key = key.as_deref().map(str::as_bytes);
            let accepted = submit(app, who, session, thread, key, prompt).await?;
            return Ok(json!(accepted));
        }
        Action::Decide { gate, decision } => {
            who.require(Scope::Decide)?;
            return Ok(json!(decide_one(app, who, &gate, decision).await?));
        }
        Action::Abort { thread } => (thread, Command::Abort),
        Action::Pause { thread } => (thread, Command::Pause),
        Action::Resume { thread } => (thread, Command::Resume),
    };
    who.require(Scope::Prompt)?;
    let snapshot = app.sessions.snapshot(who, session).await?;
    let thread = thread.map(|name| Sessions::thread(&snapshot, &name));
    let thread = thread.transpose()?;
    let key = thread.as_ref().map(|thread| thread.key.as_str());
    let id = &snapshot.session.id;
    app.engine().command(id, key, command.into()).await?;
    Ok(Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_is_parsed_with_its_request() {
        let (request, action) =
            parse_command(r#"{"request": 7, "type": "abort", "thread": "main"}"#);
        assert_eq!(request, 7);
        assert!(matches!(action, Ok(Action::Abort { thread: Some(key) }) if key == "main"));
        let (request, action) = parse_command(r#"{"type": "prompt", "prompt": {"text": "go"}}"#);
        assert_eq!(request, Value::Null);
        assert!(matches!(action, Ok(Action::Prompt { .. })));
        for text in [
            "",
            "[]",
            "{}",
            r#"{"type": "dance"}"#,
            r#"{"type": "abort", "tread": "x"}"#,
        ] {
            assert!(parse_command(text).1.is_err(), "{text}");
        }
        assert_eq!(parse_command(r#"{"request": "a", "type": "dance"}"#).0, "a");
    }
}
