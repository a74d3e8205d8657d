//! What those write who do not hold the session, and what its holder takes of it.

use lillux::Hash;
use rusqlite::{Connection, params};
use rye_engine::store::{InboxMessage, Lease, PostOutcome, SessionCommand, StoreError};
use rye_protocol::{GateId, QueuedPrompt, Resolution, SessionId};

use super::document::{self, Text};
use super::error::Outcome;
use super::log::{self, Log};
use super::news::News;
use super::{holder, rows, threads};
use crate::rules::{self, GATE, PROMPT, SESSION, Verdict, conflict, not_found};

/// A post with its text.
pub(super) enum Letter {
    Prompt(Box<QueuedPrompt>, Hash, Text),
    Resolve(GateId, Resolution),
    SessionCommand(SessionCommand, Text),
}

impl Letter {
    pub(super) fn of(post: InboxMessage) -> Result<Self, StoreError> {
        Ok(match post {
            InboxMessage::Prompt(prompt) => {
                let doc = document::write(&prompt)?;
                let asked = rules::asked(&prompt);
                Self::Prompt(prompt, asked, doc)
            }
            InboxMessage::Resolve { gate, resolution } => Self::Resolve(gate, resolution),
            InboxMessage::Command(control) => {
                let doc = document::write(&control)?;
                Self::SessionCommand(control, doc)
            }
        })
    }
}

/// What came of a post, and whether it changed anything.
pub(super) fn post(
    db: &Connection,
    session: &SessionId,
    letter: &Letter,
) -> Outcome<(PostOutcome, bool)> {
    let number = rows::session(db, session)?.ok_or_else(|| not_found(SESSION, session))?;
    match letter {
        Letter::Prompt(prompt, asked, doc) => {
            if prompt.session != *session {
                return Err(conflict(PROMPT, &prompt.id).into());
            }
            post_prompt(db, number, prompt, asked, doc)
        }
        Letter::Resolve(gate, resolution) => resolve(db, session, number, gate, resolution),
        Letter::SessionCommand(control, doc) => {
            if let Some(thread) = &control.thread {
                threads::get(db, number, thread)?;
            }
            order(db, number, control, doc)
        }
    }
}

fn order(
    db: &Connection,
    session: i64,
    control: &SessionCommand,
    doc: &Text,
) -> Outcome<(PostOutcome, bool)> {
    let mut put = db.prepare_cached(
        "INSERT INTO engine_inbox (session, id, doc) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
    )?;
    match put.execute(params![session, control.id.as_str(), doc])? {
        0 => Ok((PostOutcome::Duplicate, false)),
        _ => Ok((PostOutcome::Written, true)),
    }
}

fn post_prompt(
    db: &Connection,
    session: i64,
    prompt: &QueuedPrompt,
    asked: &Hash,
    doc: &Text,
) -> Outcome<(PostOutcome, bool)> {
    let mut log = Log::of(db, session)?;
    let last = log.last_prompt(db)?;
    let Some(known) = log.prompt(db, last.as_ref(), &prompt.id)? else {
        let mut thread = threads::get(db, session, &prompt.thread)?;
        let texts = (&asked.as_bytes()[..], doc);
        let new = log.append_prompt(db, last.as_ref(), thread.number, prompt, texts)?;
        thread.keep(new.number, !prompt.status.is_finished());
        thread.write(db)?;
        return Ok((PostOutcome::Written, true));
    };
    let mut find = db.prepare_cached("SELECT asked FROM engine_log WHERE number = ?1")?;
    let before: [u8; 32] = find.query_row([known], |row| row.get(0))?;
    if *asked.as_bytes() == before {
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
) -> Outcome<(PostOutcome, bool)> {
    let known = rows::gate(db, gate)?;
    let known = known.filter(|(_, known)| known.origin.session == *session);
    let (row, mut known) = known.ok_or_else(|| not_found(GATE, gate))?;
    match rules::answer(&known, resolution) {
        Verdict::Ends(status, told, posted) => {
            known.status = status;
            rows::update_gate(db, row, &known, &document::write(&known)?)?;
            let thread = Some(&known.origin.thread);
            let news = News::with(None, thread, resolution.at, &told)?;
            Log::of(db, number)?.tell(db, &news)?;
            Ok((posted, true))
        }
        Verdict::Stands(posted) => Ok((posted, false)),
    }
}

/// Orders that were not carried out yet.
pub(super) fn pending_commands(db: &Connection, lease: &Lease) -> Outcome<Vec<SessionCommand>> {
    let Some(Log { session, .. }) = holder::holds(db, lease)? else {
        return Ok(Vec::new());
    };
    let mut find =
        db.prepare_cached("SELECT doc FROM engine_inbox WHERE session = ?1 ORDER BY number")?;
    let docs = find.query_map([session], |row| row.get::<_, String>(0))?;
    let docs: Vec<_> = docs.collect::<Result<_, _>>()?;
    let controls: Result<_, _> = docs.iter().map(|doc| document::read(doc)).collect();
    Ok(controls?)
}

/// Forgets a session and all that belongs to it, its lease too.
pub(super) fn remove(db: &Connection, lease: &Lease) -> Outcome<()> {
    if let Some(Log { session, .. }) = holder::holds(db, lease)? {
        db.prepare_cached(
            "DELETE FROM engine_decision_gate_refs WHERE gate IN
             (SELECT number FROM engine_decision_gates WHERE session = ?1)",
        )?
        .execute([session])?;
        for table in [
            "engine_threads",
            "engine_ids",
            "engine_decision_gates",
            "engine_suspended_turns",
            "engine_inbox",
        ] {
            db.execute(
                &format!("DELETE FROM {table} WHERE session = ?1"),
                [session],
            )?;
        }
        db.execute(
            "DELETE FROM engine_log WHERE number > ?1 AND number < ?2",
            log::around(session),
        )?;
        db.execute("DELETE FROM engine_sessions WHERE number = ?1", [session])?;
    }
    holder::release(db, lease)
}
