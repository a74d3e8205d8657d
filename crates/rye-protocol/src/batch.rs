//! Atomic groups of changes.

use std::sync::Arc;

use crate::{
    CommandId, Entry, Event, EventKind, Gate, GateRef, PromptId, QueuedPrompt, Session, Thread,
    ThreadId, Usage,
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
