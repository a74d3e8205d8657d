//! Read queries.

use rusqlite::{CachedStatement, Connection, OptionalExtension, Params, params};
use rye_engine::store::{SessionSnapshot, StoreError};
use rye_protocol::{
    Archive, Entry, EntryId, Event, Gate, GateId, GateRef, PromptId, QueuedPrompt, Session,
    SessionId, ThreadId, Usage,
};
use serde::de::DeserializeOwned;

use super::error::{DbError, DbResult};
use super::log::{self, Log};
use super::rows;
use crate::events::StoredEvent;
use crate::invariants::{ENTRY, SESSION, not_found};
use crate::json_text;

/// A limit as a SQL parameter.
pub(super) fn sql_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Decodes all rows; the document is the first column.
fn decode_all<T: DeserializeOwned>(
    mut statement: CachedStatement<'_>,
    params: impl Params,
) -> DbResult<Vec<T>> {
    let mut values = Vec::new();
    let mut rows = statement.query(params)?;
    while let Some(row) = rows.next()? {
        values.push(json_text::decode(
            row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?,
        )?);
    }
    Ok(values)
}

/// Decodes all rows, and names the id in errors; it is the second column.
fn decode_all_with_id<T: DeserializeOwned>(
    kind: &str,
    mut statement: CachedStatement<'_>,
    params: impl Params,
) -> DbResult<Vec<T>> {
    let mut values = Vec::new();
    let mut rows = statement.query(params)?;
    while let Some(row) = rows.next()? {
        let id: String = row.get(1)?;
        let value = json_text::decode(row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?);
        values.push(value.map_err(|error| add_context(&format!("{kind} {id}"), error))?);
    }
    Ok(values)
}

/// Names the object in a decoding error.
fn add_context(object: &str, error: StoreError) -> StoreError {
    match error {
        StoreError::Unreadable(reason) => StoreError::Unreadable(format!("{object}: {reason}")),
        other => other,
    }
}

/// Decodes a session and sums up its usage.
pub(super) fn decode_session(
    db: &Connection,
    number: i64,
    usage: &str,
    doc: &str,
) -> DbResult<Session> {
    let mut session: Session = json_text::decode(doc)?;
    session.usage = json_text::decode::<Usage>(usage)?.plus(thread_usage(db, number)?);
    Ok(session)
}

/// A session and its row number.
pub(super) fn session(db: &Connection, id: &SessionId) -> DbResult<Option<(i64, Session)>> {
    let mut query =
        db.prepare_cached("SELECT number, usage, doc FROM engine_sessions WHERE id = ?1")?;
    let row = query.query_row([id.as_str()], |row| {
        let texts: (String, String) = (row.get(1)?, row.get(2)?);
        Ok((row.get::<_, i64>(0)?, texts))
    });
    let Some((number, (usage, doc))) = row.optional()? else {
        return Ok(None);
    };
    match decode_session(db, number, &usage, &doc) {
        Ok(session) => Ok(Some((number, session))),
        Err(DbError::Store(error)) => Err(add_context(&format!("session {id}"), error).into()),
        Err(error) => Err(error),
    }
}

/// Total usage of the threads of a session.
fn thread_usage(db: &Connection, session: i64) -> DbResult<Usage> {
    let mut query = db.prepare_cached("SELECT usage FROM engine_threads WHERE session = ?1")?;
    let mut total = Usage::default();
    let mut rows = query.query([session])?;
    while let Some(row) = rows.next()? {
        total = total.plus(json_text::decode(&row.get::<_, String>(0)?)?);
    }
    Ok(total)
}

pub(super) fn snapshot(db: &Connection, id: &SessionId) -> DbResult<Option<SessionSnapshot>> {
    let Some((number, session)) = session(db, id)? else {
        return Ok(None);
    };
    let prompts = prompts(db, number)?;
    let threads = "SELECT doc FROM engine_threads WHERE session = ?1 ORDER BY number";
    Ok(Some(SessionSnapshot {
        session,
        threads: decode_all(db.prepare_cached(threads)?, [number])?,
        gates: gates_of_prompts(db, number, &prompts)?,
        prompts,
        sequence: Log::load(db, number)?.sequence.cast_unsigned(),
    }))
}

/// The complete session.
pub(super) fn archive(db: &Connection, id: &SessionId) -> DbResult<Option<Archive>> {
    let Some(snapshot) = snapshot(db, id)? else {
        return Ok(None);
    };
    let number = rows::session(db, id)?.ok_or_else(|| not_found(SESSION, id))?;
    let gates = gates(db, id)?;
    let mut all_refs = Vec::new();
    for gate in &gates {
        all_refs.extend(gate_refs(db, &gate.id)?);
    }
    Ok(Some(Archive {
        session: snapshot.session,
        threads: snapshot.threads,
        entries: decode_all_with_id(
            "entry",
            db.prepare_cached(
                "SELECT doc, id FROM engine_log
                 WHERE number > ?1 AND number < ?2 AND kind = 'entry' ORDER BY number",
            )?,
            log::row_range(number),
        )?,
        prompts: decode_all_with_id(
            "prompt",
            db.prepare_cached(
                "SELECT doc, id FROM engine_log
                 WHERE number > ?1 AND number < ?2 AND kind = 'prompt' ORDER BY number",
            )?,
            log::row_range(number),
        )?,
        gates,
        gate_refs: all_refs,
        events: events(db, id, 0, usize::MAX)?,
    }))
}

/// A prompt of a session.
pub(super) fn prompt(
    db: &Connection,
    session: &SessionId,
    prompt: &PromptId,
) -> DbResult<Option<QueuedPrompt>> {
    let Some(session) = rows::session(db, session)? else {
        return Ok(None);
    };
    let log = Log::load(db, session)?;
    let last = log.read_last_prompt(db)?;
    let Some(number) = log.find_prompt(db, last.as_ref(), prompt)? else {
        return Ok(None);
    };
    let mut query = db.prepare_cached("SELECT doc FROM engine_log WHERE number = ?1")?;
    let doc: String = query.query_row([number], |row| row.get(0))?;
    Ok(Some(json_text::decode(&doc)?))
}

fn prompts(db: &Connection, session: i64) -> DbResult<Vec<QueuedPrompt>> {
    let statement = db.prepare_cached(
        "SELECT doc FROM engine_log WHERE number IN
         (SELECT value FROM engine_threads, json_each(open_prompts) WHERE session = ?1) ORDER BY number",
    )?;
    let mut prompts: Vec<QueuedPrompt> = decode_all(statement, [session])?;
    prompts.sort_by_key(|prompt| prompt.order);
    Ok(prompts)
}

fn gates_of_prompts(
    db: &Connection,
    session: i64,
    prompts: &[QueuedPrompt],
) -> DbResult<Vec<Gate>> {
    let mut found = Vec::new();
    let mut query = db.prepare_cached(
        "SELECT number, doc FROM engine_decision_gates WHERE session = ?1 AND prompt = ?2",
    )?;
    for prompt in prompts {
        let rows = query.query_map(params![session, prompt.id.as_str()], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))
        })?;
        for row in rows {
            found.push(row?);
        }
    }
    found.sort_unstable();
    let gates: Result<_, _> = found
        .iter()
        .map(|(_, doc)| json_text::decode(doc))
        .collect();
    Ok(gates?)
}

/// The row number of an entry.
fn entry_number(db: &Connection, session: &SessionId, entry: &EntryId) -> DbResult<i64> {
    let found = match rows::session(db, session)? {
        Some(number) => Log::load(db, number)?.find_entry(db, entry)?,
        None => None,
    };
    Ok(found.ok_or_else(|| not_found(ENTRY, entry))?)
}

pub(super) fn path(db: &Connection, session: &SessionId, leaf: &EntryId) -> DbResult<Vec<Entry>> {
    let mut next = Some(entry_number(db, session, leaf)?);
    let mut query = db.prepare_cached("SELECT parent, doc FROM engine_log WHERE number = ?1")?;
    let mut path = Vec::new();
    while let Some(number) = next {
        let (parent, doc) = query.query_row([number], |row| {
            Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, String>(1)?))
        })?;
        path.push(json_text::decode(&doc)?);
        // Prevents an endless loop in a damaged file.
        next = parent.filter(|parent| *parent < number);
    }
    path.reverse();
    Ok(path)
}

/// An entry of a session.
pub(super) fn entry(
    db: &Connection,
    session: &SessionId,
    entry: &EntryId,
) -> DbResult<Option<Entry>> {
    let Some(session) = rows::session(db, session)? else {
        return Ok(None);
    };
    let Some(number) = Log::load(db, session)?.find_entry(db, entry)? else {
        return Ok(None);
    };
    let mut query = db.prepare_cached("SELECT doc FROM engine_log WHERE number = ?1")?;
    let doc: String = query.query_row([number], |row| row.get(0))?;
    Ok(Some(json_text::decode(&doc)?))
}

pub(super) fn entries(
    db: &Connection,
    session: &SessionId,
    thread: &ThreadId,
    after: Option<&EntryId>,
    limit: usize,
) -> DbResult<Vec<Entry>> {
    let after = after.map(|id| entry_number(db, session, id)).transpose()?;
    let Some(session) = rows::session(db, session)? else {
        return Ok(Vec::new());
    };
    let statement = db.prepare_cached(
        "SELECT doc FROM engine_log WHERE number > ?3 AND number < ?4 AND kind = 'entry'
         AND thread = (SELECT number FROM engine_threads WHERE session = ?1 AND id = ?2)
         ORDER BY number LIMIT ?5",
    )?;
    let [before, end] = log::row_range(session);
    let (after, limit) = (after.unwrap_or(before), sql_limit(limit));
    decode_all(
        statement,
        params![session, thread.as_str(), after, end, limit],
    )
}

pub(super) fn gate(db: &Connection, gate: &GateId) -> DbResult<Option<Gate>> {
    Ok(rows::gate(db, gate)?.map(|(_, gate)| gate))
}

pub(super) fn gate_refs(db: &Connection, gate: &GateId) -> DbResult<Vec<GateRef>> {
    let mut query = db.prepare_cached(
        "SELECT channel, message FROM engine_decision_gate_refs WHERE gate =
         (SELECT number FROM engine_decision_gates WHERE id = ?1) ORDER BY number",
    )?;
    let refs = query.query_map([gate.as_str()], |row| {
        Ok(GateRef {
            gate: gate.clone(),
            channel: row.get(0)?,
            message: row.get(1)?,
        })
    })?;
    Ok(refs.collect::<Result<_, _>>()?)
}

pub(super) fn pending_gates(db: &Connection, session: Option<&SessionId>) -> DbResult<Vec<Gate>> {
    match session {
        None => decode_all(
            db.prepare_cached(
                // The plus keeps SQLite from scanning all gates to avoid the sort.
                "SELECT doc FROM engine_decision_gates WHERE pending = 1 ORDER BY +number",
            )?,
            [],
        ),
        Some(session) => decode_all(
            db.prepare_cached(
                "SELECT doc FROM engine_decision_gates WHERE pending = 1 AND session =
                 (SELECT number FROM engine_sessions WHERE id = ?1) ORDER BY number",
            )?,
            [session.as_str()],
        ),
    }
}

/// Pending gates of a session and its descendants.
pub(super) fn pending_gates_in_tree(db: &Connection, root: &SessionId) -> DbResult<Vec<Gate>> {
    let statement = db.prepare_cached(
        "WITH RECURSIVE tree (number, id) AS (
             SELECT number, id FROM engine_sessions WHERE id = ?1
             UNION
             SELECT child.number, child.id FROM engine_sessions AS child
             JOIN tree ON child.parent = tree.id
         )
         SELECT doc FROM engine_decision_gates
         WHERE pending = 1 AND session IN (SELECT number FROM tree) ORDER BY number",
    )?;
    decode_all(statement, [root.as_str()])
}

/// All gates of a session, open or closed.
pub(super) fn gates(db: &Connection, session: &SessionId) -> DbResult<Vec<Gate>> {
    let statement = db.prepare_cached(
        "SELECT doc, id FROM engine_decision_gates WHERE session =
         (SELECT number FROM engine_sessions WHERE id = ?1) ORDER BY number",
    )?;
    decode_all_with_id("gate", statement, [session.as_str()])
}

/// The ids of all gates, open or closed.
pub(super) fn gate_ids(db: &Connection) -> DbResult<Vec<GateId>> {
    let mut query = db.prepare_cached("SELECT id FROM engine_decision_gates ORDER BY number")?;
    let mut rows = query.query([])?;
    let mut ids = Vec::new();
    while let Some(row) = rows.next()? {
        ids.push(GateId::from(row.get::<_, String>(0)?));
    }
    Ok(ids)
}

/// Gates whose id contains a text, open or closed.
pub(super) fn gates_matching(db: &Connection, text: &str) -> DbResult<Vec<Gate>> {
    let sql = "SELECT doc FROM engine_decision_gates WHERE instr(id, ?1) > 0 ORDER BY number";
    decode_all(db.prepare_cached(sql)?, [text])
}

pub(super) fn events(
    db: &Connection,
    session: &SessionId,
    after: u64,
    limit: usize,
) -> DbResult<Vec<Event>> {
    let Some(number) = rows::session(db, session)? else {
        return Ok(Vec::new());
    };
    let mut query = db.prepare_cached(
        "SELECT sequence, events FROM engine_log
         WHERE number > ?1 AND number <= ?2 AND events IS NOT NULL ORDER BY number",
    )?;
    let log = Log::load(db, number)?;
    let start = log.last_row_up_to(db, i64::try_from(after).unwrap_or(i64::MAX))?;
    let mut rows = query.query([start, log.last])?;
    let mut events = Vec::new();
    while let Some(row) = rows.next()? {
        let last: i64 = row.get(0)?;
        let stored: Vec<StoredEvent> = json_text::decode(&row.get::<_, String>(1)?)?;
        let before = last.cast_unsigned().saturating_sub(stored.len() as u64);
        for (sequence, event) in (before + 1..).zip(stored) {
            if events.len() == limit {
                return Ok(events);
            }
            if sequence > after {
                events.push(event.into_event(session, sequence));
            }
        }
    }
    Ok(events)
}
