//! Finds sessions that have something to do although no process holds them.

use std::collections::HashSet;

use rusqlite::Connection;
use rye_protocol::{Millis, SessionId};

use super::error::DbResult;
use super::lease::LeaseHolder;

/// Each part uses an index with only the rows that may match, so that idle sessions cost nothing.
const DUE: &str = "
    SELECT id FROM engine_sessions
    WHERE doc ->> '$.status' NOT IN ('terminated', 'error') AND doc -> '$.run' IS NULL AND (
        number IN (SELECT session FROM engine_inbox)
        OR number IN (
            SELECT session FROM engine_decision_gates
            WHERE pending = 1 AND doc ->> '$.expires_at' <= ?1)
        OR doc ->> '$.status' = 'running' AND number IN (
            SELECT session FROM engine_threads
            WHERE open_prompts <> '[]' AND doc ->> '$.status' = 'active' AND NOT EXISTS (
                SELECT 1 FROM engine_decision_gates AS gates
                WHERE gates.session = engine_threads.session AND gates.pending = 1
                AND gates.doc ->> '$.origin.thread' = engine_threads.id)))
    AND number IN (
        SELECT session FROM engine_inbox
        UNION SELECT session FROM engine_decision_gates
            WHERE pending = 1 AND doc ->> '$.expires_at' <= ?1
        UNION SELECT session FROM engine_threads WHERE open_prompts <> '[]')
    ORDER BY number";

pub(super) fn due(
    db: &Connection,
    holder: &LeaseHolder,
    before: Millis,
) -> DbResult<Vec<SessionId>> {
    let mut query = db.prepare_cached(DUE)?;
    let before = i64::try_from(before.0).unwrap_or(i64::MAX);
    let ids = query.query_map([before], |row| row.get::<_, String>(0))?;
    let mut due = Vec::new();
    for id in ids {
        // A session with an invalid id is unreadable.
        due.extend(id?.parse::<SessionId>());
    }
    if due.is_empty() {
        return Ok(due);
    }
    let held = holder.live_holders(db, None)?.into_iter();
    let held: HashSet<_> = held.map(|holder| holder.session).collect();
    due.retain(|session| !held.contains(session));
    Ok(due)
}
