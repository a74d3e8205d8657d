//! Publishes committed events, and ephemeral events that are not stored.

use std::sync::Arc;

use rye_protocol::{Batch, Entry, Event, EventKind, Millis, Op, StatusKind};

use super::{Committed, Runner};
use crate::bus::Notice;
use crate::model::Delta;

impl Runner {
    /// Publishes the events of a committed batch with their sequence numbers.
    pub(super) fn publish(&mut self, written: Batch, committed: Committed) {
        let Committed { last, at } = committed;
        let entries = self.apply_committed(&written, at);
        let (shared, thread) = (&self.shared, &self.machine.thread.id);
        let events = written.ops.into_iter().filter_map(|op| match op {
            Op::Event(thread, kind) => Some((thread, Arc::unwrap_or_clone(kind))),
            _ => None,
        });
        let events: Vec<_> = events.collect();
        let first = last.saturating_sub(events.len() as u64) + 1;
        for (number, (of, kind)) in (first..).zip(events) {
            self.timer.on_event(&kind);
            let entry = match &kind {
                EventKind::MessageEnd { entry } => entries.iter().find(|it| it.id == *entry),
                // Seals without a thread cover rows outside of any thread's history.
                EventKind::Sealed { .. } if of.is_some() => {
                    shared.set_last_seal(&self.machine.thread.seal);
                    None
                }
                EventKind::ToolEnd { call, .. } => {
                    shared.budget.end_child(thread, call);
                    None
                }
                _ => None,
            };
            let entry = entry.cloned();
            let event = Event {
                sequence: Some(number),
                session: shared.lease.session.clone(),
                thread: of,
                at,
                kind,
            };
            shared.bus.publish(Notice { event, entry });
        }
        self.timer.end_batch();
        self.timer.set_queued(self.machine.waiting_prompts());
        self.publish_status(match self.machine.status() {
            // The model is still streaming while something else was committed.
            StatusKind::Thinking if self.model.is_some() && !self.partial.is_empty() => {
                StatusKind::Streaming
            }
            status => status,
        });
    }

    /// Updates the in-memory state from a committed batch. Returns the new entries.
    fn apply_committed(&mut self, written: &Batch, now: Millis) -> Vec<Arc<Entry>> {
        let mut entries = Vec::new();
        let mut is_current = true;
        for op in &written.ops {
            self.timer.on_op(op, now);
            match op {
                Op::AppendEntry(entry) => {
                    let transcript = self.transcript.as_mut();
                    is_current &= transcript.is_none_or(|transcript| transcript.push(entry));
                    entries.push(Arc::clone(entry));
                }
                Op::ReplaceEntry(_) => is_current = false,
                Op::AddUsage(usage) => {
                    let thread = &self.machine.thread.id;
                    self.shared.budget.settle(thread, *usage);
                }
                _ => {}
            }
        }
        if !is_current {
            // Earlier entries changed: reload the history when it is next needed.
            self.transcript = None;
        }
        entries
    }

    /// Publishes the thread's status if it has changed.
    pub(super) fn publish_status(&mut self, status: StatusKind) {
        if matches!(status, StatusKind::Idle | StatusKind::BlockedOnDecisionGate) {
            self.slot.lock().take();
        }
        let mut before = self.status.lock();
        let changed = *before != status;
        *before = status;
        drop(before);
        if changed {
            self.publish_ephemeral(EventKind::Status { status });
        }
    }

    /// Publishes streamed model output of the current call.
    pub(super) fn on_delta(&mut self, generation: u64, delta: Delta) {
        if generation != self.generation || self.model.is_none() {
            return;
        }
        match delta {
            Delta::Text(text) => {
                if self.partial.is_empty() {
                    self.publish_status(StatusKind::Streaming);
                    self.publish_ephemeral(EventKind::MessageStart);
                }
                self.partial.push_str(&text);
                self.publish_ephemeral(EventKind::TextDelta { text });
            }
            Delta::Thinking(text) => self.publish_ephemeral(EventKind::ThinkingDelta { text }),
            Delta::ToolCall { call, tool, args } => {
                // Use the id that the call will have in the history.
                let history = self.transcript.as_ref();
                let call = history.map_or(call.clone(), |history| history.unique_call_id(&call));
                self.publish_ephemeral(EventKind::ToolCallDelta {
                    call,
                    tool,
                    text: args,
                });
            }
        }
    }

    /// Publishes an event that is not stored.
    pub(super) fn publish_ephemeral(&self, kind: EventKind) {
        let event = Event {
            sequence: None,
            session: self.shared.lease.session.clone(),
            thread: Some(self.machine.thread.id.clone()),
            at: self.shared.clock.now(),
            kind,
        };
        self.shared.bus.publish(Notice { event, entry: None });
    }
}
