//! Rows that more than one way of writing needs.

use rusqlite::{Connection, OptionalExtension, Row, params};
use rye_protocol::{Gate, GateId, SessionId, Usage};

use super::document;
use super::error::Outcome;

/// A session's row.
pub(super) fn session(db: &Connection, session: &SessionId) -> Outcome<Option<i64>> {
    let mut find = db.prepare_cached("SELECT number FROM engine_sessions WHERE id = ?1")?;
    let found = find.query_row([session.as_str()], |row| row.get(0));
    Ok(found.optional()?)
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
