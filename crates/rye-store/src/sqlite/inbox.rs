//! Writes of processes that do not hold the session: prompts, decisions and commands. Also the
//! removal of sessions.

use lillux::Hash;
use rusqlite::{Connection, params};
use rye_engine::store::{InboxMessage, Lease, PostOutcome, SessionCommand, StoreError};
use rye_protocol::{EventKind, GateId, Millis, QueuedPrompt, Resolution, SessionId, Thread};

use super::error::DbResult;
use super::log::{self, Log};
use super::{lease, rows, threads};
use crate::events::EventBatch;
use crate::invariants::{self, GATE, GateOutcome, PROMPT, SESSION, conflict, not_found};
use crate::json_text::{self, JsonText};

/// A post with its JSON already serialised.
pub(super) enum PreparedPost {
    Prompt(Box<PreparedPrompt>, Option<PreparedThread>),
    Resolve(GateId, Resolution),
    Command(SessionCommand, JsonText),
}

impl PreparedPost {
    pub(super) fn new(post: InboxMessage) -> Result<Self, StoreError> {
        Ok(match post {
            InboxMessage::Prompt { prompt, new_thread } => {
                let thread = match new_thread {
                    Some(thread) => Some(PreparedThread {
                        doc: json_text::encode(&thread)?,
                        thread,
                    }),
                    None => None,
                };
                Self::Prompt(Box::new(PreparedPrompt::new(*prompt)?), thread)
            }
            InboxMessage::Resolve { gate, resolution } => Self::Resolve(gate, resolution),
            InboxMessage::Command(command) => {
                let doc = json_text::encode(&command)?;
                Self::Command(command, doc)
            }
        })
    }
}

/// A posted prompt.
pub(super) struct PreparedPrompt {
    prompt: QueuedPrompt,
    hash: Hash,
    doc: JsonText,
}

impl PreparedPrompt {
    fn new(prompt: QueuedPrompt) -> Result<Self, StoreError> {
        Ok(Self {
            hash: invariants::content_hash(&prompt),
            doc: json_text::encode(&prompt)?,
            prompt,
        })
    }
}

/// The thread of a posted prompt, if the session has none with its key.
pub(super) struct PreparedThread {
    thread: Box<Thread>,
    doc: JsonText,
}

/// Applies a post. Also returns whether it changed anything.
pub(super) fn post(
    db: &Connection,
    session: &SessionId,
    post: &PreparedPost,
    now: Millis,
) -> DbResult<(PostOutcome, bool)> {
    let number = rows::session(db, session)?.ok_or_else(|| not_found(SESSION, session))?;
    match post {
        PreparedPost::Prompt(prepared, thread) => {
            let mut sessions = thread.iter().map(|it| &it.thread.session);
            if prepared.prompt.session != *session || sessions.any(|it| it != session) {
                return Err(conflict(PROMPT, &prepared.prompt.id).into());
            }
            match thread {
                None => post_prompt(db, number, prepared, None),
                Some(new) => match threads::id_with_key(db, number, &new.thread.key)? {
                    None => post_prompt(db, number, prepared, Some((new, now))),
                    Some(id) if id == prepared.prompt.thread => {
                        post_prompt(db, number, prepared, None)
                    }
                    Some(id) => {
                        let mut prompt = prepared.prompt.clone();
                        prompt.thread = id;
                        post_prompt(db, number, &PreparedPrompt::new(prompt)?, None)
                    }
                },
            }
        }
        PreparedPost::Resolve(gate, resolution) => resolve(db, session, number, gate, resolution),
        PreparedPost::Command(command, doc) => {
            if let Some(thread) = &command.thread {
                threads::get(db, number, thread)?;
            }
            post_command(db, number, command, doc)
        }
    }
}

fn post_command(
    db: &Connection,
    session: i64,
    command: &SessionCommand,
    doc: &JsonText,
) -> DbResult<(PostOutcome, bool)> {
    let mut put = db.prepare_cached(
        "INSERT INTO engine_inbox (session, id, doc) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
    )?;
    match put.execute(params![session, command.id.as_str(), doc])? {
        0 => Ok((PostOutcome::Duplicate, false)),
        _ => Ok((PostOutcome::Written, true)),
    }
}

/// Appends a prompt to the log, and creates its thread if that is new.
fn post_prompt(
    db: &Connection,
    session: i64,
    PreparedPrompt { prompt, hash, doc }: &PreparedPrompt,
    new_thread: Option<(&PreparedThread, Millis)>,
) -> DbResult<(PostOutcome, bool)> {
    let mut log = Log::load(db, session)?;
    let last = log.read_last_prompt(db)?;
    let Some(existing) = log.find_prompt(db, last.as_ref(), &prompt.id)? else {
        if let Some((new, now)) = new_thread {
            threads::insert(db, session, &new.thread, &new.doc)?;
            let key = new.thread.key.clone();
            let kind = EventKind::ThreadStart { key };
            let events = EventBatch::append(None, Some(&new.thread.id), now, &kind)?;
            log.append_events(db, &events)?;
        }
        let mut thread = threads::get(db, session, &prompt.thread)?;
        let texts = (&hash.as_bytes()[..], doc);
        let new = log.append_prompt(db, last.as_ref(), thread.number, prompt, texts)?;
        thread.set_open(new.number, !prompt.status.is_finished());
        thread.write(db)?;
        return Ok((PostOutcome::Written, true));
    };
    let mut query = db.prepare_cached("SELECT content_hash FROM engine_log WHERE number = ?1")?;
    let existing_hash: [u8; 32] = query.query_row([existing], |row| row.get(0))?;
    if *hash.as_bytes() == existing_hash {
        Ok((PostOutcome::Duplicate, false))
    } else {
        Err(conflict(PROMPT, &prompt.id).into())
    }
}

fn resolve(
    db: &Connection,
    session: &SessionId,
    number: i64,
    gate: &GateId,
    resolution: &Resolution,
) -> DbResult<(PostOutcome, bool)> {
    let stored = rows::gate(db, gate)?;
    let stored = stored.filter(|(_, stored)| stored.origin.session == *session);
    let (row, mut stored) = stored.ok_or_else(|| not_found(GATE, gate))?;
    match invariants::resolve_gate(&stored, resolution) {
        GateOutcome::Closes(status, event, posted) => {
            stored.status = status;
            rows::update_gate(db, row, &stored, &json_text::encode(&stored)?)?;
            let thread = Some(&stored.origin.thread);
            let events = EventBatch::append(None, thread, resolution.at, &event)?;
            Log::load(db, number)?.append_events(db, &events)?;
            Ok((posted, true))
        }
        GateOutcome::Unchanged(posted) => Ok((posted, false)),
    }
}

/// Commands that were not carried out yet, oldest first.
pub(super) fn pending_commands(db: &Connection, lease: &Lease) -> DbResult<Vec<SessionCommand>> {
    let Some(Log { session, .. }) = lease::check_lease(db, lease)? else {
        return Ok(Vec::new());
    };
    let mut query =
        db.prepare_cached("SELECT doc FROM engine_inbox WHERE session = ?1 ORDER BY number")?;
    let docs = query.query_map([session], |row| row.get::<_, String>(0))?;
    let docs: Vec<_> = docs.collect::<Result<_, _>>()?;
    let commands: Result<_, _> = docs.iter().map(|doc| json_text::decode(doc)).collect();
    Ok(commands?)
}

/// Deletes a session with everything that belongs to it, including its lease.
pub(super) fn remove_session(db: &Connection, lease: &Lease) -> DbResult<()> {
    if let Some(Log { session, .. }) = lease::check_lease(db, lease)? {
        db.prepare_cached(
            "DELETE FROM engine_decision_gate_refs WHERE gate IN
             (SELECT number FROM engine_decision_gates WHERE session = ?1)",
        )?
        .execute([session])?;
        for table in [
            "engine_threads",
            "engine_ids",
            "engine_decision_gates",
            "engine_inbox",
        ] {
            db.execute(
                &format!("DELETE FROM {table} WHERE session = ?1"),
                [session],
            )?;
        }
        db.execute(
            "DELETE FROM engine_log WHERE number > ?1 AND number < ?2",
            log::row_range(session),
        )?;
        db.execute("DELETE FROM engine_sessions WHERE number = ?1", [session])?;
    }
    lease::release(db, lease)
}
