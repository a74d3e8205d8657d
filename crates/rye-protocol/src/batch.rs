//! Atomic groups of changes.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    CallId, CommandId, Entry, EntryId, Event, EventKind, Gate, GateId, GateRef, PromptId,
    QueuedPrompt, Session, SessionId, Thread, ThreadId, Usage,
};

/// Changes of one session that a store commits atomically.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Batch {
    /// Applied in this order.
    pub ops: Vec<Op>,
}

/// One change. Payloads are shared, so the caller can keep and publish what it commits.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// Inserts or replaces the session.
    PutSession(Arc<Session>),
    /// Inserts or replaces a thread.
    PutThread(Arc<Thread>),
    /// Appends a new entry.
    AppendEntry(Arc<Entry>),
    /// Replaces an existing entry. An unknown id is an error.
    ReplaceEntry(Arc<Entry>),
    /// Inserts or replaces a prompt.
    PutPrompt(Arc<QueuedPrompt>),
    /// Deletes a prompt.
    RemovePrompt(PromptId),
    /// Inserts or replaces a gate. Changing a closed gate is an error.
    PutGate(Arc<Gate>),
    /// Records where a gate was displayed.
    PutGateRef(GateRef),
    /// Records a turn that waits at a gate.
    PutSuspendedTurn(Arc<SuspendedTurn>),
    /// Deletes the record of a turn that waits at a gate.
    RemoveSuspendedTurn(GateId),
    /// Marks a command as carried out. An unknown command is not an error.
    CompleteCommand(CommandId),
    /// Adds to the session's usage.
    AddUsage(Usage),
    /// Appends an event. The store assigns its sequence number.
    Event(Option<ThreadId>, Arc<EventKind>),
    /// Appends an event of an imported session with its original time.
    ImportedEvent(Arc<Event>),
}

impl Batch {
    /// Whether the batch contains no changes.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Adds a change.
    pub fn push(&mut self, op: Op) {
        self.ops.push(op);
    }

    /// Adds an event of a thread.
    pub fn push_event(&mut self, thread: &ThreadId, kind: EventKind) {
        let thread = Some(thread.clone());
        self.ops.push(Op::Event(thread, Arc::new(kind)));
    }
}

/// A turn that waits at a gate, with everything a host needs to resume it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SuspendedTurn {
    /// The gate it waits at.
    pub gate: GateId,
    /// The session of the turn.
    pub session: SessionId,
    /// The thread of the turn.
    pub thread: ThreadId,
    /// The prompt being worked on.
    pub prompt: PromptId,
    /// The model of the turn.
    pub model: String,
    /// The last entry of the thread.
    pub leaf: Option<EntryId>,
    /// The tool call that waits.
    pub call: CallId,
    /// Name of the tool.
    pub tool: String,
    /// Arguments of the call.
    pub args: Value,
    /// The tool's name for the gate.
    pub resume_key: String,
    /// How often the tool was started.
    pub attempt: u32,
    /// The chain hash, if the tool is an item.
    pub chain_hash: Option<String>,
}
