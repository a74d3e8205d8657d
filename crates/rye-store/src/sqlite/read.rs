//! Questions to the database.

use rusqlite::{CachedStatement, Connection, OptionalExtension, Params, params};
use rye_engine::store::{SessionSnapshot, StoreError};
use rye_protocol::{
    Archive, Entry, EntryId, Event, Gate, GateId, GateRef, QueuedPrompt, Session, SessionId,
    Thread, ThreadId, Usage,
};
use serde::de::DeserializeOwned;

use super::document;
use super::error::Outcome;
use super::log::{self, Log};
use super::news::Told;
use super::rows;
use crate::rules::{ENTRY, SESSION, not_found};

/// SQLite counts no further.
pub(super) fn at_most(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// The things of all rows, their text being the only column.
fn all<T: DeserializeOwned>(
    mut question: CachedStatement<'_>,
    with: impl Params,
) -> Outcome<Vec<T>> {
    let mut things = Vec::new();
    let mut rows = question.query(with)?;
    while let Some(row) = rows.next()? {
        things.push(document::read(
            row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?,
        )?);
    }
    Ok(things)
}

/// The same with the place of what cannot be read: the id is the second column.
fn all_named<T: DeserializeOwned>(
    what: &str,
    mut question: CachedStatement<'_>,
    with: impl Params,
) -> Outcome<Vec<T>> {
    let mut things = Vec::new();
    let mut rows = question.query(with)?;
    while let Some(row) = rows.next()? {
        let id: String = row.get(1)?;
        let thing = document::read(row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?);
        things.push(thing.map_err(|error| at(&format!("{what} {id}"), error))?);
    }
    Ok(things)
}

/// What cannot be read, with its place.
fn at(place: &str, error: StoreError) -> StoreError {
    match error {
        StoreError::Unreadable(why) => StoreError::Unreadable(format!("{place}: {why}")),
        other => other,
    }
}

/// The session of a row of usage and text, whose threads have used up so much besides.
pub(super) fn session(usage: &str, doc: &str, of_threads: Usage) -> Result<Session, StoreError> {
    let mut session: Session = document::read(doc)?;
    session.usage = document::read::<Usage>(usage)?.plus(of_threads);
    Ok(session)
}

/// The threads of a session, and what they have used up together.
fn threads(db: &Connection, session: i64) -> Outcome<(Vec<Thread>, Usage)> {
    let mut find = db.prepare_cached(
        "SELECT usage, doc FROM engine_threads WHERE session = ?1 ORDER BY number",
    )?;
    let (mut threads, mut all) = (Vec::new(), Usage::default());
    let mut rows = find.query([session])?;
    while let Some(row) = rows.next()? {
        all = all.plus(document::read(&row.get::<_, String>(0)?)?);
        threads.push(document::read(&row.get::<_, String>(1)?)?);
    }
    Ok((threads, all))
}

/// What the threads of a session have used up.
pub(super) fn used(db: &Connection, session: i64) -> Outcome<Usage> {
    let mut find = db.prepare_cached("SELECT usage FROM engine_threads WHERE session = ?1")?;
    let mut all = Usage::default();
    let mut rows = find.query([session])?;
    while let Some(row) = rows.next()? {
        all = all.plus(document::read(&row.get::<_, String>(0)?)?);
    }
    Ok(all)
}

pub(super) fn record(db: &Connection, id: &SessionId) -> Outcome<Option<SessionSnapshot>> {
    let mut find =
        db.prepare_cached("SELECT number, usage, doc FROM engine_sessions WHERE id = ?1")?;
    let found = find.query_row([id.as_str()], |row| {
        let texts: (String, String) = (row.get(1)?, row.get(2)?);
        Ok((row.get::<_, i64>(0)?, texts))
    });
    let Some((number, (usage, doc))) = found.optional()? else {
        return Ok(None);
    };
    let prompts = prompts(db, number)?;
    let (threads, of_threads) = threads(db, number)?;
    Ok(Some(SessionSnapshot {
        session: session(&usage, &doc, of_threads)
            .map_err(|error| at(&format!("session {id}"), error))?,
        threads,
        gates: gates(db, number, &prompts)?,
        prompts,
        suspended: all(
            db.prepare_cached(
                "SELECT doc FROM engine_suspended_turns WHERE session = ?1 ORDER BY number",
            )?,
            [number],
        )?,
        sequence: Log::of(db, number)?.sequence.cast_unsigned(),
    }))
}

/// All of it, also what has ended.
pub(super) fn archive(db: &Connection, id: &SessionId) -> Outcome<Option<Archive>> {
    let Some(record) = record(db, id)? else {
        return Ok(None);
    };
    let number = rows::session(db, id)?.ok_or_else(|| not_found(SESSION, id))?;
    let gates: Vec<Gate> = all_named(
        "gate",
        db.prepare_cached(
            "SELECT doc, id FROM engine_decision_gates WHERE session = ?1 ORDER BY number",
        )?,
        [number],
    )?;
    let mut refs = Vec::new();
    for gate in &gates {
        refs.extend(gate_refs(db, &gate.id)?);
    }
    Ok(Some(Archive {
        session: record.session,
        threads: record.threads,
        entries: all_named(
            "entry",
            db.prepare_cached(
                "SELECT doc, id FROM engine_log
                 WHERE number > ?1 AND number < ?2 AND kind = 'entry' ORDER BY number",
            )?,
            log::around(number),
        )?,
        prompts: all_named(
            "prompt",
            db.prepare_cached(
                "SELECT doc, id FROM engine_log
                 WHERE number > ?1 AND number < ?2 AND kind = 'prompt' ORDER BY number",
            )?,
            log::around(number),
        )?,
        gates,
        gate_refs: refs,
        suspended_turns: record.suspended,
        events: events(db, id, 0, usize::MAX)?,
    }))
}

fn prompts(db: &Connection, session: i64) -> Outcome<Vec<QueuedPrompt>> {
    let question = db.prepare_cached(
        "SELECT doc FROM engine_log WHERE number IN
         (SELECT value FROM engine_threads, json_each(open) WHERE session = ?1) ORDER BY number",
    )?;
    let mut prompts: Vec<QueuedPrompt> = all(question, [session])?;
    prompts.sort_by_key(|prompt| prompt.order);
    Ok(prompts)
}

fn gates(db: &Connection, session: i64, prompts: &[QueuedPrompt]) -> Outcome<Vec<Gate>> {
    let mut found = Vec::new();
    let mut find = db.prepare_cached(
        "SELECT number, doc FROM engine_decision_gates WHERE session = ?1 AND prompt = ?2",
    )?;
    for prompt in prompts {
        let rows = find.query_map(params![session, prompt.id.as_str()], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))
        })?;
        for row in rows {
            found.push(row?);
        }
    }
    found.sort_unstable();
    let gates: Result<_, _> = found.iter().map(|(_, doc)| document::read(doc)).collect();
    Ok(gates?)
}

/// Where an entry is.
fn place(db: &Connection, session: &SessionId, entry: &EntryId) -> Outcome<i64> {
    let found = match rows::session(db, session)? {
        Some(number) => Log::of(db, number)?.entry(db, entry)?,
        None => None,
    };
    Ok(found.ok_or_else(|| not_found(ENTRY, entry))?)
}

pub(super) fn path(db: &Connection, session: &SessionId, leaf: &EntryId) -> Outcome<Vec<Entry>> {
    let mut next = Some(place(db, session, leaf)?);
    let mut step = db.prepare_cached("SELECT parent, doc FROM engine_log WHERE number = ?1")?;
    let mut path = Vec::new();
    while let Some(number) = next {
        let (parent, doc) = step.query_row([number], |row| {
            Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, String>(1)?))
        })?;
        path.push(document::read(&doc)?);
        // A damaged file must not send us around in a circle.
        next = parent.filter(|parent| *parent < number);
    }
    path.reverse();
    Ok(path)
}

pub(super) fn entries(
    db: &Connection,
    session: &SessionId,
    thread: &ThreadId,
    after: Option<&EntryId>,
    limit: usize,
) -> Outcome<Vec<Entry>> {
    let after = after.map(|id| place(db, session, id)).transpose()?;
    let Some(session) = rows::session(db, session)? else {
        return Ok(Vec::new());
    };
    let question = db.prepare_cached(
        "SELECT doc FROM engine_log WHERE number > ?3 AND number < ?4 AND kind = 'entry'
         AND thread = (SELECT number FROM engine_threads WHERE session = ?1 AND id = ?2)
         ORDER BY number LIMIT ?5",
    )?;
    let [before, end] = log::around(session);
    let (after, limit) = (after.unwrap_or(before), at_most(limit));
    all(
        question,
        params![session, thread.as_str(), after, end, limit],
    )
}

pub(super) fn gate(db: &Connection, gate: &GateId) -> Outcome<Option<Gate>> {
    Ok(rows::gate(db, gate)?.map(|(_, gate)| gate))
}

pub(super) fn gate_refs(db: &Connection, gate: &GateId) -> Outcome<Vec<GateRef>> {
    let mut find = db.prepare_cached(
        "SELECT channel, message FROM engine_decision_gate_refs WHERE gate =
         (SELECT number FROM engine_decision_gates WHERE id = ?1) ORDER BY number",
    )?;
    let refs = find.query_map([gate.as_str()], |row| {
        Ok(GateRef {
            gate: gate.clone(),
            channel: row.get(0)?,
            message: row.get(1)?,
        })
    })?;
    Ok(refs.collect::<Result<_, _>>()?)
}

pub(super) fn pending_gates(db: &Connection, session: Option<&SessionId>) -> Outcome<Vec<Gate>> {
    match session {
        None => all(
            db.prepare_cached(
                // The plus keeps SQLite from walking through all gates to save a sort.
                "SELECT doc FROM engine_decision_gates WHERE pending = 1 ORDER BY +number",
            )?,
            [],
        ),
        Some(session) => all(
            db.prepare_cached(
                "SELECT doc FROM engine_decision_gates WHERE pending = 1 AND session =
                 (SELECT number FROM engine_sessions WHERE id = ?1) ORDER BY number",
            )?,
            [session.as_str()],
        ),
    }
}

pub(super) fn gate_ids(db: &Connection) -> Outcome<Vec<GateId>> {
    let mut find = db.prepare_cached("SELECT id FROM engine_decision_gates ORDER BY number")?;
    let mut rows = find.query([])?;
    let mut ids = Vec::new();
    while let Some(row) = rows.next()? {
        ids.push(GateId::from(row.get::<_, String>(0)?));
    }
    Ok(ids)
}

/// Those whose id has this part, ended or not.
pub(super) fn gates_with(db: &Connection, part: &str) -> Outcome<Vec<Gate>> {
    let find = "SELECT doc FROM engine_decision_gates WHERE instr(id, ?1) > 0 ORDER BY number";
    all(db.prepare_cached(find)?, [part])
}

pub(super) fn events(
    db: &Connection,
    session: &SessionId,
    after: u64,
    limit: usize,
) -> Outcome<Vec<Event>> {
    let Some(number) = rows::session(db, session)? else {
        return Ok(Vec::new());
    };
    let mut find = db.prepare_cached(
        "SELECT sequence, told FROM engine_log
         WHERE number > ?1 AND number <= ?2 AND told IS NOT NULL ORDER BY number",
    )?;
    let log = Log::of(db, number)?;
    let seen = log.behind(db, i64::try_from(after).unwrap_or(i64::MAX))?;
    let mut rows = find.query([seen, log.last])?;
    let mut events = Vec::new();
    while let Some(row) = rows.next()? {
        let last: i64 = row.get(0)?;
        let told: Vec<Told> = document::read(&row.get::<_, String>(1)?)?;
        let before = last.cast_unsigned().saturating_sub(told.len() as u64);
        for (sequence, told) in (before + 1..).zip(told) {
            if events.len() == limit {
                return Ok(events);
            }
            if sequence > after {
                events.push(told.event(session, sequence));
            }
        }
    }
    Ok(events)
}
