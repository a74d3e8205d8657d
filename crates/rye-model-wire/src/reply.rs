//! What a server says, and how.

use std::time::Duration;

use serde_json::Value;

/// What a server says, and how.
#[derive(Debug, Clone)]
pub struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) piece: usize,
    pub(crate) before: Duration,
    pub(crate) between: Duration,
    pub(crate) ending: Ending,
}

/// How a reply ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// As it should.
    Whole,
    /// The connection breaks.
    Cut,
    /// It does not: nothing more is said until the other side leaves.
    Silent,
}

impl Reply {
    /// A stream of server-sent events.
    pub fn stream(events: impl Into<Vec<u8>>) -> Self {
        Self::new(200, "text/event-stream; charset=utf-8", events.into())
    }

    /// JSON with a status.
    pub fn json(status: u16, body: &Value) -> Self {
        Self::new(status, "application/json", body.to_string().into_bytes())
    }

    /// Something of another kind, which is said to be well.
    pub fn page(kind: &str, body: &str) -> Self {
        Self::new(200, kind, body.as_bytes().to_vec())
    }

    fn new(status: u16, kind: &str, body: Vec<u8>) -> Self {
        Self {
            status,
            headers: vec![("content-type".to_owned(), kind.to_owned())],
            body,
            piece: usize::MAX,
            before: Duration::ZERO,
            between: Duration::ZERO,
            ending: Ending::Whole,
        }
    }

    /// With a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Said so many bytes at a time, wherever that cuts.
    #[must_use]
    pub fn in_pieces_of(mut self, bytes: usize) -> Self {
        self.piece = bytes.max(1);
        self
    }

    /// After a while.
    #[must_use]
    pub fn after(mut self, wait: Duration) -> Self {
        self.before = wait;
        self
    }

    /// With a pause between the pieces.
    #[must_use]
    pub fn slowly(mut self, pause: Duration) -> Self {
        self.between = pause;
        self
    }

    /// Broken off after so many bytes.
    #[must_use]
    pub fn cut_after(mut self, bytes: usize) -> Self {
        self.body.truncate(bytes);
        self.ending = Ending::Cut;
        self
    }

    /// After so many bytes nothing more is said, and the connection stays.
    #[must_use]
    pub fn silent_after(mut self, bytes: usize) -> Self {
        self.body.truncate(bytes);
        self.ending = Ending::Silent;
        self
    }

    /// With lines that end as they do elsewhere.
    #[must_use]
    pub fn with_line_ends(mut self, end: &str) -> Self {
        let text = String::from_utf8(self.body).unwrap();
        self.body = text.replace('\n', end).into_bytes();
        self
    }

    /// With comments and empty events between all events, as servers send them to keep a
    /// connection alive.
    #[must_use]
    pub fn with_keep_alives(mut self) -> Self {
        let text = String::from_utf8(self.body).unwrap();
        let padded = text.replace("\n\n", "\n\n: keep-alive\n\n:\n");
        self.body = format!(": OPENROUTER PROCESSING\n\n{padded}").into_bytes();
        self
    }
}
