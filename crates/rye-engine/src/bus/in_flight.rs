//! Messages in progress: deltas are not stored, so a new subscriber gets the message from its
//! beginning from here.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use rye_protocol::{Event, EventKind, ThreadId};

use super::{LiveNotice, Notice};

/// The messages in progress, by thread.
#[derive(Debug, Default)]
pub(super) struct InFlightMessages(HashMap<Option<ThreadId>, Deltas>);

/// The deltas of one message so far.
#[derive(Debug)]
struct Deltas {
    events: Vec<Event>,
    /// Highest sequence number published before it.
    after: u64,
}

/// Whether an event ends a message, call or turn, or starts it over.
pub(super) fn ends(kind: &EventKind) -> bool {
    match kind {
        EventKind::MessageEnd { .. } | EventKind::ToolEnd { .. } | EventKind::ModelRetry { .. } => {
            true
        }
        EventKind::TurnEnd { reason, .. } => reason.ends_turn(),
        _ => false,
    }
}

impl InFlightMessages {
    /// Applies a published event.
    pub(super) fn apply(&mut self, event: &Event, after: u64) {
        if ends(&event.kind) {
            self.0.remove(&event.thread);
            return;
        }
        let (EventKind::MessageStart
        | EventKind::TextDelta { .. }
        | EventKind::ThinkingDelta { .. }
        | EventKind::ToolCallDelta { .. }) = &event.kind
        else {
            return;
        };
        let new = || Deltas {
            events: Vec::new(),
            after,
        };
        let deltas = self.0.entry(event.thread.clone()).or_insert_with(new);
        let last = deltas.events.last_mut();
        if !last.is_some_and(|last| merge_delta(&mut last.kind, &event.kind)) {
            deltas.events.push(event.clone());
        }
    }

    /// Notices that bring a new subscriber up to date.
    pub(super) fn notices(&self) -> VecDeque<LiveNotice> {
        let all = self.0.values();
        let events = all.flat_map(|deltas| deltas.events.iter().map(|it| (it, deltas.after)));
        let notices = events.map(|(event, after)| LiveNotice {
            notice: Arc::new(Notice {
                event: event.clone(),
                entry: None,
            }),
            after,
        });
        notices.collect()
    }
}

/// Appends a delta to the last one of the same kind. Returns whether it did.
fn merge_delta(last: &mut EventKind, next: &EventKind) -> bool {
    match (last, next) {
        (EventKind::TextDelta { text }, EventKind::TextDelta { text: more })
        | (EventKind::ThinkingDelta { text }, EventKind::ThinkingDelta { text: more }) => {
            text.push_str(more);
            true
        }
        (
            EventKind::ToolCallDelta { call, text, .. },
            EventKind::ToolCallDelta {
                call: same,
                text: more,
                ..
            },
        ) if call == same => {
            text.push_str(more);
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use rye_protocol::Millis;

    use super::*;

    fn event(thread: &str, kind: EventKind) -> Event {
        Event {
            sequence: None,
            session: "s".parse().unwrap(),
            thread: Some(thread.parse().unwrap()),
            at: Millis(1),
            kind,
        }
    }

    fn text(text: &str) -> EventKind {
        let text = text.to_owned();
        EventKind::TextDelta { text }
    }

    fn deltas(messages: &InFlightMessages) -> Vec<(EventKind, u64)> {
        let notices = messages.notices().into_iter();
        notices
            .map(|live| (live.notice.event.kind.clone(), live.after))
            .collect()
    }

    #[test]
    fn new_subscriber_gets_the_message_in_progress() {
        let mut messages = InFlightMessages::default();
        for (kind, after) in [
            (EventKind::MessageStart, 3),
            (text("one "), 3),
            (text("two"), 4),
        ] {
            messages.apply(&event("t", kind), after);
        }
        let all = [(EventKind::MessageStart, 3), (text("one two"), 3)];
        assert_eq!(deltas(&messages), all);
        let status = rye_protocol::StatusKind::Thinking;
        messages.apply(&event("t", EventKind::Status { status }), 5);
        let entry = "e".parse().unwrap();
        messages.apply(&event("other", EventKind::MessageEnd { entry }), 5);
        assert_eq!(deltas(&messages), all);
        let entry = "e".parse().unwrap();
        messages.apply(&event("t", EventKind::MessageEnd { entry }), 6);
        assert_eq!(deltas(&messages), []);
    }
}
