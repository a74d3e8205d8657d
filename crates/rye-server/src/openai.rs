//! Endpoints for clients of the OpenAI API: responses, chat completions and models.
//!
//! The model of a request is a role or a model of Rye. A response is a prompt and its conversation
//! is a session, so every other interface can watch and continue it. Tools run in Rye. A pending
//! gate ends a response as `incomplete`; once someone has decided, the work continues, and
//! `GET /v1/responses/{id}` returns the rest.

mod chat;
mod input;
mod models;
mod object;
mod responses;
mod stream;

pub(crate) use input::{Conversation, messages};
pub(crate) use object::{Progress, ResponseId, ResponseInfo, conversation_id};
pub(crate) use responses::{THREAD, shutting_down, submit};
pub(crate) use stream::{ResponseEvent, ResponseStream};

use axum::Router;
use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};

use crate::auth;
use crate::problem::{PROBLEM_JSON, Problem};
use crate::server::App;

/// Maximum size of a problem document.
const MAX_PROBLEM: usize = 64 * 1024;

/// The routes, which need a token like those of the API.
pub(crate) fn routes(app: &App) -> Router<App> {
    let authenticate = middleware::from_fn_with_state(app.clone(), auth::authenticate);
    Router::new()
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*name}", get(models::show))
        .route("/v1/responses", post(responses::create))
        .route("/v1/responses/{id}", get(responses::show))
        .route("/v1/responses/{id}/cancel", post(responses::cancel))
        .route(
            "/v1/responses/{id}/input_items",
            get(responses::input_items),
        )
        .route("/v1/chat/completions", post(chat::create))
        .route_layer(authenticate)
        .route_layer(middleware::from_fn(use_openai_errors))
}

/// Middleware that gives errors the form of OpenAI's API.
async fn use_openai_errors(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let media_type = response.headers().get(header::CONTENT_TYPE);
    if media_type != Some(&PROBLEM_JSON) {
        return response;
    }
    let body = std::mem::take(response.body_mut());
    let bytes = to_bytes(body, MAX_PROBLEM).await.unwrap_or_default();
    let problem = serde_json::from_slice(&bytes).unwrap_or_default();
    let error = error_json(response.status(), &problem);
    let mut converted = (response.status(), axum::Json(json!({ "error": error }))).into_response();
    for (name, value) in response.headers() {
        if name != header::CONTENT_TYPE && name != header::CONTENT_LENGTH {
            converted.headers_mut().append(name, value.clone());
        }
    }
    converted
}

/// An error in the form of OpenAI's API.
fn error_json(status: StatusCode, problem: &Value) -> Value {
    let kind = match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        status if status.is_server_error() => "server_error",
        _ => "invalid_request_error",
    };
    let code = match problem["code"].as_str() {
        Some("unauthorized" | "invalid_token") => "invalid_api_key",
        Some("unknown_model") => "model_not_found",
        code => code.unwrap_or("error"),
    };
    let detail = problem["detail"].as_str().unwrap_or("the request failed");
    let message = match problem["hint"].as_str() {
        Some(hint) => format!("{detail}; hint: {hint}"),
        None => detail.to_owned(),
    };
    json!({ "message": message, "type": kind, "param": problem["param"], "code": code })
}

/// A parameter that Rye does not support.
fn unsupported(param: &str, detail: &str) -> Problem {
    Problem::invalid("unsupported_parameter", format!("`{param}`: {detail}")).with("param", param)
}

/// A parameter with an invalid value.
fn invalid(param: &str, detail: &str) -> Problem {
    Problem::invalid("invalid_value", format!("`{param}`: {detail}")).with("param", param)
}
