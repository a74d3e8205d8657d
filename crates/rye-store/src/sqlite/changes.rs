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
    /// With the event of the batch that tells of it, counted from 1.
    AppendEntry(Box<Entry>, Option<i64>, String),
    ReplaceEntry(Box<Entry>, Option<i64>, String),
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

/// How two changes of a batch belong together.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Tie {
    /// Nothing is to be known.
    None,
    /// This event tells of an entry that the batch has just written, and need not repeat it.
    Tells(Of),
    /// Of this entry that event tells.
    ToldBy(i64),
}

/// All changes of a batch.
pub(super) fn of(batch: Batch, now: Millis) -> Result<Vec<Change>, StoreError> {
    let ties = ties(&batch);
    let mut changes = Vec::with_capacity(batch.ops.len());
    for (op, tie) in batch.ops.into_iter().zip(ties) {
        changes.push(change(op, tie, now)?);
    }
    Ok(changes)
}

fn change(op: Op, tie: Tie, now: Millis) -> Result<Change, StoreError> {
    use document::write;
    let told = match tie {
        Tie::ToldBy(event) => Some(event),
        Tie::None | Tie::Tells(_) => None,
    };
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
            Change::AppendEntry(it, told, text)
        }
        Op::ReplaceEntry(it) => {
            let text = write(&it)?;
            Change::ReplaceEntry(it, told, text)
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
        Op::Event(thread, kind) => match (tie, Of::find(&kind)) {
            (Tie::Tells(of), Some((_, entry))) => {
                let entry = entry.id.clone();
                Change::Event(Some(entry), write(&Told::of(thread, now, of))?)
            }
            _ => Change::Event(None, write(&Told::whole(thread, now, *kind))?),
        },
    })
}

/// Finds for each entry the first event after it that tells of it as it is.
fn ties(batch: &Batch) -> Vec<Tie> {
    let mut ties = vec![Tie::None; batch.ops.len()];
    let mut untold: HashMap<&EntryId, (usize, &Entry)> = HashMap::new();
    let mut events = 0;
    for (place, op) in batch.ops.iter().enumerate() {
        match op {
            Op::AppendEntry(entry) | Op::ReplaceEntry(entry) => {
                untold.insert(&entry.id, (place, entry));
            }
            Op::Event(_, kind) => {
                events += 1;
                let Some((of, entry)) = Of::find(kind) else {
                    continue;
                };
                if let Some((written, same)) = untold.get(&entry.id)
                    && *same == entry
                {
                    if let Some(tie) = ties.get_mut(*written) {
                        *tie = Tie::ToldBy(events);
                    }
                    if let Some(tie) = ties.get_mut(place) {
                        *tie = Tie::Tells(of);
                    }
                    untold.remove(&entry.id);
                }
            }
            _ => {}
        }
    }
    ties
}

#[cfg(test)]
mod tests {
    use rye_store_contract::sample::{append, entry, replace, told, told_of};

    use super::*;

    #[test]
    fn the_first_event_after_an_entry_that_tells_of_it_as_it_is_does_not_repeat_it() {
        let (first, second) = (entry("s", "e0", None), entry("s", "e1", None));
        let mut changed = first.clone();
        changed.created_at = Millis(9);
        let ops = vec![
            told_of(&first),
            append(first.clone()),
            told(),
            told_of(&changed),
            append(second.clone()),
            told_of(&second),
            told_of(&first),
            told_of(&first),
            replace(changed.clone()),
            told_of(&changed),
        ];
        let end = Tie::Tells(Of::MessageEnd);
        let expected = [
            Tie::None,
            Tie::ToldBy(5),
            Tie::None,
            Tie::None,
            Tie::ToldBy(4),
            end,
            end,
            Tie::None,
            Tie::ToldBy(7),
            end,
        ];
        assert_eq!(ties(&Batch { ops }), expected);
    }
}
