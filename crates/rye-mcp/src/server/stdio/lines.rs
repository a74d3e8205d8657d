//! Messages as lines of JSON.
//!
//! A request is answered whatever is wrong with it: who waits for an answer to a request
//! that was dropped, waits for ever.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use rmcp::RoleServer;
use rmcp::model::{ClientJsonRpcMessage, ErrorCode, ErrorData, RequestId, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::plain;

/// The longest message. The client started this process; still it may be mistaken.
const LONGEST: usize = 64 * 1024 * 1024;

/// How much room is kept between messages.
const ROOM: usize = 1024 * 1024;

/// What a line is read from and written to.
pub(super) struct Lines<R, W> {
    input: BufReader<R>,
    /// The line so far. Reading may be broken off at any time and goes on with it.
    line: Vec<u8>,
    /// Whether the line is too long, and what is still to come of it is not kept.
    is_too_long: bool,
    output: Arc<Mutex<Option<W>>>,
}

impl<R: AsyncRead + Send + Unpin, W: AsyncWrite + Send + Unpin + 'static> Lines<R, W> {
    pub(super) fn new(input: R, output: W) -> Self {
        Self {
            input: BufReader::new(input),
            line: Vec::new(),
            is_too_long: false,
            output: Arc::new(Mutex::new(Some(output))),
        }
    }

    /// Reads on to the end of a line; false at the end of everything.
    async fn read(&mut self) -> bool {
        loop {
            let Ok(bytes) = self.input.fill_buf().await else {
                return false;
            };
            if bytes.is_empty() {
                return false;
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let length = end.map_or(bytes.len(), |end| end + 1);
            if self.line.len() + length > LONGEST {
                self.is_too_long = true;
                self.line.clear();
            }
            if !self.is_too_long {
                self.line.extend_from_slice(&bytes[..length]);
            }
            self.input.consume(length);
            if end.is_some() {
                return true;
            }
        }
    }

    /// What the line says that was read.
    fn take(&mut self) -> Line {
        let is_too_long = std::mem::take(&mut self.is_too_long);
        let line = if is_too_long {
            Line::Refused(Refused::too_long())
        } else {
            Line::read(&self.line)
        };
        self.line.clear();
        self.line.shrink_to(ROOM);
        line
    }
}

impl<R, W> Transport<RoleServer> for Lines<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        // What waits for nobody is written now: the client reads it while the rest of the
        // call is put away here, and what is left over is small.
        let sent = line_of(&message).and_then(|line| Sending::begin(&self.output, line));
        async move {
            match sent? {
                Some(sending) => sending.finish().await,
                None => Ok(()),
            }
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            if !self.read().await {
                return None;
            }
            match self.take() {
                Line::Message(message) => return Some(message),
                Line::Nothing => {}
                Line::Refused(Refused { id, error }) => {
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

fn line_of(message: &ServerJsonRpcMessage) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

/// A line that could not be written at once.
struct Sending<W> {
    output: Arc<Mutex<Option<W>>>,
    /// Who has begun a line ends it before anybody writes another.
    begun: Option<OwnedMutexGuard<Option<W>>>,
    line: Vec<u8>,
    written: usize,
}

impl<W: AsyncWrite + Unpin> Sending<W> {
    /// Writes as much of a line as goes without waiting; none where that is all of it.
    fn begin(output: &Arc<Mutex<Option<W>>>, line: Vec<u8>) -> io::Result<Option<Self>> {
        let mut sending = Self {
            output: Arc::clone(output),
            begun: None,
            line,
            written: 0,
        };
        let Ok(mut output) = Arc::clone(output).try_lock_owned() else {
            return Ok(Some(sending));
        };
        let to = output.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        // Who finishes it asks to be woken.
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(written) = Pin::new(&mut *to).poll_write(&mut context, &sending.line) {
            sending.written = written?;
        }
        if sending.written == sending.line.len()
            && let Poll::Ready(flushed) = Pin::new(to).poll_flush(&mut context)
        {
            return flushed.map(|()| None);
        }
        sending.begun = Some(output);
        Ok(Some(sending))
    }

    async fn finish(self) -> io::Result<()> {
        let mut output = match self.begun {
            Some(output) => output,
            None => self.output.lock_owned().await,
        };
        let output = output.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        output.write_all(&self.line[self.written..]).await?;
        output.flush().await
    }
}

/// Why a line is no message, and whose request it was.
#[derive(Debug, PartialEq)]
struct Refused {
    id: Option<RequestId>,
    error: ErrorData,
}

impl Refused {
    fn new(id: Option<RequestId>, code: ErrorCode, message: String) -> Self {
        let error = ErrorData::new(code, message, None);
        Self { id, error }
    }

    /// Whose it is cannot be told without reading all of it.
    fn too_long() -> Self {
        let most = LONGEST / 1024 / 1024;
        let message = format!("a message has at most {most} MiB");
        Self::new(None, ErrorCode::INVALID_REQUEST, message)
    }
}

/// What a line says.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, and nearly always a message"
)]
enum Line {
    Message(ClientJsonRpcMessage),
    Refused(Refused),
    /// Nothing that anybody waits for an answer to. What is no JSON at all is passed over,
    /// as everybody does: two that complain of each other's complaints would never end.
    Nothing,
}

impl Line {
    fn read(line: &[u8]) -> Self {
        let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        if let Some(call) = plain::call(line) {
            return Self::Message(call);
        }
        let error = match serde_json::from_slice(line) {
            Ok(message) => return Self::Message(message),
            Err(error) => error,
        };
        let Ok(value) = serde_json::from_slice::<Value>(line) else {
            return Self::Nothing;
        };
        let method = value.get("method").and_then(Value::as_str);
        let id = value.get("id");
        if id.is_none() && method.is_some() {
            return Self::Nothing;
        }
        let id: Option<RequestId> = id.and_then(|id| serde_json::from_value(id.clone()).ok());
        Self::Refused(match (id, method) {
            (Some(id), Some(method)) => {
                let message = format!("the parameters do not fit `{method}`: {error}");
                Refused::new(Some(id), ErrorCode::INVALID_PARAMS, message)
            }
            (id, _) => {
                let message = format!("this is no message of the protocol: {error}");
                Refused::new(id, ErrorCode::INVALID_REQUEST, message)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::ServerResult;
    use tokio::io::AsyncReadExt as _;

    fn refused(line: &str) -> Option<(Option<RequestId>, i32)> {
        match Line::read(line.as_bytes()) {
            Line::Refused(refused) => Some((refused.id, refused.error.code.0)),
            Line::Nothing => None,
            Line::Message(message) => panic!("{message:?}"),
        }
    }

    #[test]
    fn a_request_that_does_not_fit_is_refused_by_its_id() {
        let line = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":[]}"#;
        assert_eq!(refused(line), Some((Some(RequestId::Number(7)), -32602)));
        let line = r#"{"jsonrpc":"1.0","id":"x","method":"ping"}"#;
        let id = RequestId::String("x".into());
        assert_eq!(refused(line), Some((Some(id), -32602)));
        for line in ["[]", "42", r#"{"id":7}"#] {
            assert_eq!(refused(line).unwrap().1, -32600, "{line}");
        }
    }

    #[test]
    fn what_is_no_json_or_wants_no_answer_is_passed_over() {
        let lines = [
            "",
            "{not json",
            r#"{"jsonrpc":"1.0","method":"notifications/initialized"}"#,
        ];
        for line in lines {
            assert_eq!(refused(line), None, "{line}");
        }
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_refused_and_the_next_one_read() {
        let long = "x".repeat(LONGEST + 1);
        let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        let input = format!("{long}\n{ping}\n");
        let (output, mut answers) = tokio::io::duplex(4096);
        let mut lines = Lines::new(input.as_bytes(), output);
        let message = lines.receive().await.unwrap();
        assert!(matches!(message, ClientJsonRpcMessage::Request(_)));
        assert!(lines.receive().await.is_none());
        lines.close().await.unwrap();
        let mut answer = String::new();
        answers.read_to_string(&mut answer).await.unwrap();
        assert!(answer.contains("at most 64 MiB"), "{answer}");
    }

    fn pong(id: i64) -> ServerJsonRpcMessage {
        ServerJsonRpcMessage::response(ServerResult::empty(()), RequestId::Number(id))
    }

    #[tokio::test]
    async fn an_answer_is_written_before_anybody_waits_for_it() {
        let (output, mut answers) = tokio::io::duplex(4096);
        let mut lines = Lines::new(tokio::io::empty(), output);
        let sent = lines.send(pong(1));
        let mut answer = [0; 512];
        let length = answers.read(&mut answer).await.unwrap();
        assert!(answer[..length].ends_with(b"\n"));
        sent.await.unwrap();
        lines.close().await.unwrap();
        let error = lines.send(pong(2)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotConnected);
    }

    #[tokio::test]
    async fn answers_that_have_to_wait_are_written_whole_one_after_the_other() {
        let (output, mut answers) = tokio::io::duplex(7);
        let mut lines = Lines::new(tokio::io::empty(), output);
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
