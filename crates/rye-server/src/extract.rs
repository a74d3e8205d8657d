//! Extractors whose errors are problem documents.

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use rye_protocol::json;
use serde::de::DeserializeOwned;

use crate::problem::Problem;

/// A JSON body.
pub(crate) struct Body<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let kind = request.headers().get(header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        if !kind.eq_ignore_ascii_case("application/json") {
            let detail = "the body must have the content type application/json";
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return Err(Problem::new(status, "content_type", detail));
        }
        let bytes = body_bytes(request, state).await?;
        parse(&bytes).map(Self)
    }
}

/// The bytes of a body, up to the limit of the server.
pub(crate) async fn body_bytes<S: Send + Sync>(
    request: Request,
    state: &S,
) -> Result<Bytes, Problem> {
    let bytes = Bytes::from_request(request, state).await;
    bytes.map_err(|error| {
        let is_too_long = matches!(
            &error,
            BytesRejection::FailedToBufferBody(error) if error.status() == StatusCode::PAYLOAD_TOO_LARGE
        );
        if is_too_long {
            let status = StatusCode::PAYLOAD_TOO_LARGE;
            Problem::new(status, "body_too_large", "the body is too large")
        } else {
            Problem::invalid("body_incomplete", "the body is incomplete")
        }
    })
}

/// Parses a JSON body.
fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let invalid = |why: String| Problem::invalid("invalid_body", why);
    let text = std::str::from_utf8(bytes).map_err(|_| invalid("the body is not UTF-8".into()))?;
    // Refuses integers that would change their digits.
    let value = json::parse(text).map_err(|error| invalid(format!("invalid JSON: {error}")))?;
    T::deserialize(value).map_err(|error| invalid(format!("invalid body: {error}")))
}

/// The query of a URL.
pub(crate) struct Params<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query = Query::from_request_parts(parts, state).await;
        let query = query
            .map_err(|error: QueryRejection| Problem::invalid("invalid_query", error.body_text()));
        query.map(|Query(params)| Self(params))
    }
}

/// The parameters in the path of a URL.
pub(crate) struct Segments<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Segments<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::from_request_parts(parts, state).await;
        let path = path.map_err(|error| Problem::invalid("invalid_id", error.body_text()));
        path.map(|Path(segments)| Self(segments))
    }
}
