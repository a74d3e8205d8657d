//! One call over a connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotification, CancelledNotificationParam,
    ClientRequest, JsonObject, PaginatedRequestParams, ProgressToken, RequestId, ServerResult,
};
use rmcp::service::{PeerRequestOptions, ServiceError};
use rye_executor::OutputListener;
use rye_executor::redact::redacting_listener;
use serde_json::Value;

use super::ask::ElicitationHandler;
use super::connect::{of_http_client, transport_words, words};
use super::connection::{Client, Connection};
use super::error::{ClientError, ClientErrorKind};
use super::login;
use super::stdio::{TOO_LONG, number};
use super::tools::{Drift, Pin, RemoteTool};

/// A list of tools has no more pages: a server that goes on for ever is stopped.
const PAGES: usize = 1000;

/// How often a server may answer a call with a question.
const ROUNDS: usize = 8;

/// A server that has not read a request after this time does not read.
const STUCK: Duration = Duration::from_secs(1);

/// What is to be called.
#[derive(Debug, Clone)]
pub struct ToolCall {
    /// The tool's name at the server.
    pub tool: String,
    /// Its arguments.
    pub arguments: JsonObject,
    /// The hash by which the tool was accepted; without one, any tool is called.
    pub pin: Option<Pin>,
    /// How long it may take, with the start of the server; else the server's own limit
    /// holds, and the start has its own.
    pub timeout: Option<Duration>,
    /// Who hears of its progress.
    pub listener: Option<OutputListener>,
    /// Who can be asked what the server wants to know; else whoever the pool asks.
    pub asker: Option<Arc<dyn ElicitationHandler>>,
}

impl ToolCall {
    /// A call with arguments.
    pub fn new(tool: impl Into<String>, arguments: JsonObject) -> Self {
        Self {
            tool: tool.into(),
            arguments,
            pin: None,
            timeout: None,
            listener: None,
            asker: None,
        }
    }
}

impl Connection {
    /// The tools of the server: asked for once, and again when it says that they changed.
    pub(super) async fn tools(&self) -> Result<Arc<[RemoteTool]>, ClientError> {
        let mut known = self.tools.lock().await;
        if self.client.is_stale.swap(false, Ordering::AcqRel) {
            *known = None;
        }
        if let Some(tools) = &*known {
            return Ok(Arc::clone(tools));
        }
        let mut all = Vec::new();
        let mut cursor = None;
        for _ in 0..PAGES {
            let page = PaginatedRequestParams::default().with_cursor(cursor.take());
            let listed = self.peer.list_tools(Some(page)).await;
            let listed = match listed {
                Ok(listed) => listed,
                // To list is to read, so it may be done again.
                Err(error) => return Err(self.failed(error, false).await),
            };
            all.extend(listed.tools.iter().filter_map(RemoteTool::new));
            cursor = listed.next_cursor;
            if cursor.is_none() {
                let tools: Arc<[RemoteTool]> = all.into();
                *known = Some(Arc::clone(&tools));
                return Ok(tools);
            }
        }
        let what = format!("its list of tools has more than {PAGES} pages");
        Err(self.error(ClientErrorKind::Protocol(what)))
    }

    /// The tool as it was accepted. Anything else is refused.
    pub(super) async fn accepted(&self, name: &str, pin: &Pin) -> Result<RemoteTool, ClientError> {
        let tools = self.tools().await?;
        let Some(tool) = tools.iter().find(|tool| tool.name() == name) else {
            let there = tools.iter().map(|tool| tool.name().to_owned()).collect();
            let name = name.to_owned();
            return Err(self.error(ClientErrorKind::UnknownTool { name, there }));
        };
        if tool.pin.whole == pin.whole {
            return Ok(tool.clone());
        }
        let drift = Drift {
            tool: name.to_owned(),
            accepted: pin.clone(),
            found: tool.pin.clone(),
        };
        Err(self.error(ClientErrorKind::Drift(Box::new(drift))))
    }

    /// Calls a tool and gives the result as the server sent it. Dropped, it is cancelled.
    pub(super) async fn call(&self, call: &ToolCall) -> Result<Value, ClientError> {
        let mut params =
            CallToolRequestParams::new(call.tool.clone()).with_arguments(call.arguments.clone());
        for _ in 0..ROUNDS {
            let mut result = match self.round(call, params.clone()).await? {
                ServerResult::InputRequiredResult(required) => Err(required),
                ServerResult::CustomResult(result) => Ok(result.0),
                result => {
                    let result = serde_json::to_value(result);
                    Ok(result.map_err(|error| {
                        self.error(ClientErrorKind::Protocol(error.to_string()))
                    })?)
                }
            };
            if let Ok(given) = &mut result {
                self.heard.redactor().redact_value(given);
            }
            let required = match result {
                Ok(given) => return Ok(given),
                Err(required) => required,
            };
            let askers = &self.client.askers;
            let answers = askers.required(&required, call.asker.clone()).await;
            let answers =
                answers.map_err(|what| self.error(ClientErrorKind::UnsupportedInput(what)))?;
            params.input_responses = Some(answers);
            params.request_state = required.request_state;
        }
        let what = format!("asks for more even after {ROUNDS} answers");
        Err(self.error(ClientErrorKind::UnsupportedInput(what)))
    }

    /// One request and its answer.
    async fn round(
        &self,
        call: &ToolCall,
        params: CallToolRequestParams,
    ) -> Result<ServerResult, ClientError> {
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        // Held while the request is on its way: progress cannot overtake its listener.
        let mut listeners = self.client.listeners.lock().await;
        let sent = self
            .peer
            .send_request_with_option(request, PeerRequestOptions::no_options())
            .await;
        let handle = match sent {
            Ok(handle) => handle,
            Err(error) => {
                drop(listeners);
                return Err(self.failed(error, false).await);
            }
        };
        let mut under_way = UnderWay {
            connection: self,
            id: handle.id.clone(),
            token: handle.progress_token.clone(),
            began: Instant::now(),
            is_answered: false,
        };
        if let Some(listener) = &call.listener {
            let listener = redacting_listener(self.heard.redactor(), listener.clone());
            listeners.insert(handle.progress_token.clone(), listener);
        }
        let asker = call.asker.clone();
        self.client
            .askers
            .begin(handle.progress_token.clone(), asker);
        drop(listeners);
        let answer = handle.await_response().await;
        let sent = number(&under_way.id).is_none_or(|id| self.was_sent(id, &answer));
        under_way.is_answered = true;
        drop(under_way);
        match answer {
            Ok(result) => Ok(result),
            Err(error) => Err(self.failed(error, sent).await),
        }
    }

    /// Whether a call may have reached the server.
    fn was_sent(&self, id: i64, answer: &Result<ServerResult, ServiceError>) -> bool {
        match answer {
            // Where no connection could be made, nothing was sent.
            Err(ServiceError::TransportSend(error)) if self.is_remote() => {
                !of_http_client(error).is_some_and(reqwest::Error::is_connect)
            }
            // Over HTTP nothing is known of what was written.
            _ => self.is_remote() || self.wire.was_written(id),
        }
    }

    /// What an error of the SDK means.
    async fn failed(&self, error: ServiceError, sent: bool) -> ClientError {
        match error {
            ServiceError::McpError(error) if error.code == TOO_LONG => {
                self.error(ClientErrorKind::MessageTooLong(self.limit))
            }
            ServiceError::McpError(mut error) => {
                let redactor = self.heard.redactor();
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
                if let Some(kind) = login::wanted(&error) {
                    // Who has logged in calls over another.
                    self.close();
                    return self.error(kind);
                }
                let how = format!("could not be reached ({})", transport_words(&error));
                let how = self.heard.redactor().redact(&how).into_owned();
                // What is wrong with it may be gone with a new connection.
                self.close();
                self.error(ClientErrorKind::ConnectionLost { how, sent })
            }
            ServiceError::TransportClosed | ServiceError::TransportSend(_) => self.why(sent).await,
            error => {
                let words = words(&error);
                let words = self.heard.redactor().redact(&words).into_owned();
                self.error(ClientErrorKind::Protocol(words))
            }
        }
    }
}

/// A call that is under way. Dropped before it is answered, the server is told.
struct UnderWay<'c> {
    connection: &'c Connection,
    id: RequestId,
    token: ProgressToken,
    began: Instant,
    is_answered: bool,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let Connection {
            wire, client, peer, ..
        } = self.connection;
        client.askers.end(&self.token);
        let id = number(&self.id);
        let was_written = id.is_some_and(|id| wire.was_written(id));
        if let Some(id) = id {
            wire.settle(id);
        }
        let (client, token) = (Arc::clone(client), self.token.clone());
        let is_answered = self.is_answered;
        let is_stuck = !was_written && self.began.elapsed() > STUCK;
        if !is_answered && is_stuck && !self.connection.is_remote() {
            // Whoever is next gets another.
            wire.fail(ClientErrorKind::Protocol(
                "it does not read its input".to_owned(),
            ));
            self.connection.close();
        }
        let (peer, id) = (peer.clone(), self.id.clone());
        let busy = self.connection.busy();
        // Without a runtime there is nobody left to be told.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                forget(&client, &token).await;
                if !is_answered {
                    let reason = "the caller does not wait any more".to_owned();
                    let params = CancelledNotificationParam::new(Some(id), Some(reason));
                    let cancelled = CancelledNotification::new(params);
                    let _ = peer.send_notification(cancelled.into()).await;
                }
                drop(busy);
            });
        }
    }
}

async fn forget(client: &Client, token: &ProgressToken) {
    client.listeners.lock().await.remove(token);
}
