//! Lists sessions. An unreadable session is listed with its error and does not hide the others.

use rusqlite::{Connection, params};
use rye_engine::store::{SessionFilter, StoreError};
use rye_protocol::{Millis, Purpose, Session, SessionId, SessionStatus};

use super::error::{DbError, DbResult};
use super::queries::{decode_session, sql_limit};
use super::rows;
use crate::invariants::{SESSION, not_found};

pub(super) fn sessions(db: &Connection, filter: &SessionFilter) -> DbResult<Vec<Session>> {
    let before = match &filter.before {
        None => i64::MAX,
        Some(id) => rows::session(db, id)?.ok_or_else(|| not_found(SESSION, id))?,
    };
    let limit = sql_limit(filter.limit);
    let mut sql = "SELECT number, usage, doc, id FROM engine_sessions WHERE number < ?1".to_owned();
    // Only the conditions that are needed, so that each query can use its index.
    let parameters = [
        filter.user.as_deref(),
        filter.parent.as_ref().map(SessionId::as_str),
        filter.id_part.as_deref(),
    ];
    let conditions = [
        ("user_id = ?3", "?3 IS NULL"),
        ("parent = ?4", "?4 IS NULL"),
        (
            "(substr(id, 1, length(?5)) = ?5 OR substr(id, -length(?5)) = ?5) AND ?5 <> ''",
            "?5 IS NULL",
        ),
    ];
    for (parameter, (condition, unused)) in parameters.iter().zip(conditions) {
        sql += " AND ";
        sql += if parameter.is_some() {
            condition
        } else {
            unused
        };
    }
    let mut statement = db.prepare_cached(&(sql + " ORDER BY number DESC LIMIT ?2"))?;
    let [user, parent, part] = parameters;
    let rows = statement.query_map(params![before, limit, user, parent, part], |row| {
        let texts: (String, String, String) = (row.get(1)?, row.get(2)?, row.get(3)?);
        Ok((row.get::<_, i64>(0)?, texts))
    })?;
    let mut sessions = Vec::new();
    for row in rows {
        let (number, (usage, doc, id)) = row?;
        sessions.push(match decode_session(db, number, &usage, &doc) {
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
