//! A batch made ready for the database: its things are text already, so that the one thread
//! that writes has nothing left to do but write.

use std::sync::Arc;

use lillux::Hash;
use rye_engine::store::StoreError;
use rye_protocol::{
    Batch, Entry, Gate, GateId, GateRef, Millis, Op, OrderId, QueueItem, QueueItemId, Session,
    Suspended, Thread, Usage,
};

use super::document::{self, Told};
use crate::rules;

/// All changes of a batch.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) all: Vec<Change>,
    /// What is used up, all together: it is written with the thread, if one is.
    pub(super) usage: Usage,
}

/// A change with its text.
#[derive(Debug)]
pub(super) enum Change {
    PutSession(Arc<Session>, String),
    PutThread(Arc<Thread>, String),
    AppendEntry(Arc<Entry>, String),
    ReplaceEntry(Arc<Entry>, String),
    /// The hash of what is asked is only there where it may have to be written.
    PutItem(Arc<QueueItem>, Option<Hash>, String),
    RemoveItem(QueueItemId),
    PutGate(Arc<Gate>, String),
    PutGateRef(GateRef),
    PutSuspended(Arc<Suspended>, String),
    ClearSuspended(GateId),
    EndOrder(OrderId),
    /// How much is summed up already.
    AddUsage,
    Event(String),
}

impl Changes {
    pub(super) fn of(batch: Batch, now: Millis) -> Result<Self, StoreError> {
        let mut changes = Self::default();
        changes.all.reserve(batch.ops.len());
        for op in batch.ops {
            if let Op::AddUsage(usage) = &op {
                changes.usage = changes.usage.plus(*usage);
            }
            changes.all.push(change(op, now)?);
        }
        Ok(changes)
    }
}

fn change(op: Op, now: Millis) -> Result<Change, StoreError> {
    use document::write;
    Ok(match op {
        Op::PutSession(it) => {
            let text = write(&*it)?;
            Change::PutSession(it, text)
        }
        Op::PutThread(it) => {
            let text = write(&*it)?;
            Change::PutThread(it, text)
        }
        Op::AppendEntry(it) => {
            let text = write(&*it)?;
            Change::AppendEntry(it, text)
        }
        Op::ReplaceEntry(it) => {
            let text = write(&*it)?;
            Change::ReplaceEntry(it, text)
        }
        Op::PutItem(it) => {
            let text = write(&*it)?;
            // One that is over was written before, most often.
            let asked = (!it.status.is_over()).then(|| rules::asked(&it));
            Change::PutItem(it, asked, text)
        }
        Op::RemoveItem(id) => Change::RemoveItem(id),
        Op::PutGate(it) => {
            let text = write(&*it)?;
            Change::PutGate(it, text)
        }
        Op::PutGateRef(shown) => Change::PutGateRef(shown),
        Op::PutSuspended(it) => {
            let text = write(&*it)?;
            Change::PutSuspended(it, text)
        }
        Op::ClearSuspended(gate) => Change::ClearSuspended(gate),
        Op::EndOrder(order) => Change::EndOrder(order),
        Op::AddUsage(_) => Change::AddUsage,
        Op::PastEvent(event) => Change::Event(write(&Told {
            thread: event.thread.as_ref(),
            at: event.at,
            kind: &event.kind,
        })?),
        Op::Event(thread, kind) => Change::Event(write(&Told {
            thread: thread.as_ref(),
            at: now,
            kind: &*kind,
        })?),
    })
}
