//! A batch made ready for the database: its things are text already, so that the one thread
//! that writes has nothing left to do but write.

use std::collections::HashMap;

use lillux::Hash;
use rye_engine::store::StoreError;
use rye_protocol::{
    Batch, Entry, EntryId, Gate, GateId, GateRef, Millis, Op, QueueItem, QueueItemId, Session,
    Suspended, Thread, Usage,
};

use super::document::{self, Of, Told};
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
    /// The entry that it tells of, if that is not in the text.
    Event(Option<EntryId>, String),
}

/// All changes of a batch.
pub(super) fn of(batch: Batch, now: Millis) -> Result<Vec<Change>, StoreError> {
    // By place in the batch: which entry each event may refer to instead of repeating it.
    let referred = referred(&batch);
    let mut changes = Vec::with_capacity(batch.ops.len());
    for (op, referred) in batch.ops.into_iter().zip(referred) {
        changes.push(change(op, referred, now)?);
    }
    Ok(changes)
}

fn change(op: Op, referred: Option<Of>, now: Millis) -> Result<Change, StoreError> {
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
        Op::Event(thread, kind) => match (referred, Of::find(&kind)) {
            (Some(of), Some((_, entry))) => {
                let entry = entry.id.clone();
                Change::Event(Some(entry), write(&Told::of(thread, now, of))?)
            }
            _ => Change::Event(None, write(&Told::whole(thread, now, *kind))?),
        },
    })
}

/// An event need not repeat an entry that the same batch has just written.
fn referred(batch: &Batch) -> Vec<Option<Of>> {
    let mut written: HashMap<&EntryId, &Entry> = HashMap::new();
    let mut find = |op| match op {
        &Op::AppendEntry(ref entry) | &Op::ReplaceEntry(ref entry) => {
            written.insert(&entry.id, entry);
            None
        }
        Op::Event(_, kind) => {
            let (of, entry) = Of::find(kind)?;
            (written.get(&entry.id) == Some(&entry)).then_some(of)
        }
        _ => None,
    };
    batch.ops.iter().map(&mut find).collect()
}
