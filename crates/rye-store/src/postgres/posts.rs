//! Writes of processes that do not hold the session: prompts, decisions and commands.

use rye_engine::store::{InboxMessage, PostOutcome, SessionCommand, StoreError};
use rye_protocol::{
    EventKind, Gate, GateId, Millis, QueuedPrompt, Resolution, SessionId, Thread, ThreadId,
};
use tokio_postgres::types::ToSql;

use super::db::Db;
use super::error::{DbError, DbResult};
use super::ops::thread_status;
use crate::events::EventBatch;
use crate::invariants::{self, GATE, GateOutcome, PROMPT, conflict, not_found};
use crate::json_text;

/// Applies a post.
pub(super) async fn post(
    db: &Db,
    session: &SessionId,
    message: InboxMessage,
    now: Millis,
) -> DbResult<PostOutcome> {
    match message {
        InboxMessage::Prompt { prompt, new_thread } => {
            let mut sessions = new_thread.iter().map(|thread| &thread.session);
            if prompt.session != *session || sessions.any(|it| it != session) {
                check_exists(db, session).await?;
                return Err(conflict(PROMPT, &prompt.id).into());
            }
            post_prompt(db, session, *prompt, new_thread.as_deref(), now).await
        }
        InboxMessage::Resolve { gate, resolution } => {
            resolve(db, session, &gate, &resolution).await
        }
        InboxMessage::Command(command) => post_command(db, session, &command).await,
    }
}

async fn check_exists(db: &Db, session: &SessionId) -> DbResult<()> {
    let sql = "SELECT number FROM rye.sessions WHERE id = $1";
    let row = db.query_opt(sql, &[&session.as_str()]).await?;
    let row = row.ok_or_else(|| not_found(invariants::SESSION, session))?;
    Ok(row.try_get::<_, i64>(0).map(drop)?)
}

async fn post_prompt(
    db: &Db,
    session: &SessionId,
    mut prompt: QueuedPrompt,
    new_thread: Option<&Thread>,
    now: Millis,
) -> DbResult<PostOutcome> {
    const POST: &str =
        "SELECT outcome, thread FROM rye.post_prompt($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";
    let mut events = None;
    let mut thread_doc = None;
    if let Some(thread) = new_thread {
        let key = thread.key.clone();
        let start = EventKind::ThreadStart { key };
        let batch = EventBatch::append(None, Some(&thread.id), now, &start)?;
        events = Some(batch.json.into_string()?);
        thread_doc = Some(json_text::encode(thread)?.into_string()?);
        prompt.thread = thread.id.clone();
    }
    let key = new_thread.map(|thread| &*thread.key);
    let created_at = new_thread.map(|thread| thread.created_at.0.cast_signed());
    let status = new_thread.map(|thread| thread_status(thread.status));
    loop {
        let hash = invariants::content_hash(&prompt);
        let doc = json_text::encode(&prompt)?.into_string()?;
        let params: [&(dyn ToSql + Sync); 11] = [
            &session.as_str(),
            &prompt.id.as_str(),
            &prompt.thread.as_str(),
            &!prompt.status.is_finished(),
            &&hash.as_bytes()[..],
            &doc,
            &key,
            &created_at,
            &status,
            &thread_doc,
            &events,
        ];
        let row = db.query_one(POST, &params).await?;
        match row.try_get(0)? {
            "written" => return Ok(PostOutcome::Written),
            "duplicate" => return Ok(PostOutcome::Duplicate),
            "conflict" => return Err(conflict(PROMPT, &prompt.id).into()),
            // The session has a thread with this key.
            _ => {
                let thread = row.try_get::<_, String>(1)?.parse::<ThreadId>();
                prompt.thread = thread.map_err(|error| DbError::Unreadable(error.to_string()))?;
            }
        }
    }
}

async fn resolve(
    db: &Db,
    session: &SessionId,
    gate: &GateId,
    resolution: &Resolution,
) -> DbResult<PostOutcome> {
    const READ: &str = "SELECT g.doc FROM rye.sessions s
        LEFT JOIN rye.gates g ON g.session = s.number AND g.id = $2 WHERE s.id = $1";
    const CLOSE: &str = "SELECT rye.close_gate($1, $2, $3, $4, $5)";
    loop {
        let row = db
            .query_opt(READ, &[&session.as_str(), &gate.as_str()])
            .await?;
        let row = row.ok_or_else(|| not_found(invariants::SESSION, session))?;
        let before: Option<String> = row.try_get(0)?;
        let before = before.ok_or_else(|| not_found(GATE, gate))?;
        let mut stored: Gate = json_text::decode(&before)?;
        let (status, event, posted) = match invariants::resolve_gate(&stored, resolution) {
            GateOutcome::Closes(status, event, posted) => (status, event, posted),
            GateOutcome::Unchanged(posted) => return Ok(posted),
        };
        stored.status = status;
        let thread = Some(&stored.origin.thread);
        let events = EventBatch::append(None, thread, resolution.at, &event)?;
        let events = events.json.into_string()?;
        let doc = json_text::encode(&stored)?.into_string()?;
        let params: [&(dyn ToSql + Sync); 5] =
            [&session.as_str(), &gate.as_str(), &before, &doc, &events];
        // Otherwise, the gate has changed in the meantime.
        if db.query_one(CLOSE, &params).await?.try_get(0)? {
            return Ok(posted);
        }
    }
}

async fn post_command(
    db: &Db,
    session: &SessionId,
    command: &SessionCommand,
) -> DbResult<PostOutcome> {
    let doc = json_text::encode(command)?.into_string()?;
    let thread = command.thread.as_ref().map(ThreadId::as_str);
    let params: [&(dyn ToSql + Sync); 4] = [&session.as_str(), &command.id.as_str(), &thread, &doc];
    let row = db
        .query_one("SELECT rye.post_command($1, $2, $3, $4)", &params)
        .await?;
    Ok(if row.try_get(0)? {
        PostOutcome::Written
    } else {
        PostOutcome::Duplicate
    })
}

/// Commands that were not carried out yet, oldest first.
pub(super) async fn pending_commands(
    db: &Db,
    instance: i64,
    lease: &rye_engine::store::Lease,
) -> DbResult<Vec<SessionCommand>> {
    const READ: &str =
        "SELECT i.doc FROM rye.leases l LEFT JOIN rye.inbox i ON i.session = l.number
        WHERE l.session = $1 AND l.epoch = $2 AND l.instance = $3 ORDER BY i.number";
    let (session, epoch) = (lease.session.as_str(), lease.epoch.cast_signed());
    let rows = db.query(READ, &[&session, &epoch, &instance]).await?;
    if rows.is_empty() {
        return Err(StoreError::Fenced(lease.session.clone()).into());
    }
    let mut commands = Vec::new();
    for row in rows {
        if let Some(doc) = row.try_get::<_, Option<&str>>(0)? {
            commands.push(json_text::decode(doc)?);
        }
    }
    Ok(commands)
}
