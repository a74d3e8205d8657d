//! What is told of what was written, and of what is not written at all.

use std::sync::{Arc, PoisonError};

use rye_protocol::{Batch, Entry, Event, EventKind, Millis, Op, StatusKind};

use super::Runner;
use crate::bus::Notice;
use crate::model::Delta;

impl Runner {
    /// Tells what was written, in order, with its numbers.
    pub(super) fn tell(&mut self, written: Batch, last: u64) {
        let now = self.shared.clock.now();
        let entries = self.take_in(&written, now);
        let (shared, thread) = (&self.shared, &self.machine.thread.id);
        let events = written.ops.into_iter().filter_map(|op| match op {
            Op::Event(thread, kind) => Some((thread, Arc::unwrap_or_clone(kind))),
            _ => None,
        });
        let events: Vec<_> = events.collect();
        let first = last.saturating_sub(events.len() as u64) + 1;
        for (number, (of, kind)) in (first..).zip(events) {
            self.meter.told(&kind);
            let entry = match &kind {
                EventKind::MessageEnd { entry } => entries.iter().find(|it| it.id == *entry),
                EventKind::Sealed { .. } => {
                    shared.sealed(&self.machine.thread.seal);
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
                at: now,
                kind,
            };
            shared.bus.tell(Notice { event, entry });
        }
        self.tell_status(match self.machine.status() {
            // Something else has happened while the model speaks, and goes on to.
            StatusKind::Thinking if self.model.is_some() && !self.partial.is_empty() => {
                StatusKind::Streaming
            }
            status => status,
        });
    }

    /// What was written counts from now on. Gives the entries that are new.
    fn take_in(&mut self, written: &Batch, now: Millis) -> Vec<Arc<Entry>> {
        let mut entries = Vec::new();
        let mut read = true;
        for op in &written.ops {
            self.meter.written(op, now);
            match op {
                Op::AppendEntry(entry) => {
                    let transcript = self.transcript.as_mut();
                    read &= transcript.is_none_or(|transcript| transcript.push(entry));
                    entries.push(Arc::clone(entry));
                }
                Op::ReplaceEntry(_) => read = false,
                Op::AddUsage(usage) => {
                    let thread = &self.machine.thread.id;
                    self.shared.budget.settle(thread, *usage);
                }
                _ => {}
            }
        }
        if !read {
            // What stands before is read otherwise now: from the record, when needed.
            self.transcript = None;
        }
        entries
    }

    /// What the thread is doing, told live where it has changed.
    pub(super) fn tell_status(&mut self, status: StatusKind) {
        let before = self.status.lock();
        let mut before = before.unwrap_or_else(PoisonError::into_inner);
        let changed = *before != status;
        *before = status;
        drop(before);
        if changed {
            self.live(EventKind::Status { status });
        }
    }

    pub(super) fn hear(&mut self, generation: u64, delta: Delta) {
        if generation != self.generation || self.model.is_none() {
            return;
        }
        match delta {
            Delta::Text(text) => {
                if self.partial.is_empty() {
                    self.tell_status(StatusKind::Streaming);
                    self.live(EventKind::MessageStart);
                }
                self.partial.push_str(&text);
                self.live(EventKind::TextDelta { text });
            }
            Delta::Thinking(text) => self.live(EventKind::ThinkingDelta { text }),
            Delta::ToolCall { call, tool, args } => self.live(EventKind::ToolCallDelta {
                call,
                tool,
                text: args,
            }),
        }
    }

    /// Tells what is not written down.
    pub(super) fn live(&self, kind: EventKind) {
        let event = Event {
            sequence: None,
            session: self.shared.lease.session.clone(),
            thread: Some(self.machine.thread.id.clone()),
            at: self.shared.clock.now(),
            kind,
        };
        self.shared.bus.tell(Notice { event, entry: None });
    }
}
