//! Entries: what was said and done.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{CallId, EntryId, ErrorInfo, GateId, Millis, QueueItemId, SessionId, ThreadId};

/// One step of a history. Each names the one before; from the leaf back to the root is
/// the active path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Entry {
    /// Its id.
    pub id: EntryId,
    /// Whose it is.
    pub session: SessionId,
    /// Whose thread's.
    pub thread: ThreadId,
    /// The one before.
    pub parent: Option<EntryId>,
    /// The prompt that it belongs to.
    pub item: Option<QueueItemId>,
    /// What it is.
    pub kind: EntryKind,
    /// When it was written.
    pub created_at: Millis,
    /// The hash of all this and of the hash of the one before.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hash: String,
}

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum EntryKind {
    /// Somebody said something, or a tool gave something.
    Message(Message),
    /// A person was asked.
    DecisionGate {
        /// At which gate.
        gate: GateId,
        /// What for.
        title: String,
        /// The hash of the whole question, so that the history stands for what was asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        question: Option<String>,
    },
    /// What came before is summed up from here on.
    Compaction {
        /// The sum.
        summary: String,
        /// What it stands for.
        covered: Vec<EntryId>,
        /// Tokens of the context before.
        tokens_before: u64,
        /// And after.
        tokens_after: u64,
        /// Files that had been read.
        files_read: Vec<String>,
        /// Files that had been changed.
        files_modified: Vec<String>,
        /// What must not fade, word for word: the first goal, open gates, the queue.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        kept: Vec<String>,
        /// Whether files and images before it are left out too: a model had no room for them.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        without_media: bool,
    },
    /// A sum does not stand any more: what it covers is read again.
    CompactionUndone {
        /// The entry with the sum.
        compaction: EntryId,
    },
    /// What happened on a branch that was left.
    BranchSummary {
        /// The branch's last entry.
        leaf: EntryId,
        /// The sum.
        summary: String,
    },
}

/// A message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Message {
    /// Who.
    pub role: Role,
    /// The whole truth, in order.
    pub parts: Vec<Part>,
    /// Which model said it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Why the model stopped, in its own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    /// What the host and the provider want to remember.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
}

impl Message {
    /// A message of one text.
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self::of(role, vec![Part::Text { text: text.into() }])
    }

    /// A message of parts.
    pub fn of(role: Role, parts: Vec<Part>) -> Self {
        Self {
            role,
            parts,
            model: None,
            stop_reason: None,
            metadata: Map::new(),
        }
    }

    /// Its texts, joined: what people read.
    pub fn content(&self) -> String {
        let texts = self.parts.iter().filter_map(|part| match part {
            Part::Text { text } | Part::ToolResult { text, .. } => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }
}

/// Who says something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A person, or who speaks for one.
    User,
    /// The model.
    Assistant,
    /// A tool.
    Tool,
    /// The host.
    System,
}

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Part {
    /// Words.
    Text {
        /// They.
        text: String,
    },
    /// What a model thought before it spoke.
    Thinking {
        /// Its words, where the provider gives them.
        text: String,
        /// What the provider wants back with it: a signature, or thoughts that it sealed.
        /// It means something to the model that gave it, and to no other.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    /// A call that the model wants.
    ToolCall {
        /// Which.
        call_id: CallId,
        /// The tool's name.
        tool: String,
        /// With what.
        args: Value,
    },
    /// What came of a call.
    ToolResult {
        /// Which.
        call_id: CallId,
        /// The tool's name.
        tool: String,
        /// How it ended.
        status: ResultStatus,
        /// What the model reads.
        text: String,
        /// What programs read.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        data: Value,
        /// What went wrong.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<ErrorInfo>,
        /// Whether the text was left out to save room; the blob store may have it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        elided: bool,
    },
    /// A file or an image.
    Attachment {
        /// Its name.
        name: String,
        /// What it is.
        mime_type: String,
        /// Where the blob store has it, or the bytes themselves as a `data:` address.
        source: String,
    },
    /// Something went wrong here.
    Error {
        /// What.
        error: ErrorInfo,
    },
}

/// How a tool call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ResultStatus {
    /// Well.
    Success,
    /// Not well; the model reads why.
    Error,
    /// The host died meanwhile: whether it had its effect is not known.
    Interrupted,
    /// Somebody ended it.
    Aborted,
}
