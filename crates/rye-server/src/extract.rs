//! Extractors whose errors are problem documents.

use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use futures_util::StreamExt;
use rye_protocol::json;
use serde::de::DeserializeOwned;

use crate::problem::Problem;

/// The size of the largest body that the server accepts; an extension of each request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodyLimit(pub(crate) usize);

/// How much of a body beyond the limit the server reads and discards. A connection that is closed
/// while the client still sends loses the response.
const MAX_DISCARDED: usize = 64 * 1024 * 1024;

/// A JSON body.
pub(crate) struct Body<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let kind = request.headers().get(header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        if !kind.eq_ignore_ascii_case("application/json") {
            let detail = "the body must have the content type application/json";
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return Err(Problem::new(status, "content_type", detail));
        }
        let bytes = body_bytes(request).await?;
        parse(&bytes).map(Self)
    }
}

/// The bytes of a body, up to the limit of the server.
pub(crate) async fn body_bytes(request: Request) -> Result<Bytes, Problem> {
    let limit = request.extensions().get::<BodyLimit>();
    let limit = limit.map_or(usize::MAX, |limit| limit.0);
    let mut chunks = request.into_body().into_data_stream();
    let mut bytes = Vec::new();
    let mut discarded = 0;
    while let Some(chunk) = chunks.next().await {
        let chunk =
            chunk.map_err(|_| Problem::invalid("body_incomplete", "the body is incomplete"))?;
        if discarded == 0 && chunk.len() <= limit - bytes.len() {
            bytes.extend_from_slice(&chunk);
            continue;
        }
        discarded += chunk.len();
        if discarded > MAX_DISCARDED {
            break;
        }
    }
    if discarded > 0 {
        let detail = format!("the body has more than {limit} bytes");
        let status = StatusCode::PAYLOAD_TOO_LARGE;
        return Err(Problem::new(status, "body_too_large", detail));
    }
    Ok(bytes.into())
}

/// Parses a JSON body.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let invalid = |why: String| Problem::invalid("invalid_body", why);
    let text = std::str::from_utf8(bytes).map_err(|_| invalid("the body is not UTF-8".into()))?;
    // Keeps the digits of large integers.
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
