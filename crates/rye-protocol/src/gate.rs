//! Gates: stop here until a person decides.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{CallId, GateId, Millis, QueueItemId, Receipt, SessionId, ThreadId};

/// A place where a thread waits for a person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Gate {
    /// Its id.
    pub id: GateId,
    /// What kind of decision.
    pub kind: GateKind,
    /// What is asked, in a line.
    pub title: String,
    /// All that a person must know.
    pub body: String,
    /// What they may answer; none is free text.
    pub actions: Vec<Action>,
    /// How it stands.
    pub status: GateStatus,
    /// Where in the work it is.
    pub origin: GateOrigin,
    /// When it is too late.
    pub expires_at: Option<Millis>,
    /// What else programs want to know: hashes of what is approved, for one.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub context: Map<String, Value>,
    /// When it was opened.
    pub created_at: Millis,
}

/// What kind of decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum GateKind {
    /// May it?
    Approval,
    /// What should it?
    Question,
    /// With whose password?
    CredentialRequest,
}

/// An answer that can be chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Action {
    /// Its id, as in [`Resolution::action`].
    pub id: String,
    /// What people read.
    pub label: String,
}

/// How a gate stands. But for the first, nothing changes it any more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum GateStatus {
    /// Nobody has decided.
    Pending,
    /// Somebody has.
    Resolved {
        /// What.
        resolution: Resolution,
    },
    /// The question is gone.
    Withdrawn {
        /// Why: `steer`, `abort`.
        reason: String,
        /// When.
        at: Millis,
    },
    /// Nobody did in time.
    Expired {
        /// When.
        at: Millis,
    },
}

impl GateStatus {
    /// Whether a decision is still wanted.
    pub fn is_pending(&self) -> bool {
        matches!(self, Self::Pending)
    }
}

/// Where in the work a gate is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GateOrigin {
    /// The session.
    pub session: SessionId,
    /// The thread that waits.
    pub thread: ThreadId,
    /// The prompt.
    pub item: QueueItemId,
    /// The call.
    pub call: CallId,
    /// The tool.
    pub tool: String,
    /// What the tool calls it.
    pub resume_key: String,
}

/// A decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Resolution {
    /// The action that was chosen.
    pub action: String,
    /// What was said beside it.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub value: Value,
    /// Who.
    pub by: String,
    /// When.
    pub at: Millis,
    /// By which way: `cli`, `web`, `slack`.
    pub source: String,
    /// Their signature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Box<Receipt>>,
}

impl Resolution {
    /// Whether another says the same, whoever and whenever.
    pub fn agrees_with(&self, other: &Self) -> bool {
        self.action == other.action && self.value == other.value
    }
}

/// Where a gate was shown, to be updated when it ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GateRef {
    /// The gate.
    pub gate: GateId,
    /// The channel.
    pub channel: String,
    /// The message, in the channel's words.
    pub message: String,
}
