//! Lists sessions. An unreadable session is listed with its error and does not hide the others.

use rusqlite::{Connection, params};
use rye_engine::store::{SessionFilter, StoreError};
use rye_protocol::{Millis, Purpose, Session, SessionId, SessionStatus};

use super::error::{DbError, DbResult};
use super::queries::{session, sql_limit, thread_usage};
use super::rows;
use crate::invariants::{SESSION, not_found};

pub(super) fn sessions(db: &Connection, filter: &SessionFilter) -> DbResult<Vec<Session>> {
    let before = match &filter.before {
        None => i64::MAX,
        Some(id) => rows::session(db, id)?.ok_or_else(|| not_found(SESSION, id))?,
    };
    let limit = sql_limit(filter.limit);
    // Separate statements, so that each can use its index.
    let mut statement = db.prepare_cached(match (&filter.user, &filter.parent) {
        (None, None) => {
            "SELECT number, usage, doc, id FROM engine_sessions
             WHERE number < ?1 AND ?3 IS NULL AND ?4 IS NULL ORDER BY number DESC LIMIT ?2"
        }
        (Some(_), None) => {
            "SELECT number, usage, doc, id FROM engine_sessions
             WHERE number < ?1 AND user_id = ?3 AND ?4 IS NULL ORDER BY number DESC LIMIT ?2"
        }
        (_, Some(_)) => {
            "SELECT number, usage, doc, id FROM engine_sessions
             WHERE number < ?1 AND (?3 IS NULL OR user_id = ?3) AND parent = ?4
             ORDER BY number DESC LIMIT ?2"
        }
    })?;
    let parent = filter.parent.as_ref().map(SessionId::as_str);
    let rows = statement.query_map(params![before, limit, filter.user, parent], |row| {
        let texts: (String, String, String) = (row.get(1)?, row.get(2)?, row.get(3)?);
        Ok((row.get::<_, i64>(0)?, texts))
    })?;
    let mut sessions = Vec::new();
    for row in rows {
        let (number, (usage, doc, id)) = row?;
        let result =
            thread_usage(db, number).and_then(|threads| Ok(session(&usage, &doc, threads)?));
        sessions.push(match result {
            Err(DbError::Store(StoreError::Unreadable(reason))) => unreadable(&id, reason)?,
            result => result?,
        });
    }
    Ok(sessions)
}

/// Stands for a session that cannot be read.
fn unreadable(id: &str, reason: String) -> Result<Session, StoreError> {
    let id = id.parse();
    let id =
        id.map_err(|_| StoreError::Unreadable(format!("a session has an invalid id: {reason}")))?;
    Ok(Session {
        status: SessionStatus::Error,
        unreadable: Some(reason),
        ..Session::new(id, Purpose::default(), Millis(0))
    })
}
