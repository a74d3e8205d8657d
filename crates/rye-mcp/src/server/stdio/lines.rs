//! Server transport with one JSON message per line.
//!
//! Every request is answered, even a malformed one, because the client would wait for ever.

use std::io;
use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::{ClientJsonRpcMessage, ErrorCode, ErrorData, RequestId, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Mutex;

use crate::lines::{Line, LineReader, exact_integers};

/// Maximum size of a message, in bytes.
const MAX_MESSAGE: usize = 64 * 1024 * 1024;

/// Reads and writes messages as lines.
pub(super) struct LineTransport<R, W> {
    lines: LineReader<R>,
    output: Arc<Mutex<Option<W>>>,
}

impl<R: AsyncRead + Send + Unpin, W: AsyncWrite + Send + Unpin + 'static> LineTransport<R, W> {
    pub(super) fn new(input: R, output: W) -> Self {
        Self {
            lines: LineReader::new(input, MAX_MESSAGE),
            output: Arc::new(Mutex::new(Some(output))),
        }
    }
}

impl<R, W> Transport<RoleServer> for LineTransport<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let line = to_line(&message);
        let output = Arc::clone(&self.output);
        async move {
            let line = line?;
            let mut output = output.lock().await;
            let output = output.as_mut().ok_or(io::ErrorKind::NotConnected)?;
            output.write_all(&line).await?;
            output.flush().await
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            let line = match self.lines.next().await? {
                Line::Complete(line) => ParsedLine::parse(&line),
                // The id is unknown because the line was not kept.
                Line::TooLong(_) => ParsedLine::Rejected(Rejection::too_long()),
            };
            match line {
                ParsedLine::Message(message) => return Some(message),
                ParsedLine::Ignored => {}
                ParsedLine::Rejected(Rejection { id, error }) => {
                    let error = ServerJsonRpcMessage::error(error, id);
                    self.send(error).await.ok()?;
                }
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        drop(self.output.lock().await.take());
        Ok(())
    }
}

fn to_line(message: &ServerJsonRpcMessage) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

/// Error response to a line that is not a valid message.
#[derive(Debug, PartialEq)]
struct Rejection {
    id: Option<RequestId>,
    error: ErrorData,
}

impl Rejection {
    fn new(id: Option<RequestId>, code: ErrorCode, message: String) -> Self {
        let error = ErrorData::new(code, message, None);
        Self { id, error }
    }

    fn too_long() -> Self {
        let limit = MAX_MESSAGE / 1024 / 1024;
        let message = format!("the message exceeds {limit} MiB");
        Self::new(None, ErrorCode::INVALID_REQUEST, message)
    }
}

/// A parsed line.
#[expect(
    clippy::large_enum_variant,
    reason = "only one exists at a time, and almost always a message"
)]
enum ParsedLine {
    Message(ClientJsonRpcMessage),
    Rejected(Rejection),
    /// Needs no response. Invalid JSON is ignored as well: two peers that report each other's
    /// error reports would never stop.
    Ignored,
}

impl ParsedLine {
    fn parse(line: &[u8]) -> Self {
        let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        let line = &*exact_integers(line);
        let Ok(value) = serde_json::from_slice::<Value>(line) else {
            return Self::Ignored;
        };
        let error = match serde_json::from_slice(line) {
            Ok(message) => return Self::Message(message),
            Err(error) => error,
        };
        let method = value.get("method").and_then(Value::as_str);
        let id = value.get("id");
        if id.is_none() && method.is_some() {
            return Self::Ignored;
        }
        let id: Option<RequestId> = id.and_then(|id| serde_json::from_value(id.clone()).ok());
        Self::Rejected(match (id, method) {
            (Some(id), Some(method)) => {
                let message = format!("invalid parameters for `{method}`: {error}");
                Rejection::new(Some(id), ErrorCode::INVALID_PARAMS, message)
            }
            (id, _) => {
                let message = format!("invalid message: {error}");
                Rejection::new(id, ErrorCode::INVALID_REQUEST, message)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::ServerResult;
    use tokio::io::AsyncReadExt as _;

    fn rejected(line: &str) -> Option<(Option<RequestId>, i32)> {
        match ParsedLine::parse(line.as_bytes()) {
            ParsedLine::Rejected(rejected) => Some((rejected.id, rejected.error.code.0)),
            ParsedLine::Ignored => None,
            ParsedLine::Message(message) => panic!("{message:?}"),
        }
    }

    #[test]
    fn malformed_request_is_answered_with_its_id() {
        let line = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":[]}"#;
        assert_eq!(rejected(line), Some((Some(RequestId::Number(7)), -32602)));
        let line = r#"{"jsonrpc":"1.0","id":"x","method":"ping"}"#;
        let id = RequestId::String("x".into());
        assert_eq!(rejected(line), Some((Some(id), -32602)));
        for line in ["[]", "42", r#"{"id":7}"#] {
            assert_eq!(rejected(line).unwrap().1, -32600, "{line}");
        }
    }

    #[test]
    fn invalid_json_and_notifications_are_ignored() {
        let lines = [
            "",
            "{not json",
            r#"{"jsonrpc":"1.0","method":"notifications/initialized"}"#,
        ];
        for line in lines {
            assert_eq!(rejected(line), None, "{line}");
        }
    }

    #[tokio::test]
    async fn oversized_line_is_rejected_and_the_next_is_read() {
        let long = "x".repeat(MAX_MESSAGE + 1);
        let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        let input = format!("{long}\n{ping}\n");
        let (output, mut answers) = tokio::io::duplex(4096);
        let mut lines = LineTransport::new(input.as_bytes(), output);
        let message = lines.receive().await.unwrap();
        assert!(matches!(message, ClientJsonRpcMessage::Request(_)));
        assert!(lines.receive().await.is_none());
        lines.close().await.unwrap();
        let mut answer = String::new();
        answers.read_to_string(&mut answer).await.unwrap();
        assert!(answer.contains("-32600"), "{answer}");
    }

    fn pong(id: i64) -> ServerJsonRpcMessage {
        ServerJsonRpcMessage::response(ServerResult::empty(()), RequestId::Number(id))
    }

    #[tokio::test]
    async fn blocked_responses_are_written_one_after_the_other() {
        let (output, mut answers) = tokio::io::duplex(7);
        let mut lines = LineTransport::new(tokio::io::empty(), output);
        let sent: Vec<_> = (0..5)
            .map(|id| tokio::spawn(lines.send(pong(id))))
            .collect();
        let read = tokio::spawn(async move {
            let mut all = String::new();
            answers.read_to_string(&mut all).await.map(|_| all)
        });
        for sent in sent {
            sent.await.unwrap().unwrap();
        }
        lines.close().await.unwrap();
        drop(lines);
        let all = read.await.unwrap().unwrap();
        let ids = all.lines().map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            line["id"].as_i64().unwrap()
        });
        let mut ids: Vec<_> = ids.collect();
        ids.sort_unstable();
        assert_eq!(ids, [0, 1, 2, 3, 4]);
    }
}
