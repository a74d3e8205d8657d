//! What is being said right now: it is told live alone, and whoever begins to listen amid it
//! hears it from its beginning.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use rye_protocol::{Event, EventKind, ThreadId};

use super::{Live, Notice};

/// What the models of a session are saying, by thread.
#[derive(Debug, Default)]
pub(super) struct Said(HashMap<Option<ThreadId>, Words>);

/// What one of them has said of its answer so far.
#[derive(Debug)]
struct Words {
    events: Vec<Event>,
    /// The highest number that was told before it.
    after: u64,
}

/// Whether it is the end of something that is told live, or its beginning anew.
pub(super) fn ends(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::MessageEnd { .. }
            | EventKind::ToolEnd { .. }
            | EventKind::TurnEnd { .. }
            | EventKind::ModelRetry { .. }
    )
}

impl Said {
    /// Something is told.
    pub(super) fn take_in(&mut self, event: &Event, after: u64) {
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
        let new = || Words {
            events: Vec::new(),
            after,
        };
        let words = self.0.entry(event.thread.clone()).or_insert_with(new);
        let last = words.events.last_mut();
        if !last.is_some_and(|last| goes_on(&mut last.kind, &event.kind)) {
            words.events.push(event.clone());
        }
    }

    /// All of it, as it was told.
    pub(super) fn told(&self) -> VecDeque<Live> {
        let all = self.0.values();
        let events = all.flat_map(|words| words.events.iter().map(|it| (it, words.after)));
        let told = events.map(|(event, after)| Live {
            notice: Arc::new(Notice {
                event: event.clone(),
                entry: None,
            }),
            after,
        });
        told.collect()
    }
}

/// Puts what goes on with something behind it, if it does.
fn goes_on(last: &mut EventKind, next: &EventKind) -> bool {
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

    fn told(said: &Said) -> Vec<(EventKind, u64)> {
        let told = said.told().into_iter();
        told.map(|live| (live.notice.event.kind.clone(), live.after))
            .collect()
    }

    #[test]
    fn what_is_being_said_is_told_from_its_beginning_until_its_end() {
        let mut said = Said::default();
        for (kind, after) in [
            (EventKind::MessageStart, 3),
            (text("one "), 3),
            (text("two"), 4),
        ] {
            said.take_in(&event("t", kind), after);
        }
        let all = [(EventKind::MessageStart, 3), (text("one two"), 3)];
        assert_eq!(told(&said), all);
        let status = rye_protocol::StatusKind::Thinking;
        said.take_in(&event("t", EventKind::Status { status }), 5);
        let entry = "e".parse().unwrap();
        said.take_in(&event("other", EventKind::MessageEnd { entry }), 5);
        assert_eq!(told(&said), all);
        let entry = "e".parse().unwrap();
        said.take_in(&event("t", EventKind::MessageEnd { entry }), 6);
        assert_eq!(told(&said), []);
    }
}
