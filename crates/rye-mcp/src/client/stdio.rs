//! Messages over the standard streams of a process, one a line.
//!
//! The SDK has such a transport, too. This one tells what went wrong: which
//! requests have gone out whole, that an answer was too long and to what, that
//! an answer belongs to no request, that a message is broken.

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

use super::error::ClientErrorKind;
use super::lines::{Line, Lines};
use super::said::{Heard, excerpt};
use super::wire::Wire;

/// How much is read at a time: what a pipe holds.
const CHUNK: usize = 64 * 1024;
/// The error under which an answer that was too long reaches its call.
pub(super) const TOO_LONG: ErrorCode = ErrorCode(-32_090);

/// The two streams of a server.
pub(super) struct Stdio {
    output: Receiver,
    input: Arc<Mutex<Option<Sender>>>,
    lines: Lines,
    chunk: Vec<u8>,
    wire: Arc<Wire>,
    heard: Heard,
}

impl Stdio {
    pub(super) fn new(
        output: Receiver,
        input: Sender,
        limit: usize,
        wire: Arc<Wire>,
        heard: Heard,
    ) -> Self {
        Self {
            output,
            input: Arc::new(Mutex::new(Some(input))),
            lines: Lines::new(limit),
            chunk: Vec::with_capacity(CHUNK),
            wire,
            heard,
        }
    }

    /// Reads what there is. Tells whether there may be more some time.
    async fn read(&mut self) -> io::Result<bool> {
        self.output.readable().await?;
        self.chunk.clear();
        match self.output.try_read_buf(&mut self.chunk) {
            Ok(0) => Ok(false),
            Ok(_) => {
                self.lines.push(&self.chunk);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// What a line means.
    fn understand(&self, line: &[u8]) -> Meaning {
        let line = line.trim_ascii();
        if line.is_empty() {
            return Meaning::Nothing;
        }
        match serde_json::from_slice::<ServerJsonRpcMessage>(line) {
            Ok(message) => match answered(&message) {
                Some(id) if !number(id).is_some_and(|id| self.wire.was_asked(id)) => {
                    Meaning::Fault(format!("it answered request {id}, which was never made"))
                }
                _ => Meaning::Message(Box::new(message)),
            },
            // Whatever claims to be a message has to be one: its answer will not come.
            Err(error) if is_claimed(line) => Meaning::Fault(format!(
                "a message of it cannot be read ({error}): {}",
                excerpt(
                    self.heard
                        .redactor()
                        .redact(&String::from_utf8_lossy(line))
                        .as_bytes()
                )
            )),
            // Many print a greeting, or log to the wrong stream.
            Err(_) => {
                self.heard.no_message(line);
                Meaning::Nothing
            }
        }
    }
}

/// What a line of a server means.
enum Meaning {
    Message(Box<ServerJsonRpcMessage>),
    Nothing,
    Fault(String),
}

/// The request that a message answers.
fn answered(message: &ServerJsonRpcMessage) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Response(response) => Some(&response.id),
        JsonRpcMessage::Error(error) => error.id.as_ref(),
        _ => None,
    }
}

/// Our ids are numbers; some servers send them back as texts.
pub(super) fn number(id: &RequestId) -> Option<i64> {
    match id {
        NumberOrString::Number(number) => Some(*number),
        NumberOrString::String(text) => text.parse().ok(),
    }
}

/// Whether a line says of itself that it is a message.
fn is_claimed(line: &[u8]) -> bool {
    let needle = b"\"jsonrpc\"";
    line.starts_with(b"{") && line.windows(needle.len()).any(|part| part == needle)
}

impl Transport<RoleClient> for Stdio {
    type Error = io::Error;

    fn send(
        &mut self,
        item: ClientJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let input = Arc::clone(&self.input);
        let wire = Arc::clone(&self.wire);
        let id = match &item {
            JsonRpcMessage::Request(request) => number(&request.id),
            _ => None,
        };
        if let Some(id) = id {
            wire.begins(id);
        }
        let line = serde_json::to_vec(&item).map(|mut line| {
            line.push(b'\n');
            line
        });
        async move {
            let line = line?;
            let mut input = input.lock().await;
            let input = input.as_mut().ok_or(io::ErrorKind::NotConnected)?;
            let mut left = line.as_slice();
            while !left.is_empty() {
                let written = input.write(left).await?;
                left = &left[written..];
                // Without its end, a line may be taken for whole all the same.
                if left.len() <= 1
                    && let Some(id) = id
                {
                    wire.has_written(id);
                }
            }
            Ok(())
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            match self.lines.next() {
                Some(Line::Whole(range)) => match self.understand(self.lines.bytes(&range)) {
                    Meaning::Message(message) => return Some(*message),
                    Meaning::Nothing => {}
                    Meaning::Fault(what) => {
                        self.wire.fail(ClientErrorKind::Protocol(what));
                        return None;
                    }
                },
                Some(Line::TooLong(Some(id))) if self.wire.was_asked(id) => {
                    let error = ErrorData::new(TOO_LONG, "the answer is too long", None);
                    let id = Some(NumberOrString::Number(id));
                    return Some(JsonRpcMessage::error(error, id));
                }
                Some(Line::TooLong(_)) => {
                    let limit = self.lines.limit();
                    self.wire.fail(ClientErrorKind::Protocol(format!(
                        "a line of its output has more than {limit} bytes (`max_message`), and \
                         cannot be told to be an answer"
                    )));
                    return None;
                }
                None => match self.read().await {
                    Ok(true) => {}
                    Ok(false) | Err(_) => return None,
                },
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        // One that does not read its input holds up nobody.
        if let Ok(mut input) = self.input.try_lock() {
            *input = None;
        }
        Ok(())
    }
}
