//! What a commit tells: a list of events, in one row.

use rye_engine::store::StoreError;
use rye_protocol::{Event, EventKind, Millis, SessionId, ThreadId};
use serde::{Deserialize, Serialize};

use super::document::Text;

/// An event as it is stored: without what its row says.
#[derive(Debug, Deserialize)]
pub(super) struct Told {
    #[serde(default)]
    thread: Option<ThreadId>,
    at: Millis,
    kind: EventKind,
}

impl Told {
    pub(super) fn event(self, session: &SessionId, sequence: u64) -> Event {
        Event {
            sequence: Some(sequence),
            session: session.clone(),
            thread: self.thread,
            at: self.at,
            kind: self.kind,
        }
    }
}

/// The same as it is written.
#[derive(Serialize)]
struct Tells<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    thread: Option<&'a ThreadId>,
    at: Millis,
    kind: &'a EventKind,
}

/// All that a commit tells.
#[derive(Debug)]
pub(super) struct News {
    /// A list of it.
    pub(super) list: Text,
    /// How long that is.
    pub(super) count: i64,
}

impl News {
    /// This, after what there is already.
    pub(super) fn with(
        before: Option<Self>,
        thread: Option<&ThreadId>,
        at: Millis,
        kind: &EventKind,
    ) -> Result<Self, StoreError> {
        let (mut list, count) = match before {
            Some(Self { list, count }) => (list, count),
            None => (Text::new(), 0),
        };
        let Text(text) = &mut list;
        // The end of the list, if it has begun.
        text.pop();
        text.push(if count == 0 { b'[' } else { b',' });
        list.append(&Tells { thread, at, kind })?;
        list.0.push(b']');
        let count = count + 1;
        Ok(Self { list, count })
    }
}
