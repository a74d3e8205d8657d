//! Rows that more than one way of writing needs.

use rusqlite::{Connection, OptionalExtension, Row, params};
use rye_protocol::{EntryId, Gate, GateId, ItemStatus, QueueItem, SessionId, ThreadId, Usage};

use super::document;
use super::error::Outcome;
use crate::rules::{THREAD, not_found};

/// A session's row.
pub(super) fn session(db: &Connection, session: &SessionId) -> Outcome<Option<i64>> {
    let mut find = db.prepare_cached("SELECT number FROM engine_sessions WHERE id = ?1")?;
    let found = find.query_row([session.as_str()], |row| row.get(0));
    Ok(found.optional()?)
}

/// A thread's row.
pub(super) fn thread(db: &Connection, session: i64, id: &ThreadId) -> Outcome<i64> {
    let mut find =
        db.prepare_cached("SELECT number FROM engine_threads WHERE session = ?1 AND id = ?2")?;
    let found = find.query_row(params![session, id.as_str()], |row| row.get(0));
    Ok(found.optional()?.ok_or_else(|| not_found(THREAD, id))?)
}

/// The row of an entry, whichever thread's it is.
pub(super) fn entry(db: &Connection, session: i64, id: &EntryId) -> Outcome<Option<i64>> {
    let mut find = db.prepare_cached(
        // Thread by thread, of which there are few, and in this order.
        "SELECT engine_entries.number FROM engine_threads CROSS JOIN engine_entries
         ON engine_entries.session = ?1 AND engine_entries.thread = engine_threads.number
         AND engine_entries.id = ?2 WHERE engine_threads.session = ?1",
    )?;
    let found = find.query_row(params![session, id.as_str()], |row| row.get(0));
    Ok(found.optional()?)
}

/// How a prompt stands, in the column that is looked through.
fn status(item: &QueueItem) -> &'static str {
    match item.status {
        ItemStatus::Waiting => "waiting",
        ItemStatus::Running => "running",
        ItemStatus::Done => "done",
        ItemStatus::Failed => "failed",
        ItemStatus::Aborted => "aborted",
    }
}

/// Puts a prompt, and tells how many rows changed: none if it is another thread's.
pub(super) fn put_item(
    db: &Connection,
    session: i64,
    thread: i64,
    item: &QueueItem,
    asked: &[u8],
    doc: &str,
) -> Outcome<usize> {
    let mut put = db.prepare_cached(
        "INSERT INTO engine_queue_items (session, thread, id, status, asked, doc)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (session, id) DO UPDATE SET status = excluded.status, doc = excluded.doc
         WHERE thread = excluded.thread",
    )?;
    let row = params![session, thread, item.id.as_str(), status(item), asked, doc];
    Ok(put.execute(row)?)
}

/// The same for one that is there; none if it is not.
pub(super) fn update_item(
    db: &Connection,
    session: i64,
    thread: i64,
    item: &QueueItem,
    doc: &str,
) -> Outcome<usize> {
    let mut update = db.prepare_cached(
        "UPDATE engine_queue_items SET status = ?4, doc = ?5
         WHERE session = ?1 AND id = ?3 AND thread = ?2",
    )?;
    let row = params![session, thread, item.id.as_str(), status(item), doc];
    Ok(update.execute(row)?)
}

/// A gate and its row.
pub(super) fn gate(db: &Connection, id: &GateId) -> Outcome<Option<(i64, Gate)>> {
    let mut find =
        db.prepare_cached("SELECT number, doc FROM engine_decision_gates WHERE id = ?1")?;
    let found = find.query_row([id.as_str()], |row| {
        Ok((row.get(0)?, row.get::<_, String>(1)?))
    });
    match found.optional()? {
        Some((number, doc)) => Ok(Some((number, document::read(&doc)?))),
        None => Ok(None),
    }
}

pub(super) fn update_gate(db: &Connection, number: i64, gate: &Gate, doc: &str) -> Outcome<()> {
    let mut update = db.prepare_cached(
        "UPDATE engine_decision_gates SET pending = ?2, doc = ?3 WHERE number = ?1",
    )?;
    update.execute(params![number, gate.status.is_pending(), doc])?;
    Ok(())
}

/// How many events a session may have: their rows are numbered through, session by session.
const EVENTS: i64 = 1 << 36;

/// The row that would be that of an event, whatever its number.
pub(super) fn event(session: i64, sequence: i64) -> i64 {
    session * EVENTS + sequence.min(EVENTS - 1)
}

/// The number of a session's last event.
pub(super) fn last(db: &Connection, session: i64) -> Outcome<i64> {
    let mut find = db.prepare_cached(
        "SELECT number FROM engine_events WHERE number >= ?1 AND number < ?2
         ORDER BY number DESC LIMIT 1",
    )?;
    let (first, end) = (event(session, 0), event(session + 1, 0));
    let last = find.query_row([first, end], |row| row.get::<_, i64>(0));
    Ok(last.optional()?.unwrap_or(first) - first)
}

/// Writes what is told, after an event of this number, and gives that of the last.
pub(super) fn tell(db: &Connection, session: i64, last: i64, told: &[String]) -> Outcome<i64> {
    let Ok(more) = i64::try_from(told.len()) else {
        return Ok(last);
    };
    if more == 0 {
        return Ok(last);
    }
    let doc = format!("[{}]", told.join(","));
    let mut tell = db.prepare_cached("INSERT INTO engine_events (number, doc) VALUES (?1, ?2)")?;
    tell.execute(params![event(session, last + more), doc])?;
    Ok(last + more)
}

/// The six columns of a thread that say what it has used up.
pub(super) fn columns(usage: Usage) -> [i64; 6] {
    [
        usage.turns,
        usage.input_tokens,
        usage.cached_tokens,
        usage.cache_write_tokens,
        usage.output_tokens,
        usage.micro_dollars,
    ]
    .map(|count| i64::try_from(count).unwrap_or(i64::MAX))
}

/// What these columns say, the first of them being this one.
pub(super) fn usage(row: &Row<'_>, first: usize) -> rusqlite::Result<Usage> {
    let column =
        |at: usize| Ok::<_, rusqlite::Error>(row.get::<_, i64>(first + at)?.unsigned_abs());
    Ok(Usage {
        turns: column(0)?,
        input_tokens: column(1)?,
        cached_tokens: column(2)?,
        cache_write_tokens: column(3)?,
        output_tokens: column(4)?,
        micro_dollars: column(5)?,
    })
}
