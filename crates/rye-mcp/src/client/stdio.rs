//! Client transport over the standard streams of a process, one message per line.
//!
//! Unlike the SDK's transport, it tracks which requests were written completely and reports
//! oversized messages, responses to unknown requests, and malformed messages.

use std::io;
use std::sync::Arc;

use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, ErrorCode, ErrorData, JsonRpcMessage, NumberOrString, RequestId,
    ServerJsonRpcMessage,
};
use rmcp::transport::Transport;
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::Mutex;

use super::diagnostics::{DiagnosticsLog, excerpt};
use super::error::ClientErrorKind;
use super::in_flight::InFlightRequests;
use crate::lines::{Line, LineReader, exact_integers};

/// JSON-RPC error code with which this client replaces an oversized response.
pub(super) const MESSAGE_TOO_LONG: ErrorCode = ErrorCode(-32_090);

/// Transport over a server's standard input and output.
pub(super) struct StdioTransport {
    lines: LineReader<Receiver>,
    input: Arc<Mutex<Option<Sender>>>,
    in_flight: Arc<InFlightRequests>,
    log: DiagnosticsLog,
}

impl StdioTransport {
    pub(super) fn new(
        output: Receiver,
        input: Sender,
        limit: usize,
        in_flight: Arc<InFlightRequests>,
        log: DiagnosticsLog,
    ) -> Self {
        Self {
            lines: LineReader::new(output, limit),
            input: Arc::new(Mutex::new(Some(input))),
            in_flight,
            log,
        }
    }

    /// Parses one line of output.
    fn parse_line(&self, line: &[u8]) -> ParsedLine {
        let line = line.trim_ascii();
        if line.is_empty() {
            return ParsedLine::Ignored;
        }
        match serde_json::from_slice::<ServerJsonRpcMessage>(&exact_integers(line)) {
            Ok(message) => match answered_request(&message) {
                Some(id) if !numeric_id(id).is_some_and(|id| self.in_flight.is_known(id)) => {
                    ParsedLine::Fault(format!("response to unknown request {id}"))
                }
                _ => ParsedLine::Message(Box::new(message)),
            },
            // A malformed message is fatal, because its request would wait for ever.
            Err(error) if looks_like_message(line) => ParsedLine::Fault(format!(
                "malformed message ({error}): {}",
                excerpt(
                    self.log
                        .redactor()
                        .redact(&String::from_utf8_lossy(line))
                        .as_bytes()
                )
            )),
            // Some servers print a greeting or log to standard output.
            Err(_) => {
                self.log.push_invalid_line(line);
                ParsedLine::Ignored
            }
        }
    }
}

/// A parsed line of output.
enum ParsedLine {
    Message(Box<ServerJsonRpcMessage>),
    /// Blank, or not a message.
    Ignored,
    /// A protocol violation.
    Fault(String),
}

/// Id of the request that a message answers.
fn answered_request(message: &ServerJsonRpcMessage) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Response(response) => Some(&response.id),
        JsonRpcMessage::Error(error) => error.id.as_ref(),
        _ => None,
    }
}

/// The numeric value of a request id. Some servers send numeric ids back as strings.
pub(super) fn numeric_id(id: &RequestId) -> Option<i64> {
    match id {
        NumberOrString::Number(number) => Some(*number),
        NumberOrString::String(text) => text.parse().ok(),
    }
}

/// Whether a line is meant to be a JSON-RPC message.
fn looks_like_message(line: &[u8]) -> bool {
    let needle = b"\"jsonrpc\"";
    line.starts_with(b"{") && line.windows(needle.len()).any(|part| part == needle)
}

impl Transport<RoleClient> for StdioTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        item: ClientJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let input = Arc::clone(&self.input);
        let in_flight = Arc::clone(&self.in_flight);
        let id = match &item {
            JsonRpcMessage::Request(request) => numeric_id(&request.id),
            _ => None,
        };
        if let Some(id) = id {
            in_flight.register(id);
        }
        let line = serde_json::to_vec(&item).map(|mut line| {
            line.push(b'\n');
            line
        });
        async move {
            let line = line?;
            let mut input = input.lock().await;
            let input = input.as_mut().ok_or(io::ErrorKind::NotConnected)?;
            let mut remaining = line.as_slice();
            while !remaining.is_empty() {
                let written = input.write(remaining).await?;
                remaining = &remaining[written..];
                // The server may accept the line without its line break.
                if remaining.len() <= 1
                    && let Some(id) = id
                {
                    in_flight.mark_written(id);
                }
            }
            Ok(())
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            match self.lines.next().await? {
                Line::Complete(line) => match self.parse_line(&line) {
                    ParsedLine::Message(message) => return Some(*message),
                    ParsedLine::Ignored => {}
                    ParsedLine::Fault(what) => {
                        self.in_flight.fail(ClientErrorKind::Protocol(what));
                        return None;
                    }
                },
                Line::TooLong(Some(id)) if self.in_flight.is_known(id) => {
                    let error = ErrorData::new(
                        MESSAGE_TOO_LONG,
                        "the message exceeds the size limit",
                        None,
                    );
                    let id = Some(NumberOrString::Number(id));
                    return Some(JsonRpcMessage::error(error, id));
                }
                Line::TooLong(_) => {
                    let limit = self.lines.limit();
                    self.in_flight.fail(ClientErrorKind::Protocol(format!(
                        "a line of output without a known request id exceeds {limit} bytes \
                         (`max_message`)"
                    )));
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        // A write that blocks because the server does not read must not block the shutdown.
        if let Ok(mut input) = self.input.try_lock() {
            *input = None;
        }
        Ok(())
    }
}
