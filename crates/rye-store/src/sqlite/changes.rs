//! A batch made ready for the database: its things are text already, so that the one thread
//! that writes has nothing left to do but write.

use lillux::Hash;
use rye_engine::store::StoreError;
use rye_protocol::{
    Batch, Entry, Gate, GateId, GateRef, Millis, Op, QueueItem, QueueItemId, Session, Suspended,
    Thread, Usage,
};

use super::document::{self, Told};
use crate::rules;

/// A change with its text.
#[derive(Debug)]
pub(super) enum Change {
    PutSession(Box<Session>, String),
    PutThread(Box<Thread>, String),
    AppendEntry(Box<Entry>, String),
    ReplaceEntry(Box<Entry>, String),
    PutItem(Box<QueueItem>, Hash, String),
    RemoveItem(QueueItemId),
    PutGate(Box<Gate>, String),
    PutGateRef(GateRef),
    PutSuspended(Box<Suspended>, String),
    ClearSuspended(GateId),
    AddUsage(Usage),
    Event(String),
}

/// All changes of a batch.
pub(super) fn of(batch: Batch, now: Millis) -> Result<Vec<Change>, StoreError> {
    let ops = batch.ops.into_iter();
    ops.map(|op| change(op, now)).collect()
}

fn change(op: Op, now: Millis) -> Result<Change, StoreError> {
    use document::write;
    Ok(match op {
        Op::PutSession(it) => {
            let text = write(&it)?;
            Change::PutSession(it, text)
        }
        Op::PutThread(it) => {
            let text = write(&it)?;
            Change::PutThread(it, text)
        }
        Op::AppendEntry(it) => {
            let text = write(&it)?;
            Change::AppendEntry(it, text)
        }
        Op::ReplaceEntry(it) => {
            let text = write(&it)?;
            Change::ReplaceEntry(it, text)
        }
        Op::PutItem(it) => {
            let text = write(&it)?;
            let asked = rules::asked(&it);
            Change::PutItem(it, asked, text)
        }
        Op::RemoveItem(id) => Change::RemoveItem(id),
        Op::PutGate(it) => {
            let text = write(&it)?;
            Change::PutGate(it, text)
        }
        Op::PutGateRef(shown) => Change::PutGateRef(shown),
        Op::PutSuspended(it) => {
            let text = write(&it)?;
            Change::PutSuspended(it, text)
        }
        Op::ClearSuspended(gate) => Change::ClearSuspended(gate),
        Op::AddUsage(usage) => Change::AddUsage(usage),
        Op::PastEvent(event) => Change::Event(write(&Told {
            thread: event.thread,
            at: event.at,
            kind: event.kind,
        })?),
        Op::Event(thread, kind) => Change::Event(write(&Told {
            thread,
            at: now,
            kind: *kind,
        })?),
    })
}
