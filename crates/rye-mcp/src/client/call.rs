//! Tool listing and tool calls over one connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lillux::error_chain;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotification, CancelledNotificationParam,
    ClientRequest, JsonObject, PaginatedRequestParams, ProgressToken, RequestId, ServerResult,
};
use rmcp::service::{PeerRequestOptions, ServiceError};
use rye_executor::OutputListener;
use rye_executor::redact::redacting_listener;
use serde_json::Value;

use super::connect::{describe_transport_error, http_client_error};
use super::connection::Connection;
use super::elicitation::ElicitationHandler;
use super::error::{ClientError, ClientErrorKind};
use super::login;
use super::stdio::{MESSAGE_TOO_LONG, numeric_id};
use super::tools::{Drift, Pin, RemoteTool};

/// Maximum number of pages in a list of tools, against servers that never end it.
const MAX_PAGES: usize = 1000;

/// How often a server may answer a call with a request for input.
const MAX_INPUT_ROUNDS: usize = 8;

/// A server that has not read a request for this long is considered stuck.
const STUCK_AFTER: Duration = Duration::from_secs(1);

/// A call of a tool.
#[derive(Debug, Clone)]
pub struct ToolCall {
    /// Name of the tool at the server.
    pub tool: String,
    /// Arguments, passed on unchanged.
    pub arguments: JsonObject,
    /// Accepted definition of the tool; without a pin, the definition is not checked.
    pub pin: Option<Pin>,
    /// Limit for the call including the start of the server. By default, the limits of the
    /// server's configuration apply to the start and to the call separately.
    pub timeout: Option<Duration>,
    /// Receives progress messages.
    pub listener: Option<OutputListener>,
    /// Answers elicitations during this call; by default, the pool's handler does.
    pub elicitation_handler: Option<Arc<dyn ElicitationHandler>>,
}

impl ToolCall {
    /// Creates a call without pin, limit or listener.
    pub fn new(tool: impl Into<String>, arguments: JsonObject) -> Self {
        Self {
            tool: tool.into(),
            arguments,
            pin: None,
            timeout: None,
            listener: None,
            elicitation_handler: None,
        }
    }
}

impl Connection {
    /// The tools of the server, cached until the server reports that they changed.
    pub(super) async fn tools(&self) -> Result<Arc<[RemoteTool]>, ClientError> {
        let mut cached = self.tools.lock().await;
        if self.client.tools_changed.swap(false, Ordering::AcqRel) {
            *cached = None;
        }
        if let Some(tools) = &*cached {
            return Ok(Arc::clone(tools));
        }
        let mut all = Vec::new();
        let mut cursor = None;
        for _ in 0..MAX_PAGES {
            let page = PaginatedRequestParams::default().with_cursor(cursor.take());
            let listed = self.peer.list_tools(Some(page)).await;
            let listed = match listed {
                Ok(listed) => listed,
                // Listing has no effects, so it may be retried.
                Err(error) => return Err(self.map_error(error, false).await),
            };
            all.extend(listed.tools.iter().filter_map(RemoteTool::new));
            cursor = listed.next_cursor;
            if cursor.is_none() {
                let tools: Arc<[RemoteTool]> = all.into();
                *cached = Some(Arc::clone(&tools));
                return Ok(tools);
            }
        }
        let what = format!("its list of tools has more than {MAX_PAGES} pages");
        Err(self.error(ClientErrorKind::Protocol(what)))
    }

    /// The tool with this name; an error if its definition differs from the pin.
    pub(super) async fn pinned_tool(
        &self,
        name: &str,
        pin: &Pin,
    ) -> Result<RemoteTool, ClientError> {
        let tools = self.tools().await?;
        let Some(tool) = tools.iter().find(|tool| tool.name() == name) else {
            let available = tools.iter().map(|tool| tool.name().to_owned()).collect();
            let name = name.to_owned();
            return Err(self.error(ClientErrorKind::UnknownTool { name, available }));
        };
        if tool.pin.hash == pin.hash {
            return Ok(tool.clone());
        }
        let drift = Drift {
            tool: name.to_owned(),
            accepted: pin.clone(),
            current: tool.pin.clone(),
        };
        Err(self.error(ClientErrorKind::Drift(Box::new(drift))))
    }

    /// Calls a tool and returns the server's result with secrets redacted. Dropping the future
    /// cancels the call.
    pub(super) async fn call(&self, call: &ToolCall) -> Result<Value, ClientError> {
        let mut params =
            CallToolRequestParams::new(call.tool.clone()).with_arguments(call.arguments.clone());
        for _ in 0..MAX_INPUT_ROUNDS {
            let mut result = match self.send_call(call, params.clone()).await? {
                ServerResult::InputRequiredResult(required) => Err(required),
                ServerResult::CustomResult(result) => Ok(result.0),
                result => {
                    let result = serde_json::to_value(result);
                    Ok(result.map_err(|error| {
                        self.error(ClientErrorKind::Protocol(error.to_string()))
                    })?)
                }
            };
            if let Ok(value) = &mut result {
                self.log.redactor().redact_value(value);
            }
            let required = match result {
                Ok(value) => return Ok(value),
                Err(required) => required,
            };
            let elicitations = &self.client.elicitations;
            let answers = elicitations
                .answer_input_requests(&required, call.elicitation_handler.clone())
                .await;
            let answers =
                answers.map_err(|what| self.error(ClientErrorKind::UnsupportedInput(what)))?;
            params.input_responses = Some(answers);
            params.request_state = required.request_state;
        }
        let what = format!("requests more input after {MAX_INPUT_ROUNDS} answers");
        Err(self.error(ClientErrorKind::UnsupportedInput(what)))
    }

    /// Sends one `tools/call` request and waits for its response.
    async fn send_call(
        &self,
        call: &ToolCall,
        params: CallToolRequestParams,
    ) -> Result<ServerResult, ClientError> {
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        // Locked while the request is sent, so that its listener is registered before the first
        // progress notification is handled.
        let mut listeners = self.client.listeners.lock().await;
        let sent = self
            .peer
            .send_request_with_option(request, PeerRequestOptions::no_options())
            .await;
        let handle = match sent {
            Ok(handle) => handle,
            Err(error) => {
                drop(listeners);
                return Err(self.map_error(error, false).await);
            }
        };
        let mut in_flight_call = InFlightCall {
            connection: self,
            id: handle.id.clone(),
            token: handle.progress_token.clone(),
            started_at: Instant::now(),
            is_answered: false,
        };
        if let Some(listener) = &call.listener {
            let listener = redacting_listener(self.log.redactor(), listener.clone());
            listeners.insert(handle.progress_token.clone(), listener);
        }
        let asker = call.elicitation_handler.clone();
        self.client
            .elicitations
            .register(handle.progress_token.clone(), asker);
        drop(listeners);
        let answer = handle.await_response().await;
        let sent =
            numeric_id(&in_flight_call.id).is_none_or(|id| self.may_have_arrived(id, &answer));
        in_flight_call.is_answered = true;
        drop(in_flight_call);
        match answer {
            Ok(result) => Ok(result),
            Err(error) => Err(self.map_error(error, sent).await),
        }
    }

    /// Whether a call may have reached the server.
    fn may_have_arrived(&self, id: i64, answer: &Result<ServerResult, ServiceError>) -> bool {
        match answer {
            // Without a TCP connection, nothing was sent.
            Err(ServiceError::TransportSend(error)) if self.is_remote() => {
                !http_client_error(error).is_some_and(reqwest::Error::is_connect)
            }
            // Over HTTP, the transport does not report what was written.
            _ => self.is_remote() || self.in_flight.was_written(id),
        }
    }

    /// Converts an error of the SDK.
    async fn map_error(&self, error: ServiceError, sent: bool) -> ClientError {
        match error {
            ServiceError::McpError(error) if error.code == MESSAGE_TOO_LONG => {
                self.error(ClientErrorKind::MessageTooLong(self.max_message))
            }
            ServiceError::McpError(mut error) => {
                let redactor = self.log.redactor();
                if let Some(data) = &mut error.data {
                    redactor.redact_value(data);
                }
                self.error(ClientErrorKind::Rpc {
                    code: error.code.0,
                    message: redactor.redact(&error.message).into_owned(),
                    data: error.data.map(Box::new),
                })
            }
            ServiceError::TransportSend(error) if self.is_remote() => {
                if let Some(kind) = login::login_needed(&error) {
                    // After the login, calls use a new connection.
                    self.close();
                    return self.error(kind);
                }
                let how = format!("cannot be reached ({})", describe_transport_error(&error));
                let how = self.log.redactor().redact(&how).into_owned();
                // A new connection may succeed.
                self.close();
                self.error(ClientErrorKind::ConnectionLost {
                    cause: how,
                    was_sent: sent,
                })
            }
            ServiceError::TransportClosed | ServiceError::TransportSend(_) => {
                self.closed_error(sent).await
            }
            error => {
                let error_chain = error_chain(&error);
                let error_chain = self.log.redactor().redact(&error_chain).into_owned();
                self.error(ClientErrorKind::Protocol(error_chain))
            }
        }
    }
}

/// A call in progress. If it is dropped before its response, the server is sent a cancellation.
struct InFlightCall<'c> {
    connection: &'c Connection,
    id: RequestId,
    token: ProgressToken,
    started_at: Instant,
    is_answered: bool,
}

impl Drop for InFlightCall<'_> {
    fn drop(&mut self) {
        let Connection {
            in_flight,
            client,
            peer,
            ..
        } = self.connection;
        client.elicitations.unregister(&self.token);
        let id = numeric_id(&self.id);
        let was_written = id.is_some_and(|id| in_flight.was_written(id));
        if let Some(id) = id {
            in_flight.complete(id);
        }
        let (client, token) = (Arc::clone(client), self.token.clone());
        let is_answered = self.is_answered;
        let is_stuck = !was_written && self.started_at.elapsed() > STUCK_AFTER;
        if !is_answered && is_stuck && !self.connection.is_remote() {
            // The next call makes a new connection.
            in_flight.fail(ClientErrorKind::Protocol(
                "it does not read its standard input".to_owned(),
            ));
            self.connection.close();
        }
        let (peer, id) = (peer.clone(), self.id.clone());
        let busy_guard = self.connection.busy_guard();
        // Without a runtime, the connection is gone as well.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                client.listeners.lock().await.remove(&token);
                if !is_answered {
                    let reason = "the caller no longer waits".to_owned();
                    let params = CancelledNotificationParam::new(Some(id), Some(reason));
                    let cancelled = CancelledNotification::new(params);
                    let _ = peer.send_notification(cancelled.into()).await;
                }
                drop(busy_guard);
            });
        }
    }
}
