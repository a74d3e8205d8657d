//! The baseline: axum handlers without anything else.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::serve::ListenerExt as _;
use axum::{Json, Router};
use rye_engine::protocol::SessionId;
use rye_engine::store::CommandKind;
use rye_engine::{Engine, NewSession, Prompt};
use rye_model::{Catalogue, Script};
use rye_sandbox::VirtualSandbox;
use rye_store::SqliteStore;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

/// A server in this process.
pub(super) struct Bare {
    pub(super) address: SocketAddr,
    _runtime: Runtime,
    _directory: TempDir,
}

impl Bare {
    pub(super) fn start() -> Result<Self> {
        let directory = TempDir::new()?;
        let runtime = Builder::new_multi_thread().enable_all().build()?;
        let store = SqliteStore::open(directory.path().join("sessions.db"))?;
        let address = runtime.block_on(async {
            let models = Catalogue::new(".").with("scripted:bench", Script::default());
            let engine = Engine::builder()
                .store(store)
                .models(models.default_model("scripted:bench"))
                .sandbox(Arc::new(VirtualSandbox::new()))
                .build()?;
            let session = SessionId::new();
            let new = NewSession {
                id: Some(session.clone()),
                ..NewSession::default()
            };
            engine.ensure_session(new).await?;
            engine.command(&session, None, CommandKind::Pause).await?;
            let accept = async move |body: Bytes| {
                accept(&engine, &session, &body)
                    .await
                    .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
            };
            let path = "/api/sessions/{session}/threads/{thread}/prompts";
            let router = Router::new()
                .route("/healthz", get(async || "ok\n"))
                .route(path, post(accept));
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let address = listener.local_addr()?;
            let listener = listener.tap_io(|stream| {
                let _ = stream.set_nodelay(true);
            });
            tokio::spawn(async move { axum::serve(listener, router).await });
            anyhow::Ok(address)
        })?;
        Ok(Self {
            address,
            _runtime: runtime,
            _directory: directory,
        })
    }
}

/// Submits a prompt and returns its id.
async fn accept(
    engine: &Engine,
    session: &SessionId,
    body: &[u8],
) -> Result<(StatusCode, Json<Value>)> {
    let body: Value = serde_json::from_slice(body)?;
    let prompt = Prompt::from(body["text"].as_str().unwrap_or_default());
    let id = engine.submit(session, prompt).await?;
    Ok((StatusCode::ACCEPTED, Json(json!({ "id": id }))))
}
