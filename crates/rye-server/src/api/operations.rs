//! Health, metrics and the access log.

use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use tokio::sync::Mutex;

use crate::auth::Principal;
use crate::problem::Problem;
use crate::server::App;

/// Media type of metrics.
const METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

/// How long the store has to answer.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

/// How long an answer of the store is used: requests need no token.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// When the store was last checked, and whether it answered.
#[derive(Debug, Default)]
pub(crate) struct Readiness(Mutex<Option<(Instant, bool)>>);

impl Readiness {
    /// Whether the store can be read and written, and has the format of this program.
    async fn check(&self, app: &App) -> bool {
        let mut last = self.0.lock().await;
        if let Some((at, is_ready)) = *last
            && at.elapsed() < CHECK_INTERVAL
        {
            return is_ready;
        }
        let checked = tokio::time::timeout(STORE_TIMEOUT, app.engine().store().check()).await;
        let is_ready = match checked {
            Ok(Ok(())) => true,
            // The error names files, and the request needs no token.
            Ok(Err(error)) => {
                tracing::warn!(%error, "the session store is not ready");
                false
            }
            Err(_) => {
                tracing::warn!("the session store does not answer");
                false
            }
        };
        *last = Some((Instant::now(), is_ready));
        is_ready
    }
}

/// Whether the process answers.
pub(super) async fn is_alive() -> &'static str {
    "ok\n"
}

/// Whether the server can do its work: the store answers, and it does not shut down.
pub(super) async fn is_ready(State(app): State<App>) -> Result<&'static str, Problem> {
    if app.draining.is_cancelled() {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        return Err(Problem::new(
            status,
            "shutting_down",
            "the server shuts down",
        ));
    }
    if !app.readiness.check(&app).await {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        let detail = "the session store cannot be read and written; the log has the reason";
        return Err(Problem::new(status, "store_unavailable", detail).retry_after(1));
    }
    Ok("ready\n")
}

/// The metrics of the engine and of event streams.
pub(super) async fn metrics(State(app): State<App>) -> Response {
    let streams = app.stream_metrics.registry();
    let text = app.engine().metrics().prometheus_with(streams);
    ([(header::CONTENT_TYPE, METRICS)], text).into_response()
}

/// Middleware that logs requests. Paths contain ids but no secrets; queries are not logged.
pub(super) async fn log_access(request: Request, next: Next) -> Response {
    let start = Instant::now();
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let response = next.run(request).await;
    let principal = response.extensions().get::<Principal>();
    let token = principal.map(|it| it.token().id.as_str());
    let status = response.status().as_u16();
    let micros = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
    tracing::info!(target: "rye_server::access", %method, path, status, token, micros, "request");
    response
}
