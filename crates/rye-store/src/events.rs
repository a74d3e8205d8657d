//! The events of one commit, stored as a JSON array in one row.

use rye_engine::store::StoreError;
use rye_protocol::{Event, EventKind, Millis, SessionId, ThreadId};
use serde::{Deserialize, Serialize};

use crate::json_text::JsonText;

/// An event as read from the database, without the session and the sequence number that follow
/// from its row.
#[derive(Debug, Deserialize)]
pub(crate) struct StoredEvent {
    #[serde(default)]
    thread: Option<ThreadId>,
    at: Millis,
    kind: EventKind,
}

impl StoredEvent {
    pub(crate) fn into_event(self, session: &SessionId, sequence: u64) -> Event {
        Event {
            sequence: Some(sequence),
            session: session.clone(),
            thread: self.thread,
            at: self.at,
            kind: self.kind,
        }
    }
}

/// A [`StoredEvent`] to write.
#[derive(Serialize)]
struct StoredEventRef<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    thread: Option<&'a ThreadId>,
    at: Millis,
    kind: &'a EventKind,
}

/// The events of a commit. Never empty.
#[derive(Debug)]
pub(crate) struct EventBatch {
    /// The JSON array.
    pub(crate) json: JsonText,
    /// Length of the array.
    pub(crate) count: i64,
}

impl EventBatch {
    /// Appends an event to a batch, or starts a new one.
    pub(crate) fn append(
        batch: Option<Self>,
        thread: Option<&ThreadId>,
        at: Millis,
        kind: &EventKind,
    ) -> Result<Self, StoreError> {
        let (mut json, count) = match batch {
            Some(Self { json, count }) => (json, count),
            None => (JsonText::new(), 0),
        };
        let JsonText(text) = &mut json;
        // Removes the closing bracket, if there is one.
        text.pop();
        text.push(if count == 0 { b'[' } else { b',' });
        json.append(&StoredEventRef { thread, at, kind })?;
        json.0.push(b']');
        let count = count + 1;
        Ok(Self { json, count })
    }
}
