//! What makes a record prove itself: seals under histories, receipts of decisions, and the
//! record as a whole, to be taken elsewhere.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    CallId, Entry, EntryId, Event, Gate, GateId, GateRef, Millis, QueueItem, Session, SessionId,
    Suspended, Thread, ThreadId,
};

/// A signature under a part of a session, written in the commit that changes it. It covers the
/// history of a thread, since each entry names the hash of the one before it, and rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Seal {
    /// The session.
    pub session: SessionId,
    /// The thread; none where only rows are sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<ThreadId>,
    /// The last entry of the thread, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaf: Option<EntryId>,
    /// The hash of that entry.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hash: String,
    /// The hashes of rows as they are from now on: `session`, `thread:ID`, `item:ID`,
    /// `gate:ID` and so on.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rows: BTreeMap<String, String>,
    /// The hashes of the seals before it: the last one of the thread, and the last one of
    /// the session. A seal that is gone is missed by those after it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// When it was made.
    pub at: Millis,
    /// The fingerprint of the key.
    pub key: String,
    /// The signature, in base64.
    pub signature: String,
}

/// A signature under a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Receipt {
    /// The session.
    pub session: SessionId,
    /// The gate.
    pub gate: GateId,
    /// The call.
    pub call: CallId,
    /// What was decided.
    pub action: String,
    /// The hash of what would run, where it is an item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain_hash: Option<String>,
    /// The hash of its arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args_hash: Option<String>,
    /// The hash of the question as it was shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// The hash of the whole answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// Who.
    pub by: String,
    /// When.
    pub at: Millis,
    /// The fingerprint of the key.
    pub key: String,
    /// The signature, in base64.
    pub signature: String,
}

/// A session with all that belongs to it, ended or not, to be written elsewhere.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Archive {
    /// It.
    pub session: Session,
    /// Its threads, in the order in which they were made.
    pub threads: Vec<Thread>,
    /// All entries, in the order in which they were written.
    pub entries: Vec<Entry>,
    /// All prompts.
    pub items: Vec<QueueItem>,
    /// All gates.
    pub gates: Vec<Gate>,
    /// Where gates were shown.
    pub refs: Vec<GateRef>,
    /// Turns that wait.
    pub suspended: Vec<Suspended>,
    /// All events, from the first on.
    pub events: Vec<Event>,
}
