//! Threads, and the turn that one is in.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    CallId, EntryId, GateId, Millis, OrderId, QueueItemId, QueueMode, SessionId, ThreadId, Usage,
};

/// A thread: its own history and queue, one prompt at a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Thread {
    /// Its id.
    pub id: ThreadId,
    /// Whose it is.
    pub session: SessionId,
    /// Where it is from: `web:default`, `slack:…`, `task:…`.
    pub key: String,
    /// How it stands.
    pub status: ThreadStatus,
    /// The last entry of the active path.
    pub leaf: Option<EntryId>,
    /// Its hash.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub leaf_hash: String,
    /// The hash of the last seal under its history.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub seal: String,
    /// A rolling hash of the events of this thread.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub events_hash: String,
    /// What its prompts have used up, children included.
    #[serde(default, skip_serializing_if = "Usage::is_zero")]
    pub used: Usage,
    /// What becomes of a prompt that comes while it is busy.
    pub mode: QueueMode,
    /// Its model, where it has one of its own.
    pub model: Option<String>,
    /// What it is about.
    pub summary: Option<String>,
    /// How many tokens the model reads, about: as it last said, and what was added since.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tokens: u64,
    /// Why its history is being summed up, while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compacting: Option<Compacting>,
    /// The turn that is under way. All there is to know of it is here.
    pub turn: Option<Turn>,
    /// The last order that it has carried out. One to several threads stays until all of
    /// them have, and must not be carried out twice by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_order: Option<OrderId>,
    /// What the host wants to remember.
    pub metadata: Map<String, Value>,
    /// When it was made.
    pub created_at: Millis,
    /// When it last changed.
    pub updated_at: Millis,
}

/// How a thread stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ThreadStatus {
    /// It takes prompts and begins them.
    #[default]
    Active,
    /// It takes prompts and begins none.
    Paused,
    /// It takes none.
    Archived,
}

/// A turn under way: one prompt, until the model has nothing more to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Turn {
    /// The prompt.
    pub item: QueueItemId,
    /// The model that answers.
    pub model: String,
    /// How often it has been called in this turn.
    pub round: u32,
    /// What is being done.
    pub phase: Phase,
    /// What the call of the model that is under way will use up at least, written down
    /// before it is made: a host that dies meanwhile does not make it free.
    #[serde(default, skip_serializing_if = "Usage::is_zero")]
    pub reserved: Usage,
    /// What the prompt has used up, children included.
    #[serde(default, skip_serializing_if = "Usage::is_zero")]
    pub used: Usage,
    /// Whether it is not looked at how full the context is: it was summed up just now, or
    /// could not be.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unchecked: bool,
    /// Whether the model has said once that the context is too long.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overflowed: bool,
    /// Whether the model was told once what is wrong with its result.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retried: bool,
}

/// Why a history is summed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Compacting {
    /// It is nearly as long as the model can read.
    Full,
    /// The model said that it is too long.
    Overflow,
    /// Somebody asked for it.
    Asked,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(tokens: &u64) -> bool {
    *tokens == 0
}

/// What is being done in a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Phase {
    /// The model is being called; there is no answer yet.
    Model,
    /// The calls of an assistant entry are being carried out.
    Tools {
        /// The entry.
        entry: EntryId,
        /// Its calls, in order.
        calls: Vec<Call>,
    },
}

/// A tool call under way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Call {
    /// Which.
    pub id: CallId,
    /// The tool's name.
    pub tool: String,
    /// How it stands.
    pub state: CallState,
    /// Processes that it started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<ProcessRef>,
    /// What may be done when its host dies, where that is not what its tool says of all calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
}

/// What may be done with a call whose host died while it ran.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Run it again: it changes nothing.
    Pure,
    /// Run it again: twice is as good as once.
    Idempotent,
    /// Never run it again on its own: the model is told that the outcome is not known.
    #[default]
    AtMostOnce,
    /// Ask a person.
    Ask,
}

/// How a tool call stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum CallState {
    /// The model wants it; nothing has been done.
    Requested,
    /// It may have had effects.
    Started,
    /// It waits for a person.
    Blocked {
        /// At this gate.
        gate: GateId,
    },
    /// It has a result.
    Ended,
}

/// A process that outlives nobody: number, start time and boot, as lillux writes them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct ProcessRef(pub String);
