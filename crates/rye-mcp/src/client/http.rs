//! Messages over HTTP, none longer than a server's may be.
//!
//! The SDK's own client reads a plain JSON answer to its end, however long it is. This one
//! stops where the server's limit is, and the call hears why; so it does on a stream.

mod events;
mod refusal;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, StatusCode};
use reqwest::Response;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorData, JsonRpcMessage, RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::common::http_header::{
    EVENT_STREAM_MIME_TYPE, HEADER_SESSION_ID, JSON_MIME_TYPE,
};
use rmcp::transport::streamable_http_client::{
    HttpStatusError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};

use super::config::MAX_MESSAGE;
use super::said::excerpt;
use super::stdio::TOO_LONG;
use events::{Stream, bounded};
use refusal::{refuse_reserved, refuse_unauthorized};

/// How much of an answer is read that is no message, to say what it was.
const SHOWN: usize = 4096;

type Error = StreamableHttpError<reqwest::Error>;
type Headers = HashMap<HeaderName, HeaderValue>;

/// An HTTP client for one server.
#[derive(Debug, Clone)]
pub(super) struct Http(pub(super) reqwest::Client);

impl StreamableHttpClient for Http {
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
            MAX_MESSAGE,
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
        let accepted = [EVENT_STREAM_MIME_TYPE, JSON_MIME_TYPE].join(", ");
        let mut request = self
            .0
            .post(uri.as_ref())
            .header(ACCEPT, accepted)
            .header(CONTENT_TYPE, JSON_MIME_TYPE)
            .body(serde_json::to_vec(&message)?);
        if let Some(token) = auth_header {
            request = request.bearer_auth(token);
        }
        for (name, value) in custom_headers {
            refuse_reserved(&name)?;
            request = request.header(name, value);
        }
        if let Some(session) = &session_id {
            request = request.header(HEADER_SESSION_ID, session.as_ref());
        }
        let response = request.send().await?;
        let asked = Asked {
            message,
            has_session: session_id.is_some(),
            limit,
        };
        asked.answered(response).await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<(), Error> {
        let http = &self.0;
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
    ) -> Result<Stream, Error> {
        let http = &self.0;
        http.get_stream(uri, session_id, last_event_id, auth_header, custom_headers)
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
    ) -> Result<Stream, Error> {
        let http = &self.0;
        http.get_stream_with_max_sse_event_size(
            uri,
            session_id,
            last_event_id,
            auth_header,
            custom_headers,
            limit,
        )
        .await
    }
}

/// A message that was posted, and how its answer is read.
struct Asked {
    message: ClientJsonRpcMessage,
    has_session: bool,
    limit: usize,
}

/// The whole of an answer, or as much of it as may be read.
enum Body {
    Whole(Vec<u8>),
    TooLong,
}

impl Asked {
    async fn answered(self, response: Response) -> Result<StreamableHttpPostResponse, Error> {
        let status = response.status();
        refuse_unauthorized(status, response.headers())?;
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if status == StatusCode::NOT_FOUND && self.has_session {
            return Err(StreamableHttpError::SessionExpired);
        }
        let text = |name: &str| {
            let value = response.headers().get(name);
            value.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let kind = text(CONTENT_TYPE.as_str());
        let session = text(HEADER_SESSION_ID);
        let is = |mime: &str| kind.as_deref().is_some_and(|kind| kind.starts_with(mime));
        let is_json = is(JSON_MIME_TYPE);
        if !status.is_success() {
            return self.refused(response, is_json).await;
        }
        // Nobody waits for an answer to it, and some servers send an empty one.
        if self.request().is_none() && response.content_length() == Some(0) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if is(EVENT_STREAM_MIME_TYPE) {
            let events = bounded(response, self.limit, self.request().cloned());
            return Ok(StreamableHttpPostResponse::Sse(events, session));
        }
        if !is_json {
            return Err(StreamableHttpError::UnexpectedContentType(kind));
        }
        let body = match read(response, self.limit).await? {
            Body::Whole(body) => body,
            Body::TooLong => {
                return Ok(match self.request() {
                    Some(id) => StreamableHttpPostResponse::Json(too_long(id.clone()), session),
                    None => StreamableHttpPostResponse::Accepted,
                });
            }
        };
        match serde_json::from_slice(&body) {
            Ok(message) => Ok(StreamableHttpPostResponse::Json(message, session)),
            Err(_) if self.request().is_none() => Ok(StreamableHttpPostResponse::Accepted),
            Err(error) => {
                let what = format!("{error}, in: {}", excerpt(&body));
                let what = Cow::Owned(format!("its JSON is no message of the protocol: {what}"));
                Err(StreamableHttpError::UnexpectedServerResponse(what))
            }
        }
    }

    /// An answer whose status says that it failed. It may hold an error of the protocol.
    async fn refused(
        self,
        response: Response,
        is_json: bool,
    ) -> Result<StreamableHttpPostResponse, Error> {
        let status = response.status();
        let unavailable = (status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error())
            .then(|| {
                let after = response.headers().get(RETRY_AFTER);
                let after = after.and_then(|value| value.to_str().ok());
                HttpStatusError::new(status.as_u16(), after.map(str::to_owned))
            });
        if let Some(error) = unavailable
            && (!is_json || status == StatusCode::TOO_MANY_REQUESTS)
        {
            return Err(error.into());
        }
        let limit = if is_json { self.limit } else { SHOWN };
        let body = match read(response, limit).await {
            Ok(Body::Whole(body)) => body,
            Ok(Body::TooLong) | Err(_) => Vec::new(),
        };
        let said = serde_json::from_slice::<ServerJsonRpcMessage>(&body);
        let is_of_who = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        // A server of an earlier revision refuses this with whatever it has, and the
        // conversation begins in the other way; whose answer it is, not all of them say.
        if status.is_client_error()
            && !is_of_who
            && !self.has_session
            && let JsonRpcMessage::Request(request) = &self.message
            && matches!(request.request, ClientRequest::DiscoverRequest(_))
        {
            let error = match said {
                Ok(JsonRpcMessage::Error(error)) => error.error,
                _ => ErrorData::invalid_request(format!("refused with HTTP {status}"), None),
            };
            let error = ServerJsonRpcMessage::error(error, Some(request.id.clone()));
            return Ok(StreamableHttpPostResponse::Json(error, None));
        }
        if let Ok(error @ JsonRpcMessage::Error(_)) = said
            && is_json
            && !is_of_who
        {
            return Ok(StreamableHttpPostResponse::Json(error, None));
        }
        if status.is_server_error() {
            return Err(HttpStatusError::new(status.as_u16(), None).into());
        }
        let what = format!("HTTP {status}: {}", excerpt(&body));
        Err(StreamableHttpError::UnexpectedServerResponse(what.into()))
    }

    /// Whose answer it is.
    fn request(&self) -> Option<&RequestId> {
        match &self.message {
            JsonRpcMessage::Request(request) => Some(&request.id),
            _ => None,
        }
    }
}

async fn read(mut response: Response, limit: usize) -> Result<Body, reqwest::Error> {
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
    Ok(Body::Whole(body))
}

/// What a call is told whose answer is too long.
fn too_long(id: RequestId) -> ServerJsonRpcMessage {
    let error = ErrorData::new(TOO_LONG, "the answer is too long", None);
    ServerJsonRpcMessage::error(error, Some(id))
}
