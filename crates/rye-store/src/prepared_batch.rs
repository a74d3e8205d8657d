//! A batch with its JSON already serialised, so that the writer thread only has to execute SQL.

use std::sync::Arc;

use lillux::Hash;
use rye_engine::store::StoreError;
use rye_protocol::{
    Batch, CommandId, Entry, Gate, GateRef, Millis, Op, PromptId, QueuedPrompt, Session, Thread,
    Usage,
};

use crate::events::EventBatch;
use crate::invariants;
use crate::json_text::{JsonText, encode};

/// The operations of a batch.
#[derive(Debug, Default)]
pub(crate) struct PreparedBatch {
    pub(crate) ops: Vec<PreparedOp>,
    /// Sum of all usage. It is written with a thread if the batch writes one.
    pub(crate) usage: Usage,
    /// All events. They are written with an entry if the batch appends one.
    pub(crate) events: Option<EventBatch>,
    /// Index of the operation that appends this entry: the last one that appends any.
    pub(crate) events_op: Option<usize>,
}

/// An operation with its serialised document.
#[derive(Debug)]
pub(crate) enum PreparedOp {
    PutSession(Arc<Session>, JsonText),
    PutThread(Arc<Thread>, JsonText),
    AppendEntry(Arc<Entry>, JsonText),
    ReplaceEntry(Arc<Entry>, JsonText),
    /// With the content hash, unless the prompt is finished and therefore usually known.
    PutPrompt(Arc<QueuedPrompt>, Option<Hash>, JsonText),
    RemovePrompt(PromptId),
    PutGate(Arc<Gate>, JsonText),
    PutGateRef(GateRef),
    CompleteCommand(CommandId),
    /// Usage or an event, which [`PreparedBatch`] has merged with the others.
    Merged,
}

impl PreparedBatch {
    /// Serialises a batch. Its events get the time `now`.
    pub(crate) fn new(batch: Batch, now: Millis) -> Result<Self, StoreError> {
        let mut prepared = Self::default();
        prepared.ops.reserve(batch.ops.len());
        for op in batch.ops {
            let event = match &op {
                Op::AddUsage(usage) => {
                    prepared.usage = prepared.usage.plus(*usage);
                    None
                }
                Op::ImportedEvent(event) => Some((event.thread.as_ref(), event.at, &event.kind)),
                Op::Event(thread, kind) => Some((thread.as_ref(), now, &**kind)),
                _ => None,
            };
            if let Some((thread, at, kind)) = event {
                let events = EventBatch::append(prepared.events.take(), thread, at, kind)?;
                prepared.events = Some(events);
            }
            let op = prepare(op)?;
            if matches!(op, PreparedOp::AppendEntry(..)) {
                prepared.events_op = Some(prepared.ops.len());
            }
            prepared.ops.push(op);
        }
        Ok(prepared)
    }
}

fn prepare(op: Op) -> Result<PreparedOp, StoreError> {
    Ok(match op {
        Op::PutSession(session) => {
            let doc = encode(&*session)?;
            PreparedOp::PutSession(session, doc)
        }
        Op::PutThread(thread) => {
            let doc = encode(&*thread)?;
            PreparedOp::PutThread(thread, doc)
        }
        Op::AppendEntry(entry) => {
            let doc = encode(&*entry)?;
            PreparedOp::AppendEntry(entry, doc)
        }
        Op::ReplaceEntry(entry) => {
            let doc = encode(&*entry)?;
            PreparedOp::ReplaceEntry(entry, doc)
        }
        Op::PutPrompt(prompt) => {
            let doc = encode(&*prompt)?;
            let is_finished = prompt.status.is_finished();
            let hash = (!is_finished).then(|| invariants::content_hash(&prompt));
            PreparedOp::PutPrompt(prompt, hash, doc)
        }
        Op::RemovePrompt(id) => PreparedOp::RemovePrompt(id),
        Op::PutGate(gate) => {
            let doc = encode(&*gate)?;
            PreparedOp::PutGate(gate, doc)
        }
        Op::PutGateRef(gate_ref) => PreparedOp::PutGateRef(gate_ref),
        Op::CompleteCommand(command) => PreparedOp::CompleteCommand(command),
        Op::AddUsage(_) | Op::ImportedEvent(_) | Op::Event(..) => PreparedOp::Merged,
    })
}
