//! A batch made ready for the database: its things are text already, so that the one thread
//! that writes has nothing left to do but write.

use std::sync::Arc;

use lillux::Hash;
use rye_engine::store::StoreError;
use rye_protocol::{
    Batch, CommandId, Entry, Gate, GateId, GateRef, Millis, Op, PromptId, QueuedPrompt, Session,
    SuspendedTurn, Thread, Usage,
};

use super::document::{Text, write};
use super::news::News;
use crate::rules;

/// All changes of a batch.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) all: Vec<Change>,
    /// What is used up, all together: it is written with the thread, if one is.
    pub(super) usage: Usage,
    /// What is told, all together: it is written with an entry, if one is.
    pub(super) news: Option<News>,
    /// Which change appends that entry: the last that appends any.
    pub(super) bearer: Option<usize>,
}

/// A change with its text.
#[derive(Debug)]
pub(super) enum Change {
    PutSession(Arc<Session>, Text),
    PutThread(Arc<Thread>, Text),
    AppendEntry(Arc<Entry>, Text),
    ReplaceEntry(Arc<Entry>, Text),
    /// The hash of what is asked is only there where it may have to be written.
    PutPrompt(Arc<QueuedPrompt>, Option<Hash>, Text),
    RemovePrompt(PromptId),
    PutGate(Arc<Gate>, Text),
    PutGateRef(GateRef),
    PutSuspendedTurn(Arc<SuspendedTurn>, Text),
    RemoveSuspendedTurn(GateId),
    CompleteCommand(CommandId),
    /// What is used up or told, which is [put together](Changes).
    Together,
}

impl Changes {
    pub(super) fn of(batch: Batch, now: Millis) -> Result<Self, StoreError> {
        let mut changes = Self::default();
        changes.all.reserve(batch.ops.len());
        for op in batch.ops {
            let told = match &op {
                Op::AddUsage(usage) => {
                    changes.usage = changes.usage.plus(*usage);
                    None
                }
                Op::ImportedEvent(event) => Some((event.thread.as_ref(), event.at, &event.kind)),
                Op::Event(thread, kind) => Some((thread.as_ref(), now, &**kind)),
                _ => None,
            };
            if let Some((thread, at, kind)) = told {
                changes.news = Some(News::with(changes.news.take(), thread, at, kind)?);
            }
            let change = change(op)?;
            if matches!(change, Change::AppendEntry(..)) {
                changes.bearer = Some(changes.all.len());
            }
            changes.all.push(change);
        }
        Ok(changes)
    }
}

fn change(op: Op) -> Result<Change, StoreError> {
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
        Op::PutPrompt(it) => {
            let text = write(&*it)?;
            // One that is over was written before, most often.
            let asked = (!it.status.is_finished()).then(|| rules::asked(&it));
            Change::PutPrompt(it, asked, text)
        }
        Op::RemovePrompt(id) => Change::RemovePrompt(id),
        Op::PutGate(it) => {
            let text = write(&*it)?;
            Change::PutGate(it, text)
        }
        Op::PutGateRef(shown) => Change::PutGateRef(shown),
        Op::PutSuspendedTurn(it) => {
            let text = write(&*it)?;
            Change::PutSuspendedTurn(it, text)
        }
        Op::RemoveSuspendedTurn(gate) => Change::RemoveSuspendedTurn(gate),
        Op::CompleteCommand(order) => Change::CompleteCommand(order),
        Op::AddUsage(_) | Op::ImportedEvent(_) | Op::Event(..) => Change::Together,
    })
}
