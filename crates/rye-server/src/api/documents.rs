//! The description of the API.

use axum::Json;
use axum::response::{IntoResponse as _, Response};

/// The OpenAPI document.
pub(super) async fn openapi() -> Response {
    Json(crate::openapi::openapi()).into_response()
}
