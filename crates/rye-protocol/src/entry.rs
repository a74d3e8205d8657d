//! Entries: the records of a thread's history.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Author, CallId, EntryId, ErrorInfo, GateId, Millis, PromptId, RunEvent, SessionId, ThreadId,
};

/// One record of a history. Entries form a tree through `parent`; the path from the
/// leaf to the root is the active path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Entry {
    /// Unique id.
    pub id: EntryId,
    /// The session of the entry.
    pub session: SessionId,
    /// The thread of the entry.
    pub thread: ThreadId,
    /// The previous entry; none for the first.
    pub parent: Option<EntryId>,
    /// The prompt that the entry belongs to.
    pub prompt: Option<PromptId>,
    /// The content.
    pub kind: EntryKind,
    /// Creation time.
    pub created_at: Millis,
    /// Hash over this entry and the hash of its parent.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hash: String,
}

/// The content of an entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum EntryKind {
    /// A message of a user, a model or a tool.
    Message(Message),
    /// A gate was opened.
    DecisionGate {
        /// The gate.
        gate: GateId,
        /// One-line summary of the question.
        title: String,
        /// Hash of the full question, which binds it to the history.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        question: Option<String>,
    },
    /// Replaces older entries by a summary.
    Compaction {
        /// The summary.
        summary: String,
        /// The entries that it replaces.
        covered: Vec<EntryId>,
        /// Context size before, in tokens.
        tokens_before: u64,
        /// Context size after, in tokens.
        tokens_after: u64,
        /// Files read in the covered entries.
        files_read: Vec<String>,
        /// Files modified in the covered entries.
        files_modified: Vec<String>,
        /// Facts preserved verbatim: the initial goal, open gates, the queue.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        preserved: Vec<String>,
        /// Whether older attachments are dropped as well, because they did not fit the
        /// context.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        without_media: bool,
    },
    /// Reverts a compaction: the covered entries are part of the context again.
    CompactionUndone {
        /// The compaction entry.
        compaction: EntryId,
    },
    /// Summarises a branch that was left.
    BranchSummary {
        /// The last entry of the branch.
        leaf: EntryId,
        /// The summary.
        summary: String,
    },
    /// Progress of a graph run: everything that one commit records.
    Run {
        /// The steps, in order.
        events: Vec<RunEvent>,
    },
}

/// A message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Message {
    /// Who wrote the message.
    pub role: Role,
    /// The content, in order.
    pub parts: Vec<Part>,
    /// The model that wrote the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The provider's stop reason, verbatim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    /// Why the model's answer is incomplete, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<IncompleteReason>,
    /// Why the model was stopped while it wrote the message: `abort` or `steer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aborted: Option<String>,
    /// The extracted result, if the prompt requires one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// The sender of a prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<Author>,
    /// Why the engine generated the message, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synthetic: Option<Synthetic>,
}

impl Message {
    /// A message with a single text part.
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self::new(role, vec![Part::Text { text: text.into() }])
    }

    /// A message with the given parts.
    pub fn new(role: Role, parts: Vec<Part>) -> Self {
        Self {
            role,
            parts,
            model: None,
            stop_reason: None,
            incomplete: None,
            aborted: None,
            result: None,
            author: None,
            synthetic: None,
        }
    }

    /// Concatenates all texts, including tool results.
    pub fn content(&self) -> String {
        let texts = self.parts.iter().filter_map(|part| match part {
            Part::Text { text } | Part::ToolResult { text, .. } => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }
}

/// Why the engine generated a user message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Synthetic {
    /// To continue after a compaction.
    CompactionContinue,
    /// To ask the model to correct its result.
    ResultRetry,
    /// To tell the model which of its changes were applied to the workspace.
    Review,
    /// To tell the model which of its changes were undone.
    Undo,
}

/// Why an answer is incomplete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum IncompleteReason {
    /// The model reached its output limit.
    OutputLimit,
    /// The model or its provider refused to continue.
    Refused,
}

impl fmt::Display for IncompleteReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OutputLimit => "the answer is truncated: the model reached its output limit",
            Self::Refused => "the answer is incomplete: the model refused to continue",
        })
    }
}

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A person or a program acting for one.
    User,
    /// A model.
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
    /// Plain text.
    Text {
        /// The text.
        text: String,
    },
    /// The model's reasoning.
    Thinking {
        /// The reasoning text, if the provider discloses it.
        text: String,
        /// Opaque data that the provider expects back: a signature or encrypted
        /// reasoning. Only meaningful to the model that produced it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    /// A tool call requested by the model.
    ToolCall {
        /// Id of the call.
        call_id: CallId,
        /// Name of the tool.
        tool: String,
        /// Arguments of the call.
        args: Value,
    },
    /// The result of a tool call.
    ToolResult {
        /// Id of the call.
        call_id: CallId,
        /// Name of the tool.
        tool: String,
        /// Outcome of the call.
        status: ResultStatus,
        /// The result for the model.
        text: String,
        /// The result for programs.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        data: Value,
        /// Error details, if the call failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<ErrorInfo>,
        /// Whether the text was dropped to save context; the blob store may still have
        /// it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        elided: bool,
    },
    /// A file or an image.
    Attachment {
        /// File name.
        name: String,
        /// MIME type.
        mime_type: String,
        /// Blob reference or `data:` URL.
        source: String,
    },
    /// An error at this point of the history.
    Error {
        /// Error details.
        error: ErrorInfo,
    },
}

/// The outcome of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ResultStatus {
    /// The call succeeded.
    Success,
    /// The call failed; the text tells the model why.
    Error,
    /// The host died during the call; its effects are unknown.
    Interrupted,
    /// The call was aborted by a user.
    Aborted,
}
