//! The server over streamable HTTP.
//!
//! On loopback anybody on the machine may call; elsewhere a bearer token is needed. Pages
//! of other sites are kept out by the `Origin` and `Host` of a request, so that a
//! browser cannot be made to call a server on its own machine.

mod answers;
mod connections;
mod guard;
mod rate;
mod sessions;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware;
use rmcp::ServerHandler;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use answers::Answers;
use connections::Limits;
pub use guard::BearerTokens;
use sessions::Sessions;

/// Who may call, and how much.
#[derive(Debug, Clone)]
pub struct Options {
    /// The tokens of those who may call; with none, anybody may.
    pub tokens: BearerTokens,
    /// Names under which the server is reached, beside those of loopback.
    pub hosts: Vec<String>,
    /// Web pages that may call, such as `https://example.org:443`, beside those of loopback.
    pub origins: Vec<String>,
    /// The longest request, in bytes.
    pub max_body: usize,
    /// How many requests a second one address may make.
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

/// How many threads serve best: half the processors. What a call runs has the other half,
/// and to hand a small answer to a thread that sleeps takes longer than to make it.
pub fn worker_threads() -> usize {
    let processors = std::thread::available_parallelism();
    processors.map_or(1, |processors| (processors.get() / 2).max(1))
}

/// How long a client may take to send the head of a request or the next part of its body, and
/// how long a connection may be idle.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Where clients find the server.
pub const PATH: &str = "/mcp";

/// Serves clients until told to stop. `make` gives a handler for each connection.
///
/// Once `stop` is cancelled no connection is taken any more, and `finish` is awaited: what
/// runs, runs to its end. Then the streams are closed.
pub async fn serve<H: ServerHandler>(
    listener: TcpListener,
    make: impl Fn() -> H + Send + Sync + 'static,
    options: &Options,
    stop: CancellationToken,
    finish: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let streams = CancellationToken::new();
    let config = config(listener.local_addr()?, options, streams.clone());
    let sessions = Arc::new(Sessions::default());
    let service = StreamableHttpService::new(move || Ok(make()), sessions, config);
    let guard = guard::Guard::new(options);
    let answers = Answers::default();
    let router = Router::new()
        .nest_service(PATH, service)
        .layer(middleware::from_fn_with_state(
            (guard, answers.clone()),
            guard::check,
        ));
    let serving = connections::serve(
        listener,
        router,
        Limits::with_timeout(READ_TIMEOUT),
        stop.clone(),
    );
    let ending = async move {
        stop.cancelled().await;
        finish.await;
        answers.sent().await;
        streams.cancel();
    };
    tokio::join!(serving, ending);
    Ok(())
}

fn config(
    address: SocketAddr,
    options: &Options,
    streams: CancellationToken,
) -> StreamableHttpServerConfig {
    let loopback = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let own = (!address.ip().is_unspecified()).then(|| address.ip().to_string());
    let hosts = loopback.into_iter().chain(own);
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
