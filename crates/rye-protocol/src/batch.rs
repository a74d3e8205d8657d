//! Changes that are written as one.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    CallId, Entry, EntryId, Event, EventKind, Gate, GateId, GateRef, OrderId, QueueItem,
    QueueItemId, Session, SessionId, Thread, ThreadId, Usage,
};

/// Changes of one session that are written all or not at all.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Batch {
    /// In the order in which they are made.
    pub ops: Vec<Op>,
}

/// One change. Its thing is shared: whoever has it written has it still, to keep and to tell.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// The session as it is now.
    PutSession(Arc<Session>),
    /// A thread as it is now.
    PutThread(Arc<Thread>),
    /// An entry that was not there.
    AppendEntry(Arc<Entry>),
    /// An entry that was there and is another now. An unknown id is an error.
    ReplaceEntry(Arc<Entry>),
    /// A queue item as it is now.
    PutItem(Arc<QueueItem>),
    /// A queue item that is to be forgotten.
    RemoveItem(QueueItemId),
    /// A gate as it is now. One that has ended is not changed again: that is an error.
    PutGate(Arc<Gate>),
    /// Where a gate was shown.
    PutGateRef(GateRef),
    /// A turn that waits at a gate.
    PutSuspended(Arc<Suspended>),
    /// It waits no more.
    ClearSuspended(GateId),
    /// An order that is carried out by this. One that is not there is no error.
    EndOrder(OrderId),
    /// What was used up, added to what the session had used up before.
    AddUsage(Usage),
    /// What is told of all this; the store numbers it.
    Event(Option<ThreadId>, Arc<EventKind>),
    /// What was told elsewhere, of a session that comes from there: with its own time.
    PastEvent(Arc<Event>),
}

impl Batch {
    /// Nothing to write.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// With one more change.
    pub fn push(&mut self, op: Op) {
        self.ops.push(op);
    }

    /// With one more event.
    pub fn tell(&mut self, thread: &ThreadId, kind: EventKind) {
        let thread = Some(thread.clone());
        self.ops.push(Op::Event(thread, Arc::new(kind)));
    }
}

/// A turn that waits at a gate: what is needed to go on, on any host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Suspended {
    /// The gate.
    pub gate: GateId,
    /// The session.
    pub session: SessionId,
    /// The thread.
    pub thread: ThreadId,
    /// The prompt.
    pub item: QueueItemId,
    /// The model of the turn.
    pub model: String,
    /// The last entry.
    pub leaf: Option<EntryId>,
    /// The call that waits.
    pub call: CallId,
    /// Its tool.
    pub tool: String,
    /// With what.
    pub args: Value,
    /// What the tool calls the gate.
    pub resume_key: String,
    /// How often the tool was begun.
    pub attempt: u32,
    /// The hash of what would run, where it is an item.
    pub chain_hash: Option<String>,
}
