//! Scripted HTTP responses.

use std::time::Duration;

use serde_json::Value;

/// An HTTP response and how it is delivered.
#[derive(Debug, Clone)]
pub struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Bytes per chunk.
    pub(crate) chunk_size: usize,
    /// Delay before the response.
    pub(crate) delay: Duration,
    /// Pause between chunks.
    pub(crate) pause: Duration,
    pub(crate) ending: Ending,
}

/// How a reply ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The reply is sent completely.
    Complete,
    /// The server closes the connection early.
    Disconnect,
    /// The server sends nothing more and waits for the client to disconnect.
    Stall,
}

impl Reply {
    /// A stream of server-sent events.
    pub fn stream(events: impl Into<Vec<u8>>) -> Self {
        Self::new(200, "text/event-stream; charset=utf-8", events.into())
    }

    /// A JSON body with a status.
    pub fn json(status: u16, body: &Value) -> Self {
        Self::new(status, "application/json", body.to_string().into_bytes())
    }

    /// A body of any content type with status 200.
    pub fn page(content_type: &str, body: &str) -> Self {
        Self::new(200, content_type, body.as_bytes().to_vec())
    }

    fn new(status: u16, content_type: &str, body: Vec<u8>) -> Self {
        Self {
            status,
            headers: vec![("content-type".to_owned(), content_type.to_owned())],
            body,
            chunk_size: usize::MAX,
            delay: Duration::ZERO,
            pause: Duration::ZERO,
            ending: Ending::Complete,
        }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sends the body in chunks of this many bytes, even inside a character.
    #[must_use]
    pub fn in_chunks_of(mut self, bytes: usize) -> Self {
        self.chunk_size = bytes.max(1);
        self
    }

    /// Delays the response.
    #[must_use]
    pub fn with_delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Pauses between chunks.
    #[must_use]
    pub fn with_pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// Closes the connection after this many bytes.
    #[must_use]
    pub fn disconnect_after(mut self, bytes: usize) -> Self {
        self.body.truncate(bytes);
        self.ending = Ending::Disconnect;
        self
    }

    /// Sends nothing more after this many bytes, but keeps the connection open.
    #[must_use]
    pub fn stall_after(mut self, bytes: usize) -> Self {
        self.body.truncate(bytes);
        self.ending = Ending::Stall;
        self
    }

    /// Replaces the line endings.
    #[must_use]
    pub fn with_line_ending(mut self, end: &str) -> Self {
        let text = String::from_utf8(self.body).unwrap();
        self.body = text.replace('\n', end).into_bytes();
        self
    }

    /// Adds comments and empty events between the events, as servers send them to keep a
    /// connection alive.
    #[must_use]
    pub fn with_keep_alives(mut self) -> Self {
        let text = String::from_utf8(self.body).unwrap();
        let padded = text.replace("\n\n", "\n\n: keep-alive\n\n:\n");
        self.body = format!(": OPENROUTER PROCESSING\n\n{padded}").into_bytes();
        self
    }
}
