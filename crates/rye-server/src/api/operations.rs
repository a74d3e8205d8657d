//! Health, metrics and the access log.

use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use rye_engine::store::SessionFilter;

use crate::auth::Principal;
use crate::problem::Problem;
use crate::server::App;

/// Media type of metrics.
const METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

/// Whether the process answers.
pub(super) async fn is_alive() -> &'static str {
    "ok\n"
}

/// Whether the server can do its work: the store answers, and it does not shut down.
pub(super) async fn is_ready(State(app): State<App>) -> Result<&'static str, Problem> {
    if app.draining.is_cancelled() {
        let status = axum::http::StatusCode::SERVICE_UNAVAILABLE;
        return Err(Problem::new(
            status,
            "shutting_down",
            "the server shuts down",
        ));
    }
    let filter = SessionFilter {
        limit: 1,
        ..SessionFilter::default()
    };
    app.engine().sessions(filter).await?;
    Ok("ready\n")
}

/// The metrics of the engine.
pub(super) async fn metrics(State(app): State<App>) -> Response {
    let text = app.engine().metrics().prometheus();
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
    let micros = start.elapsed().as_micros();
    tracing::info!(target: "rye_server::access", %method, path, status, token, micros, "request");
    response
}
