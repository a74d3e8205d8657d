//! HTTP client that limits the size of messages, for the streamable HTTP transport and for the
//! older HTTP+SSE transport.
//!
//! The SDK's client reads a JSON response of any length. This client stops at the server's
//! limit and answers the call with an error, for JSON responses and for event streams.
//!
//! In a session it sends the first request only when the server has answered the request for
//! the stream of notifications, so that no notification about the call is missed.

mod events;
mod headers;
mod sse;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, StatusCode};
use reqwest::{RequestBuilder, Response};
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorData, JsonRpcMessage, RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::common::client_side_sse::BoxedSseResponse;
use rmcp::transport::common::http_header::{
    EVENT_STREAM_MIME_TYPE, HEADER_LAST_EVENT_ID, HEADER_SESSION_ID, JSON_MIME_TYPE,
};
use rmcp::transport::streamable_http_client::{
    HttpStatusError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use tokio::sync::SetOnce;

use super::config::DEFAULT_MAX_MESSAGE;
use super::diagnostics::excerpt;
use super::stdio::MESSAGE_TOO_LONG;
use crate::lines::exact_integers;
use events::bounded_events;
use headers::{check_authorization, reject_reserved_header};
pub(super) use sse::SseTransport;

/// How many bytes of an error response that is not JSON to read for the error message.
const MAX_ERROR_BODY: usize = 4096;

/// How long the first request waits for the server to answer the request for the stream of
/// notifications. Some servers answer it only with the first notification.
const MAX_NOTIFICATIONS_WAIT: Duration = Duration::from_secs(1);

/// How a server of the HTTP+SSE transport answers a message that is posted to its event stream,
/// according to the specification.
const REJECTED_POST: [StatusCode; 3] = [
    StatusCode::BAD_REQUEST,
    StatusCode::NOT_FOUND,
    StatusCode::METHOD_NOT_ALLOWED,
];

type Error = StreamableHttpError<reqwest::Error>;
type Headers = HashMap<HeaderName, HeaderValue>;

/// HTTP client of one connection, with limited message size.
#[derive(Debug, Clone)]
pub(super) struct BoundedHttpClient {
    http: reqwest::Client,
    /// Set when the server has answered the request for the stream of notifications.
    notifications_answered: Arc<SetOnce<()>>,
    /// Set when the server has rejected a message as servers of the HTTP+SSE transport do.
    is_post_rejected: Arc<AtomicBool>,
}

impl BoundedHttpClient {
    pub(super) fn new(http: reqwest::Client) -> Self {
        Self {
            http,
            notifications_answered: Arc::default(),
            is_post_rejected: Arc::default(),
        }
    }

    /// Whether the server has rejected a message in a way that suggests that it supports only
    /// the HTTP+SSE transport.
    pub(super) fn is_post_rejected(&self) -> bool {
        self.is_post_rejected.load(Ordering::Relaxed)
    }
}

impl StreamableHttpClient for BoundedHttpClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Error> {
        self.post_message_with_max_sse_event_size(
            uri,
            message,
            session_id,
            auth_header,
            custom_headers,
            DEFAULT_MAX_MESSAGE,
        )
        .await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: Headers,
        limit: usize,
    ) -> Result<StreamableHttpPostResponse, Error> {
        if session_id.is_some() && matches!(message, JsonRpcMessage::Request(_)) {
            let answered = self.notifications_answered.wait();
            let _ = tokio::time::timeout(MAX_NOTIFICATIONS_WAIT, answered).await;
        }
        let accept = [EVENT_STREAM_MIME_TYPE, JSON_MIME_TYPE].join(", ");
        let request = self
            .http
            .post(uri.as_ref())
            .header(ACCEPT, accept)
            .header(CONTENT_TYPE, JSON_MIME_TYPE)
            .body(serde_json::to_vec(&message)?);
        let request = with_headers(request, session_id.as_deref(), auth_header, custom_headers)?;
        let response = request.send().await?;
        if session_id.is_none() && REJECTED_POST.contains(&response.status()) {
            self.is_post_rejected.store(true, Ordering::Relaxed);
        }
        let posted = PostedMessage {
            message,
            has_session: session_id.is_some(),
            limit,
        };
        posted.read_response(response).await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<(), Error> {
        let http = &self.http;
        http.delete_session(uri, session_id, auth_header, custom_headers)
            .await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<BoxedSseResponse, Error> {
        self.get_stream_with_max_sse_event_size(
            uri,
            session_id,
            last_event_id,
            auth_header,
            custom_headers,
            DEFAULT_MAX_MESSAGE,
        )
        .await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: Headers,
        limit: usize,
    ) -> Result<BoxedSseResponse, Error> {
        let mut request = self
            .http
            .get(uri.as_ref())
            .header(ACCEPT, EVENT_STREAM_MIME_TYPE);
        if let Some(event) = last_event_id {
            request = request.header(HEADER_LAST_EVENT_ID, event);
        }
        let request = with_headers(request, session_id.as_deref(), auth_header, custom_headers)?;
        let response = request.send().await;
        let _ = self.notifications_answered.set(());
        let response = response?;
        let status = response.status();
        check_authorization(status, response.headers())?;
        if status == StatusCode::METHOD_NOT_ALLOWED {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        if let Some(error) = unavailable(&response) {
            return Err(error.into());
        }
        let response = response.error_for_status()?;
        let content_type = header(&response, CONTENT_TYPE.as_str());
        match content_type {
            Some(mime) if mime.starts_with(EVENT_STREAM_MIME_TYPE) => {
                Ok(bounded_events(response, limit, None))
            }
            other => Err(StreamableHttpError::UnexpectedContentType(other)),
        }
    }
}

/// A message that was posted, and what is needed to read its response.
struct PostedMessage {
    message: ClientJsonRpcMessage,
    has_session: bool,
    limit: usize,
}

/// Body of a response.
enum Body {
    Complete(Vec<u8>),
    TooLong,
}

impl PostedMessage {
    async fn read_response(self, response: Response) -> Result<StreamableHttpPostResponse, Error> {
        let status = response.status();
        check_authorization(status, response.headers())?;
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if status == StatusCode::NOT_FOUND && self.has_session {
            return Err(StreamableHttpError::SessionExpired);
        }
        let content_type = header(&response, CONTENT_TYPE.as_str());
        let session = header(&response, HEADER_SESSION_ID);
        let has_type = |mime: &str| {
            content_type
                .as_deref()
                .is_some_and(|content_type| content_type.starts_with(mime))
        };
        let is_json = has_type(JSON_MIME_TYPE);
        if !status.is_success() {
            return self.read_error_response(response, is_json).await;
        }
        // A notification has no response, but some servers send an empty one.
        if self.request_id().is_none() && response.content_length() == Some(0) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if has_type(EVENT_STREAM_MIME_TYPE) {
            let events = bounded_events(response, self.limit, self.request_id().cloned());
            return Ok(StreamableHttpPostResponse::Sse(events, session));
        }
        if !is_json {
            return Err(StreamableHttpError::UnexpectedContentType(content_type));
        }
        let body = match read_body(response, self.limit).await? {
            Body::Complete(body) => body,
            Body::TooLong => {
                return Ok(match self.request_id() {
                    Some(id) => {
                        StreamableHttpPostResponse::Json(too_long_error(Some(id.clone())), session)
                    }
                    None => StreamableHttpPostResponse::Accepted,
                });
            }
        };
        match serde_json::from_slice(&exact_integers(&body)) {
            Ok(message) => Ok(StreamableHttpPostResponse::Json(message, session)),
            Err(_) if self.request_id().is_none() => Ok(StreamableHttpPostResponse::Accepted),
            Err(error) => {
                let what = format!("{error}, in: {}", excerpt(&body));
                let what = Cow::Owned(format!("invalid message: {what}"));
                Err(StreamableHttpError::UnexpectedServerResponse(what))
            }
        }
    }

    /// Reads a response with an error status, which may contain a JSON-RPC error.
    async fn read_error_response(
        self,
        response: Response,
        is_json: bool,
    ) -> Result<StreamableHttpPostResponse, Error> {
        let status = response.status();
        if let Some(error) = unavailable(&response)
            && (!is_json || status == StatusCode::TOO_MANY_REQUESTS)
        {
            return Err(error.into());
        }
        let limit = if is_json { self.limit } else { MAX_ERROR_BODY };
        let body = match read_body(response, limit).await {
            Ok(Body::Complete(body)) => body,
            Ok(Body::TooLong) | Err(_) => Vec::new(),
        };
        let message = serde_json::from_slice::<ServerJsonRpcMessage>(&body);
        let is_auth_error = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        // Servers of earlier revisions reject `server/discover` in various ways, not always with
        // the id of the request. Answer it with an error, so that the client falls back to
        // `initialize`.
        if status.is_client_error()
            && !is_auth_error
            && !self.has_session
            && let JsonRpcMessage::Request(request) = &self.message
            && matches!(request.request, ClientRequest::DiscoverRequest(_))
        {
            let error = match message {
                Ok(JsonRpcMessage::Error(error)) => error.error,
                _ => ErrorData::invalid_request(format!("rejected with HTTP {status}"), None),
            };
            let error = ServerJsonRpcMessage::error(error, Some(request.id.clone()));
            return Ok(StreamableHttpPostResponse::Json(error, None));
        }
        if let Ok(error @ JsonRpcMessage::Error(_)) = message
            && is_json
            && !is_auth_error
        {
            return Ok(StreamableHttpPostResponse::Json(error, None));
        }
        if status.is_server_error() {
            return Err(HttpStatusError::new(status.as_u16(), None).into());
        }
        let what = format!("HTTP {status}: {}", excerpt(&body));
        Err(StreamableHttpError::UnexpectedServerResponse(what.into()))
    }

    /// Id of the request that the response answers; `None` for notifications.
    fn request_id(&self) -> Option<&RequestId> {
        match &self.message {
            JsonRpcMessage::Request(request) => Some(&request.id),
            _ => None,
        }
    }
}

/// Adds the session, the token and the configured headers to a request.
fn with_headers(
    mut request: RequestBuilder,
    session: Option<&str>,
    token: Option<String>,
    headers: Headers,
) -> Result<RequestBuilder, Error> {
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    for (name, value) in headers {
        reject_reserved_header(&name)?;
        request = request.header(name, value);
    }
    if let Some(session) = session {
        request = request.header(HEADER_SESSION_ID, session);
    }
    Ok(request)
}

fn header(response: &Response, name: &str) -> Option<String> {
    let value = response.headers().get(name)?;
    Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
}

/// The error of a response that says that the server is overloaded or fails.
fn unavailable(response: &Response) -> Option<HttpStatusError> {
    let status = response.status();
    (status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error()).then(|| {
        let after = header(response, RETRY_AFTER.as_str());
        HttpStatusError::new(status.as_u16(), after)
    })
}

async fn read_body(mut response: Response, limit: usize) -> Result<Body, reqwest::Error> {
    let announced = response.content_length().unwrap_or_default();
    if usize::try_from(announced).map_or(true, |length| length > limit) {
        return Ok(Body::TooLong);
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > limit {
            return Ok(Body::TooLong);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Body::Complete(body))
}

/// The error message that replaces an oversized response.
fn too_long_error(id: Option<RequestId>) -> ServerJsonRpcMessage {
    let error = ErrorData::new(MESSAGE_TOO_LONG, "the message exceeds the size limit", None);
    ServerJsonRpcMessage::error(error, id)
}
