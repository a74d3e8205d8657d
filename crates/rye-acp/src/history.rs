//! The stored history of a session, for an editor that loads it.

use agent_client_protocol::v1::schema::SessionUpdate;
use rye_engine::protocol::{EntryKind, EventKind, Message, Part, Role, SessionId, Thread};
use rye_engine::store::{SessionSnapshot, SessionStore, StoreError};

use crate::transcript::{Transcript, note};

/// Key of the thread that an editor shows.
pub(crate) const THREAD: &str = "default";

/// The thread of a session that the editor shows: the default one, or else the one that changed
/// last.
pub(crate) fn shown_thread(snapshot: &SessionSnapshot) -> Option<&Thread> {
    let default = snapshot.threads.iter().find(|thread| thread.key == THREAD);
    let newest = || snapshot.threads.iter().max_by_key(|it| it.updated_at);
    default.or_else(newest)
}

/// The updates that show the history of a thread.
pub(crate) async fn updates(
    store: &dyn SessionStore,
    session: &SessionId,
    thread: &Thread,
    transcript: &mut Transcript,
) -> Result<Vec<SessionUpdate>, StoreError> {
    let Some(leaf) = &thread.leaf else {
        return Ok(Vec::new());
    };
    let mut updates = Vec::new();
    for entry in store.path(session, leaf).await? {
        updates.extend(transcript.on_entry(&entry, false));
        if let EntryKind::Message(message) = &entry.kind {
            updates.extend(error_note(message));
        }
    }
    Ok(updates)
}

/// The error that a message reports.
pub(crate) fn error_note(message: &Message) -> Option<SessionUpdate> {
    if message.role != Role::Assistant {
        return None;
    }
    let mut errors = message.parts.iter().filter_map(|part| match part {
        Part::Error { error } => Some(&error.message),
        _ => None,
    });
    errors
        .next()
        .map(|error| note(&format!("**Error:** {error}")))
}

/// Whether a turn is followed by a compaction, after which the agent may continue: both are
/// committed at once.
pub(crate) async fn is_compaction_next(
    store: &dyn SessionStore,
    session: &SessionId,
    turn_end: u64,
) -> Result<bool, StoreError> {
    let next = store.events(session, turn_end, 1).await?;
    let mut next = next.into_iter();
    Ok(next.any(|event| matches!(event.kind, EventKind::CompactionStart)))
}
