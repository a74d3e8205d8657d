//! Gates: durable waits for a person's decision.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{CallId, GateId, Millis, PromptId, Receipt, SessionId, ThreadId};

/// A point where a thread waits for a decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Gate {
    /// Unique id.
    pub id: GateId,
    /// The kind of decision.
    pub kind: GateKind,
    /// One-line summary of the question.
    pub title: String,
    /// Everything a person needs to know to decide.
    pub body: String,
    /// The possible answers; empty for free text.
    pub actions: Vec<Action>,
    /// Whether the gate is still open.
    pub status: GateStatus,
    /// The tool call that waits.
    pub origin: GateOrigin,
    /// When the gate expires.
    pub expires_at: Option<Millis>,
    /// Additional data for programs, such as hashes of the approved files.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub context: Map<String, Value>,
    /// Creation time.
    pub created_at: Millis,
}

/// The kind of decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum GateKind {
    /// Approve or deny an action.
    Approval,
    /// Answer a question.
    Question,
    /// Provide a credential.
    CredentialRequest,
}

/// Identifies an action.
#[derive(
    Debug,
    Clone,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    strum::Display,
    strum::AsRefStr,
    strum::EnumString,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ActionId {
    /// Approve this call.
    Approve,
    /// Approve the unchanged tool for the session.
    ApproveSession,
    /// Approve commands that start with the same words for the session.
    ApprovePrefix,
    /// Approve the unchanged tool for the project.
    ApproveProject,
    /// Deny the call.
    Deny,
    /// The requested credential is in the vault.
    Provided,
    /// Run an interrupted call again.
    RunAgain,
    /// Continue without the result of an interrupted call.
    Skip,
    /// The value is the result of an interrupted call.
    Result,
    /// Another action, of a graph or a tool.
    #[serde(untagged)]
    #[strum(default, transparent)]
    Other(String),
}

impl ActionId {
    /// The id as text.
    pub fn as_str(&self) -> &str {
        self.as_ref()
    }

    /// Whether the action approves a call.
    pub fn is_approval(&self) -> bool {
        matches!(
            self,
            Self::Approve | Self::ApproveSession | Self::ApprovePrefix | Self::ApproveProject
        )
    }
}

impl From<String> for ActionId {
    fn from(id: String) -> Self {
        id.as_str().into()
    }
}

impl PartialEq<str> for ActionId {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for ActionId {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

/// An answer that can be chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Action {
    /// Identifies the action in [`Resolution::action`].
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub id: ActionId,
    /// Label for people.
    pub label: String,
}

impl Action {
    /// An action with a label.
    pub fn new(id: impl Into<ActionId>, label: impl Into<String>) -> Self {
        let (id, label) = (id.into(), label.into());
        Self { id, label }
    }
}

/// The state of a gate. All states but `Pending` are final.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, strum::IntoStaticStr)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum GateStatus {
    /// No decision yet.
    Pending,
    /// A decision was made.
    Resolved {
        /// The decision.
        resolution: Resolution,
    },
    /// The question became obsolete.
    Withdrawn {
        /// The cause: `steer` or `abort`.
        reason: String,
        /// When it was withdrawn.
        at: Millis,
    },
    /// No decision was made in time.
    Expired {
        /// When it expired.
        at: Millis,
    },
}

impl GateStatus {
    /// Whether the gate is still open.
    pub fn is_pending(&self) -> bool {
        matches!(self, Self::Pending)
    }
}

/// The tool call that opened a gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GateOrigin {
    /// The session.
    pub session: SessionId,
    /// The thread that waits.
    pub thread: ThreadId,
    /// The prompt.
    pub prompt: PromptId,
    /// The tool call.
    pub call: CallId,
    /// Name of the tool.
    pub tool: String,
    /// The tool's name for the gate.
    pub resume_key: String,
}

/// A decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Resolution {
    /// The id of the chosen action.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub action: ActionId,
    /// Additional answer, such as free text.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub value: Value,
    /// Who decided.
    pub by: String,
    /// When the decision was made.
    pub at: Millis,
    /// The channel: `cli`, `web`, `slack`.
    pub source: String,
    /// The signature under the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Box<Receipt>>,
}

impl Resolution {
    /// Who denied the call and why, for the agent.
    pub fn denial(&self) -> String {
        let reason = self.value.as_str().map(str::trim);
        match reason.filter(|reason| !reason.is_empty()) {
            Some(reason) => format!("denied by {}: {reason}", self.by),
            None => format!("denied by {}", self.by),
        }
    }

    /// Whether both decisions are equal, regardless of who made them and when.
    pub fn agrees_with(&self, other: &Self) -> bool {
        self.action == other.action && self.value == other.value
    }
}

/// Where a gate was displayed, so that the display can be updated when it closes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GateRef {
    /// The gate.
    pub gate: GateId,
    /// The channel.
    pub channel: String,
    /// The channel's id of the message.
    pub message: String,
}
