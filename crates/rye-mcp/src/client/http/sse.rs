//! The HTTP+SSE transport of protocol revision 2024-11-05: the server sends all messages in one
//! event stream, whose first event names the URL to which the client posts its messages.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use reqwest::Url;
use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::common::client_side_sse::BoxedSseResponse;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use rye_protocol::json::quote_large_integers;
use tokio::sync::mpsc;

use super::super::diagnostics::excerpt;
use super::super::error::ClientErrorKind;
use super::super::in_flight::InFlightRequests;
use super::super::stdio::MESSAGE_TOO_LONG;
use super::{Error, Headers};

/// How long to wait for the first event. Servers send it at once.
const ENDPOINT_TIMEOUT: Duration = Duration::from_secs(5);

/// Transport over an event stream and posted messages.
pub(in crate::client) struct SseTransport<C> {
    client: C,
    /// URL to which messages are posted.
    endpoint: Arc<str>,
    headers: Headers,
    events: BoxedSseResponse,
    /// Errors with which the server answered a posted message directly.
    rejections: (
        mpsc::UnboundedSender<ServerJsonRpcMessage>,
        mpsc::UnboundedReceiver<ServerJsonRpcMessage>,
    ),
    in_flight: Arc<InFlightRequests>,
    limit: usize,
}

impl<C: StreamableHttpClient<Error = reqwest::Error> + Sync> SseTransport<C> {
    /// Opens the event stream and reads the endpoint, which must have the origin of `url`,
    /// because the headers may hold secrets.
    pub(in crate::client) async fn open(
        client: C,
        url: &str,
        headers: Headers,
        in_flight: Arc<InFlightRequests>,
        limit: usize,
    ) -> Result<Self, Error> {
        let mut events = client
            .get_stream_with_max_sse_event_size(
                url.into(),
                None,
                None,
                None,
                headers.clone(),
                limit,
            )
            .await?;
        let unexpected = |what: String| StreamableHttpError::UnexpectedServerResponse(what.into());
        let first = tokio::time::timeout(ENDPOINT_TIMEOUT, events.next()).await;
        let first = first.unwrap_or_default().transpose()?.unwrap_or_default();
        let (Some("endpoint"), Some(path)) = (first.event.as_deref(), first.data) else {
            let what = "the event stream does not begin with an `endpoint` event";
            return Err(unexpected(what.to_owned()));
        };
        let base = Url::parse(url).map_err(|error| unexpected(error.to_string()))?;
        let endpoint = base
            .join(path.trim())
            .ok()
            .filter(|endpoint| endpoint.origin() == base.origin())
            .ok_or_else(|| {
                let shown = excerpt(path.as_bytes());
                unexpected(format!("the endpoint `{shown}` is on another server"))
            })?;
        Ok(Self {
            client,
            endpoint: endpoint.as_str().into(),
            headers,
            events,
            rejections: mpsc::unbounded_channel(),
            in_flight,
            limit,
        })
    }
}

impl<C> Transport<RoleClient> for SseTransport<C>
where
    C: StreamableHttpClient<Error = reqwest::Error> + Sync,
{
    type Error = Error;

    fn send(
        &mut self,
        item: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Error>> + Send + 'static {
        let (client, endpoint) = (self.client.clone(), Arc::clone(&self.endpoint));
        let (headers, limit) = (self.headers.clone(), self.limit);
        let rejections = self.rejections.0.clone();
        let request = match &item {
            JsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        async move {
            let posted = client
                .post_message_with_max_sse_event_size(endpoint, item, None, None, headers, limit)
                .await;
            match posted {
                Ok(StreamableHttpPostResponse::Json(mut message, _)) => {
                    // Some servers leave out the id, and the request would wait for ever.
                    if let JsonRpcMessage::Error(error) = &mut message {
                        error.id = error.id.take().or(request);
                    }
                    // Fails only if the transport is closed.
                    let _ = rejections.send(message);
                    Ok(())
                }
                // The body of a successful response has no meaning.
                Ok(_) | Err(StreamableHttpError::UnexpectedContentType(_)) => Ok(()),
                Err(error) => Err(error),
            }
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let event = tokio::select! {
                Some(message) = self.rejections.1.recv() => return Some(message),
                event = self.events.next() => event?.ok()?,
            };
            let (None | Some("message"), Some(data)) = (event.event.as_deref(), event.data) else {
                continue;
            };
            match serde_json::from_str(&quote_large_integers(&data)) {
                Ok(JsonRpcMessage::Error(error)) if error.error.code == MESSAGE_TOO_LONG => {
                    self.in_flight
                        .fail(ClientErrorKind::MessageTooLong(self.limit));
                    return None;
                }
                Ok(message) => return Some(message),
                // Fatal, because its request would wait for ever.
                Err(error) => {
                    let shown = excerpt(data.as_bytes());
                    let what = format!("malformed message ({error}): {shown}");
                    self.in_flight.fail(ClientErrorKind::Protocol(what));
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), Error> {
        self.events = stream::empty().boxed();
        Ok(())
    }
}
