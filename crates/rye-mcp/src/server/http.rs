//! Serves clients over streamable HTTP.
//!
//! On loopback, any local user may call; elsewhere, clients need a bearer token. The `Origin` and
//! `Host` of each request are checked, so that a web page cannot use a browser to call a server
//! on the same machine.

pub mod connections;
mod guard;
mod rate_limit;
mod sessions;

use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_LENGTH;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use rmcp::ServerHandler;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::lines::exact_integers;
use connections::Limits;
pub use guard::BearerTokens;
use sessions::ResumableSessions;

/// Access control and limits of the HTTP server.
#[derive(Debug, Clone)]
pub struct Options {
    /// Accepted bearer tokens; if empty, no token is needed.
    pub tokens: BearerTokens,
    /// Accepted `Host` names, in addition to loopback.
    pub hosts: Vec<String>,
    /// Accepted `Origin`s such as `https://example.org:443`, in addition to loopback.
    pub origins: Vec<String>,
    /// Maximum size of a request body, in bytes.
    pub max_body: usize,
    /// Maximum requests per second and client address.
    pub rate: Option<u32>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tokens: BearerTokens::default(),
            hosts: Vec::new(),
            origins: Vec::new(),
            max_body: 16 * 1024 * 1024,
            rate: None,
        }
    }
}

/// Recommended number of runtime threads: half of the processors. Tools need the other half, and
/// waking a sleeping thread takes longer than handling a small request.
pub fn worker_threads() -> usize {
    let processors = std::thread::available_parallelism();
    processors.map_or(1, |processors| (processors.get() / 2).max(1))
}

/// Limit for the head of a request, for each part of its body, and for an idle connection.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum number of open connections.
const MAX_CONNECTIONS: usize = 1024;

/// How long a shutdown waits for clients that do not read their responses.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Path of the MCP endpoint.
pub const PATH: &str = "/mcp";

/// Serves clients until `stop` is cancelled. `make` creates the handler of a connection.
///
/// After `stop`, no new connections are accepted. The function waits for `drain`, which should
/// complete when all calls have ended, and then closes the event streams.
pub async fn serve<H: ServerHandler>(
    listener: TcpListener,
    make: impl Fn() -> H + Send + Sync + 'static,
    options: &Options,
    stop: CancellationToken,
    drain: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let streams = CancellationToken::new();
    let config = config(listener.local_addr()?, options, streams.clone());
    let sessions = Arc::new(ResumableSessions::default());
    let service = StreamableHttpService::new(move || Ok(make()), sessions, config);
    let guard = guard::Guard::new(options);
    let responses = TaskTracker::new();
    let max_body = options.max_body;
    let router = Router::new()
        .nest_service(PATH, service)
        .layer(middleware::from_fn_with_state(max_body, keep_integers))
        .layer(middleware::from_fn_with_state(
            (guard, responses.clone()),
            guard::check,
        ));
    let serving = connections::serve(
        listener,
        router,
        Limits::new(MAX_CONNECTIONS, READ_TIMEOUT),
        stop.clone(),
    );
    let shutdown = async move {
        stop.cancelled().await;
        drain.await;
        responses.close();
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, responses.wait()).await;
        streams.cancel();
    };
    tokio::join!(serving, shutdown);
    Ok(())
}

fn config(
    address: SocketAddr,
    options: &Options,
    streams: CancellationToken,
) -> StreamableHttpServerConfig {
    let loopback = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let bound_address = (!address.ip().is_unspecified()).then(|| address.ip().to_string());
    let hosts = loopback.into_iter().chain(bound_address);
    let origins = ["localhost", "127.0.0.1", "[::1]"];
    let origins = origins.map(|host| format!("http://{host}:*"));
    let mut config = StreamableHttpServerConfig::default()
        .with_allowed_hosts(hosts.chain(options.hosts.iter().cloned()))
        .with_allowed_origins(origins.into_iter().chain(options.origins.iter().cloned()))
        .enforce_origin_validation()
        .with_max_request_body_bytes(options.max_body)
        .with_cancellation_token(streams);
    config.sse_keep_alive = Some(Duration::from_secs(15));
    config
}

/// Middleware that keeps the digits of integers of more than 64 bits in a message, as strings.
async fn keep_integers(State(max_body): State<usize>, request: Request, next: Next) -> Response {
    let (mut head, body) = request.into_parts();
    let body = match Limited::new(body, max_body).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            return (StatusCode::PAYLOAD_TOO_LARGE, "the message is too long\n").into_response();
        }
        Err(_) => return (StatusCode::BAD_REQUEST, "the message is incomplete\n").into_response(),
    };
    let body = match exact_integers(&body) {
        Cow::Owned(changed) => {
            head.headers.remove(CONTENT_LENGTH);
            changed.into()
        }
        Cow::Borrowed(_) => body,
    };
    next.run(Request::from_parts(head, Body::from(body))).await
}

/// A body that holds a guard until it is sent completely or dropped.
fn with_guard(body: Body, guard: impl Send + 'static) -> Body {
    Body::new(body.map_err(move |error| {
        let _held = &guard;
        error
    }))
}
