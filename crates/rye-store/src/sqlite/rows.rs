//! Rows that more than one way of writing needs.

use rusqlite::{Connection, OptionalExtension, params};
use rye_protocol::{Gate, GateId, SessionId};

use super::document::{self, Text};
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

pub(super) fn update_gate(db: &Connection, number: i64, gate: &Gate, doc: &Text) -> Outcome<()> {
    let mut update = db.prepare_cached(
        "UPDATE engine_decision_gates SET pending = ?2, doc = ?3 WHERE number = ?1",
    )?;
    update.execute(params![number, gate.status.is_pending(), doc])?;
    Ok(())
}
