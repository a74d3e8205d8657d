//! `/acp`: the Agent Client Protocol over WebSocket, one message of the protocol in each text
//! message. The sessions are those that the token may see, in the project of the server.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::StatusCode;
use axum::response::Response;
use rye_acp::{Caller, MAX_MESSAGE, serve_remote};
use rye_store::Scope;
use tokio::sync::mpsc;

use crate::api::new_session;
use crate::auth::Principal;
use crate::problem::Problem;
use crate::server::App;

/// Interval of pings that keep proxies from closing an idle connection.
const PING_INTERVAL: Duration = Duration::from_secs(15);

/// How many messages wait in each direction.
const QUEUED: usize = 64;

/// Serves an editor over WebSocket.
pub(crate) async fn socket(
    State(app): State<App>,
    who: Principal,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    who.require(Scope::Read)?;
    // Fails if the token belongs to another project.
    new_session(&app, &who, None, None)?;
    let upgrade = upgrade.map_err(|error| {
        let status = StatusCode::UPGRADE_REQUIRED;
        Problem::new(status, "websocket_required", error.body_text())
    })?;
    let upgrade = upgrade
        .max_message_size(MAX_MESSAGE)
        .max_frame_size(MAX_MESSAGE);
    Ok(upgrade.on_upgrade(async move |socket| serve(&app, &who, socket).await))
}

async fn serve(app: &App, who: &Principal, mut socket: WebSocket) {
    let (to_agent, incoming) = mpsc::channel(QUEUED);
    let (outgoing, mut from_agent) = mpsc::channel(QUEUED);
    let agent = serve_remote(
        app.sessions.engine.clone(),
        Arc::clone(&app.projects),
        caller(who),
        incoming,
        outgoing,
    );
    let agent = tokio::spawn(agent);
    let mut ping = tokio::time::interval(PING_INTERVAL);
    loop {
        let message = tokio::select! {
            line = from_agent.recv() => match line {
                Some(line) => Message::Text(line.into()),
                None => break,
            },
            message = socket.recv() => match message {
                Some(Ok(Message::Text(text))) => {
                    if to_agent.send(text.to_string()).await.is_err() {
                        break;
                    }
                    continue;
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => break,
                // Pongs.
                Some(Ok(_)) => continue,
            },
            _ = ping.tick() => Message::Ping(axum::body::Bytes::new()),
            () = app.draining.cancelled() => break,
        };
        if socket.send(message).await.is_err() {
            break;
        }
    }
    // The agent ends when there are no more messages. What runs in its sessions goes on.
    drop((to_agent, from_agent));
    let _ = agent.await;
    let _ = socket.send(Message::Close(None)).await;
}

/// The caller, with what the token permits.
fn caller(who: &Principal) -> Caller {
    let token = who.token();
    let (name, sees) = (who.name().to_owned(), who.clone());
    Caller {
        name,
        user: token.user.clone(),
        org: token.org.clone(),
        can_prompt: token.permits(Scope::Prompt),
        can_decide: token.permits(Scope::Decide),
        can_see: Arc::new(move |session| sees.can_see(session)),
    }
}
