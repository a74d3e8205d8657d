//! Evidence: seals under histories, receipts of decisions, and exported sessions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    ActionId, CallId, Entry, EntryId, Event, Gate, GateId, GateRef, Millis, QueuedPrompt, Session,
    SessionId, Thread, ThreadId,
};

/// A signature under a part of a session, written in the commit that changes it. It covers the
/// history of a thread, since each entry contains the hash of its parent, and database rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Seal {
    /// The session.
    pub session: SessionId,
    /// The thread; absent if only rows are sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<ThreadId>,
    /// The last entry covered, if the thread has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaf: Option<EntryId>,
    /// Hash of that entry.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hash: String,
    /// Hashes of the rows as of this commit, by name: `session`, `thread:ID`, `prompt:ID`,
    /// `gate:ID` and so on.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rows: BTreeMap<String, String>,
    /// Hashes of the preceding seals of the thread and of the session, so that a
    /// removed seal is detected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// Signing time.
    pub at: Millis,
    /// Fingerprint of the key.
    pub key: String,
    /// The signature in base64.
    pub signature: String,
}

/// The signature under a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Receipt {
    /// The session.
    pub session: SessionId,
    /// The gate.
    pub gate: GateId,
    /// The tool call.
    pub call: CallId,
    /// The id of the chosen action.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub action: ActionId,
    /// The chain hash, if the tool is an item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain_hash: Option<String>,
    /// Hash of the call's arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args_hash: Option<String>,
    /// Hash of the question as displayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// Hash of the complete answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// Who decided.
    pub by: String,
    /// When the decision was made.
    pub at: Millis,
    /// Fingerprint of the key.
    pub key: String,
    /// The signature in base64.
    pub signature: String,
}

/// A complete exported session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Archive {
    /// The session.
    pub session: Session,
    /// The threads, in order of creation.
    pub threads: Vec<Thread>,
    /// All entries, in order of creation.
    pub entries: Vec<Entry>,
    /// All prompts.
    pub prompts: Vec<QueuedPrompt>,
    /// All gates.
    pub gates: Vec<Gate>,
    /// Where gates were displayed.
    pub gate_refs: Vec<GateRef>,
    /// All events, in order.
    pub events: Vec<Event>,
}
