//! Documents: versioned JSON beside sessions, such as schedules and webhooks, with an optional time
//! at which they are due.
//!
//! Several processes can work on the same documents: each write names the versions that it is
//! based on, and has no effect if one of them has changed. A process claims a due document by
//! writing a later due time; if the process dies, the document becomes due again.

use std::fmt;

use rye_protocol::Millis;
use serde_json::Value;

use crate::store::StoreFuture;

/// What a document describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum DocumentKind {
    /// A prompt or graph that is started at times.
    Schedule,
    /// A URL to which events are sent.
    Webhook,
    /// An event that is sent to a webhook.
    WebhookDelivery,
    /// The last event of a session that was queued for webhooks.
    WebhookCursor,
    /// A URL at which a request starts a prompt or graph.
    Hook,
    /// A request that a hook has accepted.
    HookRequest,
    /// What a user or an organisation may use.
    Quota,
    /// What a user or an organisation has used in a period.
    QuotaUsage,
    /// The right to run a turn.
    TurnSlot,
    /// The response that a conversation without an id ends with.
    ChatConversation,
}

impl DocumentKind {
    /// The stored name.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A document.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// What it describes.
    pub kind: DocumentKind,
    /// Id, unique among documents of the kind.
    pub id: String,
    /// Identifies this version. Never reused, also not after a removal.
    pub version: u64,
    /// When it is due.
    pub due_at: Option<Millis>,
    /// The content.
    pub body: Value,
}

/// A write of one document, which takes effect only if the document has not changed.
#[derive(Debug, Clone, PartialEq)]
pub struct DocumentWrite {
    /// What it describes.
    pub kind: DocumentKind,
    /// Id of the document.
    pub id: String,
    /// Version that the document must have; `None` if it must not exist.
    pub expected: Option<u64>,
    /// Due time and content; `None` removes the document.
    pub content: Option<(Option<Millis>, Value)>,
}

impl DocumentWrite {
    /// Creates a document.
    pub fn create(
        kind: DocumentKind,
        id: impl Into<String>,
        due_at: Option<Millis>,
        body: Value,
    ) -> Self {
        Self {
            kind,
            id: id.into(),
            expected: None,
            content: Some((due_at, body)),
        }
    }

    /// Replaces a document.
    pub fn replace(document: &Document, due_at: Option<Millis>, body: Value) -> Self {
        Self {
            expected: Some(document.version),
            ..Self::create(document.kind, &document.id, due_at, body)
        }
    }

    /// Removes a document.
    pub fn remove(document: &Document) -> Self {
        Self {
            kind: document.kind,
            id: document.id.clone(),
            expected: Some(document.version),
            content: None,
        }
    }
}

/// Selects documents of a kind by their ids, in byte order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentQuery {
    /// What they describe.
    pub kind: DocumentKind,
    /// Only ids that start with this text.
    pub prefix: String,
    /// Only ids that come after this one.
    pub after: Option<String>,
    /// Whether the highest id comes first.
    pub descending: bool,
    /// Maximum number of documents.
    pub limit: usize,
}

impl DocumentQuery {
    /// All documents of a kind.
    pub fn all(kind: DocumentKind) -> Self {
        Self {
            kind,
            prefix: String::new(),
            after: None,
            descending: false,
            limit: usize::MAX,
        }
    }
}

/// Stores documents durably.
pub trait DocumentStore: Send + Sync + 'static {
    /// A document; `None` if it does not exist.
    fn get<'a>(&'a self, kind: DocumentKind, id: &'a str) -> StoreFuture<'a, Option<Document>>;

    /// Documents of a kind, in the order of their ids.
    fn list(&self, query: DocumentQuery) -> StoreFuture<'_, Vec<Document>>;

    /// Documents of a kind whose due time is not after `now`, in the order of their due times.
    fn due(&self, kind: DocumentKind, now: Millis, limit: usize) -> StoreFuture<'_, Vec<Document>>;

    /// Performs all writes in one transaction and returns true. Returns false and writes nothing if
    /// one of the documents does not have the expected version. No two writes may be for the same
    /// document.
    fn write(&self, writes: Vec<DocumentWrite>) -> StoreFuture<'_, bool>;
}

impl fmt::Debug for dyn DocumentStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DocumentStore")
    }
}
