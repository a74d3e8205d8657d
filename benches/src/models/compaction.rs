//! Planning the compaction of a long history.

use rye_engine::compaction::Settings;
use rye_engine::compaction::plan::{Plan, plan};
use rye_engine::protocol::{CompactionReason, Entry, EntryId, EntryKind, Message, Millis};

use super::history;
use crate::measure::interleaved;
use crate::table::Row;

const ENTRIES: usize = 10_000;
/// Budget in seconds.
const BUDGET: f64 = 0.010;

/// Plans a compaction of `ENTRIES` entries.
pub(super) fn run() -> Row {
    let messages = history(ENTRIES / 3 + 1).messages;
    let path: Vec<Entry> = messages.iter().map(|message| entry(message)).collect();
    assert!(path.len() >= ENTRIES, "the history is too short");
    let settings = Settings::default();
    let (_, ours) = interleaved(
        101,
        || (),
        || {
            let planned = plan(
                &path,
                CompactionReason::Threshold,
                u64::MAX,
                180_000,
                &settings,
            );
            assert!(matches!(planned, Plan::Summarise(_)), "expected a summary");
        },
    );
    let what = "compaction plan of 10,000 entries vs. budget";
    Row::time(what, (BUDGET, ours), 1.0)
}

fn entry(message: &Message) -> Entry {
    Entry {
        id: EntryId::new(),
        session: rye_engine::protocol::SessionId::new(),
        thread: rye_engine::protocol::ThreadId::new(),
        parent: None,
        prompt: None,
        kind: EntryKind::Message(message.clone()),
        created_at: Millis(0),
        hash: String::new(),
    }
}
