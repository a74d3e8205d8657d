//! Read queries. Each is one statement, so that it sees the database at one moment.

use rye_engine::store::{Holder, SessionFilter, SessionSnapshot, StoreError};
use rye_protocol::{
    Archive, Entry, EntryId, Event, Gate, GateId, GateRef, Millis, ProcessRef, PromptId, Purpose,
    QueuedPrompt, Session, SessionId, SessionStatus, ThreadId,
};
use serde::de::DeserializeOwned;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::db::{Db, Params};
use super::error::{DbError, DbResult};
use super::ops::parse_usage;
use crate::events::StoredEvent;
use crate::invariants::{ENTRY, SESSION, not_found};
use crate::json_text;

/// A limit as a SQL parameter.
fn sql_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Decodes a document, and names the object in the error.
fn decode<T: DeserializeOwned>(kind: &str, id: &str, doc: &str) -> DbResult<T> {
    json_text::decode(doc).map_err(|error| match error {
        StoreError::Unreadable(reason) => {
            DbError::Store(StoreError::Unreadable(format!("{kind} {id}: {reason}")))
        }
        other => other.into(),
    })
}

/// Decodes the documents in the first column.
fn decode_all<T: DeserializeOwned>(rows: &[Row]) -> DbResult<Vec<T>> {
    let decode = |row: &Row| Ok(json_text::decode(row.try_get(0)?)?);
    rows.iter().map(decode).collect()
}

async fn docs<T: DeserializeOwned>(db: &Db, sql: &str, params: Params<'_>) -> DbResult<Vec<T>> {
    decode_all(&db.query(sql, params).await?)
}

async fn doc<T: DeserializeOwned>(db: &Db, sql: &str, params: Params<'_>) -> DbResult<Option<T>> {
    let row = db.query_opt(sql, params).await?;
    let value = row.map(|row| Ok::<_, DbError>(json_text::decode(row.try_get(0)?)?));
    value.transpose()
}

/// Decodes a session and its usage.
fn decode_session(id: &str, doc: &str, usage: &[String]) -> DbResult<Session> {
    let mut session: Session = decode("session", id, doc)?;
    session.usage = parse_usage(usage);
    Ok(session)
}

/// A session without what belongs to it.
pub(super) async fn session(db: &Db, id: &SessionId) -> DbResult<Option<Session>> {
    let sql = "SELECT s.doc, l.usage::text[] FROM rye.sessions s
               JOIN rye.leases l ON l.number = s.number WHERE s.id = $1";
    let row = db.query_opt(sql, &[&id.as_str()]).await?;
    let session = row.map(|row| {
        let usage: Vec<String> = row.try_get(1)?;
        decode_session(id.as_str(), row.try_get(0)?, &usage)
    });
    session.transpose()
}

/// What [`read_parts`] reads.
#[derive(Debug, Default)]
struct Parts {
    session: Option<Session>,
    sequence: u64,
    threads: Vec<rye_protocol::Thread>,
    prompts: Vec<QueuedPrompt>,
    gates: Vec<Gate>,
    gate_refs: Vec<GateRef>,
    entries: Vec<Entry>,
    events: Vec<Event>,
}

/// Reads the parts of a session from rows with a kind, a number, an id, a document, another text
/// and usage.
async fn read_parts(db: &Db, sql: &str, id: &SessionId) -> DbResult<Parts> {
    let mut parts = Parts::default();
    for row in db.query(sql, &[&id.as_str()]).await? {
        let number: i64 = row.try_get(1)?;
        let (row_id, doc): (&str, &str) = (row.try_get(2)?, row.try_get(3)?);
        match row.try_get(0)? {
            "session" => {
                let usage: Vec<String> = row.try_get(5)?;
                parts.session = Some(decode_session(row_id, doc, &usage)?);
                parts.sequence = number.cast_unsigned();
            }
            "thread" => parts.threads.push(decode("thread", row_id, doc)?),
            "prompt" => parts.prompts.push(decode("prompt", row_id, doc)?),
            "gate" => parts.gates.push(decode("gate", row_id, doc)?),
            "gate_ref" => parts.gate_refs.push(GateRef {
                gate: GateId::from(row_id.to_owned()),
                channel: doc.to_owned(),
                message: row.try_get(4)?,
            }),
            "entry" => parts.entries.push(decode("entry", row_id, doc)?),
            _ => read_events(&mut parts.events, id, number, doc)?,
        }
    }
    Ok(parts)
}

/// Adds the events of a row whose last one has the number `last`.
fn read_events(events: &mut Vec<Event>, session: &SessionId, last: i64, doc: &str) -> DbResult<()> {
    let stored: Vec<StoredEvent> = json_text::decode(doc)?;
    let before = last.cast_unsigned().saturating_sub(stored.len() as u64);
    let numbered = (before + 1..).zip(stored);
    events.extend(numbered.map(|(sequence, event)| event.into_event(session, sequence)));
    Ok(())
}

pub(super) async fn snapshot(db: &Db, id: &SessionId) -> DbResult<Option<SessionSnapshot>> {
    const READ: &str = "
        WITH s AS (
            SELECT s.number, s.id, s.doc, l.sequence, l.usage::text[] AS usage
            FROM rye.sessions s JOIN rye.leases l ON l.number = s.number WHERE s.id = $1)
        SELECT 'session', sequence, id, doc, NULL, usage, 0 AS kind FROM s
        UNION ALL SELECT 'thread', t.number, t.id, t.doc, NULL, NULL, 1
            FROM s JOIN rye.threads t ON t.session = s.number
        UNION ALL SELECT 'prompt', p.position, p.id, p.doc, NULL, NULL, 2
            FROM s JOIN rye.prompts p ON p.session = s.number AND p.open
        UNION ALL SELECT 'gate', g.number, g.id, g.doc, NULL, NULL, 3
            FROM s JOIN rye.prompts p ON p.session = s.number AND p.open
            JOIN rye.gates g ON g.session = s.number AND g.prompt = p.id
        ORDER BY 7, 2";
    let parts = read_parts(db, READ, id).await?;
    let Some(session) = parts.session else {
        return Ok(None);
    };
    let mut prompts = parts.prompts;
    prompts.sort_by_key(|prompt| prompt.order);
    Ok(Some(SessionSnapshot {
        session,
        threads: parts.threads,
        prompts,
        gates: parts.gates,
        sequence: parts.sequence,
    }))
}

/// The complete session.
pub(super) async fn archive(db: &Db, id: &SessionId) -> DbResult<Option<Archive>> {
    const READ: &str = "
        WITH s AS (
            SELECT s.number, s.id, s.doc, l.sequence, l.usage::text[] AS usage
            FROM rye.sessions s JOIN rye.leases l ON l.number = s.number WHERE s.id = $1)
        SELECT 'session', sequence, id, doc, NULL, usage, 0 AS kind, 0 FROM s
        UNION ALL SELECT 'thread', t.number, t.id, t.doc, NULL, NULL, 1, 0
            FROM s JOIN rye.threads t ON t.session = s.number
        UNION ALL SELECT 'entry', e.position, e.id, e.doc, NULL, NULL, 2, 0
            FROM s JOIN rye.entries e ON e.session = s.number
        UNION ALL SELECT 'prompt', p.position, p.id, p.doc, NULL, NULL, 3, 0
            FROM s JOIN rye.prompts p ON p.session = s.number
        UNION ALL SELECT 'gate', g.number, g.id, g.doc, NULL, NULL, 4, 0
            FROM s JOIN rye.gates g ON g.session = s.number
        UNION ALL SELECT 'gate_ref', g.number, r.gate, r.channel, r.message, NULL, 5, r.number
            FROM s JOIN rye.gates g ON g.session = s.number JOIN rye.gate_refs r ON r.gate = g.id
        UNION ALL SELECT 'events', e.sequence, '', e.doc, NULL, NULL, 6, 0
            FROM s JOIN rye.events e ON e.session = s.number
        ORDER BY 7, 2, 8";
    let parts = read_parts(db, READ, id).await?;
    Ok(parts.session.map(|session| Archive {
        session,
        threads: parts.threads,
        entries: parts.entries,
        prompts: parts.prompts,
        gates: parts.gates,
        gate_refs: parts.gate_refs,
        events: parts.events,
    }))
}

/// A prompt of a session.
pub(super) async fn prompt(
    db: &Db,
    session: &SessionId,
    prompt: &PromptId,
) -> DbResult<Option<QueuedPrompt>> {
    let sql = "SELECT p.doc FROM rye.prompts p JOIN rye.sessions s ON s.number = p.session
               WHERE s.id = $1 AND p.id = $2";
    doc(db, sql, &[&session.as_str(), &prompt.as_str()]).await
}

/// Lists sessions. An unreadable one is listed with its error and does not hide the others.
pub(super) async fn sessions(db: &Db, filter: &SessionFilter) -> DbResult<Vec<Session>> {
    let before: i64 = match &filter.before {
        None => i64::MAX,
        Some(id) => {
            let sql = "SELECT number FROM rye.sessions WHERE id = $1";
            let row = db.query_opt(sql, &[&id.as_str()]).await?;
            row.ok_or_else(|| not_found(SESSION, id))?.try_get(0)?
        }
    };
    let limit = sql_limit(filter.limit);
    let parent = filter.parent.as_ref().map(SessionId::as_str);
    let mut params: Vec<&(dyn ToSql + Sync)> = vec![&before, &limit];
    let mut sql = "SELECT s.id, s.doc, l.usage::text[] FROM rye.sessions s
        JOIN rye.leases l ON l.number = s.number WHERE s.number < $1"
        .to_owned();
    // Only the conditions that are needed, so that each query can use its index.
    let conditions: [(bool, &(dyn ToSql + Sync), &str); 3] = [
        (filter.user.is_some(), &filter.user, "s.user_id = $"),
        (parent.is_some(), &parent, "s.parent = $"),
        (
            filter.id_part.is_some(),
            &filter.id_part,
            "(SELECT part <> '' AND (starts_with(s.id, part) OR right(s.id, length(part)) = part)
              FROM (SELECT #::text) AS it (part))",
        ),
    ];
    for (is_set, value, condition) in conditions {
        if is_set {
            params.push(value);
            let number = format!("${}", params.len());
            let condition = condition.replace(['$', '#'], &number);
            sql = format!("{sql} AND {condition}");
        }
    }
    sql += " ORDER BY s.number DESC LIMIT $2";
    let mut sessions = Vec::new();
    for row in db.query(&sql, &params).await? {
        let id: &str = row.try_get(0)?;
        let usage: Vec<String> = row.try_get(2)?;
        sessions.push(match decode_session(id, row.try_get(1)?, &usage) {
            Err(DbError::Store(StoreError::Unreadable(reason))) => unreadable(id, reason)?,
            session => session?,
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

pub(super) async fn path(db: &Db, session: &SessionId, leaf: &EntryId) -> DbResult<Vec<Entry>> {
    let sql = "
        WITH RECURSIVE path AS (
            SELECT e.session, e.position, e.parent, e.doc
            FROM rye.entries e JOIN rye.sessions s ON s.number = e.session
            WHERE s.id = $1 AND e.id = $2
            UNION ALL
            SELECT e.session, e.position, e.parent, e.doc
            FROM path JOIN rye.entries e ON e.session = path.session AND e.position = path.parent
            WHERE e.position < path.position
        ) SELECT doc FROM path ORDER BY position";
    let path = docs(db, sql, &[&session.as_str(), &leaf.as_str()]).await?;
    if path.is_empty() {
        return Err(not_found(ENTRY, leaf).into());
    }
    Ok(path)
}

pub(super) async fn entries(
    db: &Db,
    session: &SessionId,
    thread: &ThreadId,
    after: Option<&EntryId>,
    limit: usize,
) -> DbResult<Vec<Entry>> {
    let position: i64 = match after {
        None => 0,
        Some(id) => {
            let sql = "SELECT e.position FROM rye.entries e
                       JOIN rye.sessions s ON s.number = e.session WHERE s.id = $1 AND e.id = $2";
            let row = db
                .query_opt(sql, &[&session.as_str(), &id.as_str()])
                .await?;
            row.ok_or_else(|| not_found(ENTRY, id))?.try_get(0)?
        }
    };
    let sql = "SELECT e.doc FROM rye.entries e JOIN rye.sessions s ON s.number = e.session
               WHERE s.id = $1 AND e.thread = $2 AND e.position > $3 ORDER BY e.position LIMIT $4";
    let limit = sql_limit(limit);
    let params: [&(dyn ToSql + Sync); 4] = [&session.as_str(), &thread.as_str(), &position, &limit];
    docs(db, sql, &params).await
}

/// An entry of a session.
pub(super) async fn entry(
    db: &Db,
    session: &SessionId,
    entry: &EntryId,
) -> DbResult<Option<Entry>> {
    let sql = "SELECT e.doc FROM rye.entries e JOIN rye.sessions s ON s.number = e.session
               WHERE s.id = $1 AND e.id = $2";
    doc(db, sql, &[&session.as_str(), &entry.as_str()]).await
}

pub(super) async fn gate(db: &Db, gate: &GateId) -> DbResult<Option<Gate>> {
    doc(
        db,
        "SELECT doc FROM rye.gates WHERE id = $1",
        &[&gate.as_str()],
    )
    .await
}

pub(super) async fn gate_refs(db: &Db, gate: &GateId) -> DbResult<Vec<GateRef>> {
    let sql = "SELECT channel, message FROM rye.gate_refs WHERE gate = $1 ORDER BY number";
    let rows = db.query(sql, &[&gate.as_str()]).await?;
    let gate_ref = |row: &Row| {
        Ok(GateRef {
            gate: gate.clone(),
            channel: row.try_get(0)?,
            message: row.try_get(1)?,
        })
    };
    rows.iter().map(gate_ref).collect()
}

pub(super) async fn pending_gates(db: &Db, session: Option<&SessionId>) -> DbResult<Vec<Gate>> {
    match session {
        None => {
            docs(
                db,
                "SELECT doc FROM rye.gates WHERE pending ORDER BY number",
                &[],
            )
            .await
        }
        Some(session) => {
            let sql = "SELECT g.doc FROM rye.gates g JOIN rye.sessions s ON s.number = g.session
                       WHERE g.pending AND s.id = $1 ORDER BY g.number";
            docs(db, sql, &[&session.as_str()]).await
        }
    }
}

/// Pending gates of a session and its descendants.
pub(super) async fn pending_gates_in_tree(db: &Db, root: &SessionId) -> DbResult<Vec<Gate>> {
    let sql = "
        WITH RECURSIVE tree (number, id) AS (
            SELECT number, id FROM rye.sessions WHERE id = $1
            UNION
            SELECT child.number, child.id FROM rye.sessions child
            JOIN tree ON child.parent = tree.id
        ) SELECT g.doc FROM rye.gates g JOIN tree ON tree.number = g.session
        WHERE g.pending ORDER BY g.number";
    docs(db, sql, &[&root.as_str()]).await
}

/// All gates of a session, open or closed.
pub(super) async fn gates(db: &Db, session: &SessionId) -> DbResult<Vec<Gate>> {
    let sql = "SELECT g.doc FROM rye.gates g JOIN rye.sessions s ON s.number = g.session
               WHERE s.id = $1 ORDER BY g.number";
    docs(db, sql, &[&session.as_str()]).await
}

pub(super) async fn events(
    db: &Db,
    session: &SessionId,
    after: u64,
    limit: usize,
) -> DbResult<Vec<Event>> {
    let sql =
        "SELECT e.sequence, e.doc FROM rye.events e JOIN rye.sessions s ON s.number = e.session
               WHERE s.id = $1 AND e.sequence > $2 ORDER BY e.sequence LIMIT $3";
    let first = i64::try_from(after).unwrap_or(i64::MAX);
    // Each row has at least one event.
    let rows = db
        .query(sql, &[&session.as_str(), &first, &sql_limit(limit)])
        .await?;
    let mut events = Vec::new();
    for row in rows {
        read_events(&mut events, session, row.try_get(0)?, row.try_get(1)?)?;
    }
    events.retain(|event| event.sequence > Some(after));
    events.truncate(limit);
    Ok(events)
}

/// The live holder of one session, or of all.
pub(super) async fn holders(
    db: &Db,
    session: Option<&SessionId>,
    judges: bool,
) -> DbResult<Vec<Holder>> {
    let rows = if let Some(session) = session {
        let sql = "SELECT l.session, h.name, h.process FROM rye.leases l
                   JOIN rye.hosts h ON h.instance = l.instance
                   WHERE l.session = $1 AND NOT ($2 AND rye.is_dead(l.instance))";
        db.query(sql, &[&session.as_str(), &judges]).await?
    } else {
        let sql = "SELECT l.session, h.name, h.process FROM rye.living_holders($1) AS living
                   JOIN rye.leases l ON l.instance = living
                   JOIN rye.hosts h ON h.instance = living ORDER BY l.number";
        db.query(sql, &[&judges]).await?
    };
    let mut holders = Vec::new();
    for row in rows {
        let session: String = row.try_get(0)?;
        let session = session.parse::<SessionId>();
        holders.push(Holder {
            session: session.map_err(|error| DbError::Unreadable(error.to_string()))?,
            host: row.try_get(1)?,
            process: Some(ProcessRef(row.try_get(2)?)),
        });
    }
    Ok(holders)
}

/// Fails unless the tables can be read and written.
pub(super) async fn check(db: &Db) -> DbResult<()> {
    let sql = "SELECT pg_is_in_recovery() FROM rye.version";
    let row = db.query_one(sql, &[]).await?;
    if row.try_get(0)? {
        let message = "the PostgreSQL server is a standby, which cannot write".to_owned();
        return Err(StoreError::Unavailable(message).into());
    }
    Ok(())
}

/// Sessions without a living holder that have something to do.
pub(super) async fn due(db: &Db, before: Millis, judges: bool) -> DbResult<Vec<SessionId>> {
    let before = i64::try_from(before.0).unwrap_or(i64::MAX);
    let rows = db
        .query("SELECT rye.due($1, $2)", &[&before, &judges])
        .await?;
    let mut due = Vec::new();
    for row in rows {
        // A session with an invalid id is unreadable.
        due.extend(row.try_get::<_, String>(0)?.parse::<SessionId>());
    }
    Ok(due)
}

/// The ids of all gates, open or closed.
pub(super) async fn gate_ids(db: &Db) -> DbResult<Vec<GateId>> {
    let rows = db
        .query("SELECT id FROM rye.gates ORDER BY number", &[])
        .await?;
    let id = |row: &Row| Ok(GateId::from(row.try_get::<_, String>(0)?));
    rows.iter().map(id).collect()
}
