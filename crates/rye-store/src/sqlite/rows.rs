//! Row lookups that several modules need.

use rusqlite::{Connection, OptionalExtension, params};
use rye_protocol::{Gate, GateId, SessionId};

use super::error::DbResult;
use crate::json_text::{self, JsonText};

/// The row number of a session.
pub(super) fn session(db: &Connection, session: &SessionId) -> DbResult<Option<i64>> {
    let mut query = db.prepare_cached("SELECT number FROM engine_sessions WHERE id = ?1")?;
    let number = query.query_row([session.as_str()], |row| row.get(0));
    Ok(number.optional()?)
}

/// A gate and its row number.
pub(super) fn gate(db: &Connection, id: &GateId) -> DbResult<Option<(i64, Gate)>> {
    let mut query =
        db.prepare_cached("SELECT number, doc FROM engine_decision_gates WHERE id = ?1")?;
    let row = query.query_row([id.as_str()], |row| {
        Ok((row.get(0)?, row.get::<_, String>(1)?))
    });
    match row.optional()? {
        Some((number, doc)) => Ok(Some((number, json_text::decode(&doc)?))),
        None => Ok(None),
    }
}

pub(super) fn update_gate(
    db: &Connection,
    number: i64,
    gate: &Gate,
    doc: &JsonText,
) -> DbResult<()> {
    let mut update = db.prepare_cached(
        "UPDATE engine_decision_gates SET pending = ?2, doc = ?3 WHERE number = ?1",
    )?;
    update.execute(params![number, gate.status.is_pending(), doc])?;
    Ok(())
}
