//! What a batch does to the database.

use rusqlite::{Connection, OptionalExtension, params};
use rye_engine::store::{Lease, StoreError};
use rye_protocol::ItemStatus;
use rye_protocol::{
    Entry, EntryId, Gate, GateId, GateRef, QueueItem, QueueItemId, Session, SessionId, Suspended,
    Thread, ThreadId, Usage,
};

use super::changes::Change;
use super::document;
use super::error::Outcome;
use super::holder;
use crate::rules::{self, ENTRY, GATE, ITEM, SESSION, THREAD, conflict, not_found};

/// Writes a batch and gives the number of the session's last event.
pub(super) fn commit(db: &Connection, lease: &Lease, changes: Vec<Change>) -> Outcome<u64> {
    let mut commit = Commit {
        db,
        session: &lease.session,
        number: holder::holds(db, lease)?,
        thread: None,
        entry: None,
        last: None,
    };
    for change in changes {
        commit.apply(change)?;
    }
    match commit.number {
        Some(_) => Ok(commit.last()?.cast_unsigned()),
        None => Ok(0),
    }
}

/// A commit under way.
struct Commit<'a> {
    db: &'a Connection,
    session: &'a SessionId,
    /// The session's row, once there is one.
    number: Option<i64>,
    /// The thread that was looked for last, which is most often the next one too.
    thread: Option<(ThreadId, i64)>,
    /// The entry that was appended last, which most often is the next one's parent.
    entry: Option<(EntryId, i64)>,
    /// The number of the last event, once it was looked for.
    last: Option<i64>,
}

impl Commit<'_> {
    fn apply(&mut self, change: Change) -> Outcome<()> {
        match change {
            Change::PutSession(session, doc) => self.put_session(&session, &doc),
            Change::PutThread(thread, doc) => self.put_thread(&thread, &doc),
            Change::AppendEntry(entry, doc) => self.append_entry(&entry, &doc),
            Change::ReplaceEntry(entry, doc) => self.replace_entry(&entry, &doc),
            Change::PutItem(item, asked, doc) => self.put_item(&item, asked.as_bytes(), &doc),
            Change::RemoveItem(item) => self.remove_item(&item),
            Change::PutGate(gate, doc) => self.put_gate(&gate, &doc),
            Change::PutGateRef(shown) => self.put_gate_ref(&shown),
            Change::PutSuspended(turn, doc) => self.put_suspended(&turn, &doc),
            Change::ClearSuspended(gate) => self.clear_suspended(&gate),
            Change::AddUsage(usage) => self.add_usage(usage),
            Change::Event(doc) => self.tell(&doc),
        }
    }

    fn number(&self) -> Result<i64, StoreError> {
        self.number.ok_or_else(|| not_found(SESSION, self.session))
    }

    fn thread(&mut self, id: &ThreadId) -> Outcome<i64> {
        if let Some((last, number)) = &self.thread
            && last == id
        {
            return Ok(*number);
        }
        let number = thread(self.db, self.number()?, id)?;
        self.thread = Some((id.clone(), number));
        Ok(number)
    }

    fn entry(&self, id: &EntryId) -> Outcome<i64> {
        if let Some((last, number)) = &self.entry
            && last == id
        {
            return Ok(*number);
        }
        let mut find = self
            .db
            .prepare_cached("SELECT number FROM engine_entries WHERE session = ?1 AND id = ?2")?;
        let found = find.query_row(params![self.number()?, id.as_str()], |row| row.get(0));
        Ok(found.optional()?.ok_or_else(|| not_found(ENTRY, id))?)
    }

    fn put_session(&mut self, session: &Session, doc: &str) -> Outcome<()> {
        rules::own(self.session, &session.id)?;
        let mut put = self.db.prepare_cached(
            "INSERT INTO engine_sessions (id, user_id, fixed, usage, doc)
             VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (id) DO UPDATE SET doc = excluded.doc WHERE fixed = excluded.fixed
             RETURNING number",
        )?;
        let fixed = rules::session_fixed(session).to_string();
        let usage = document::write(&session.usage)?;
        let row = params![session.id.as_str(), session.user_id, fixed, usage, doc];
        let number = put.query_row(row, |row| row.get(0)).optional()?;
        self.number = Some(number.ok_or_else(|| conflict(SESSION, &session.id))?);
        Ok(())
    }

    fn put_thread(&mut self, thread: &Thread, doc: &str) -> Outcome<()> {
        rules::own(self.session, &thread.session)?;
        let mut put = self.db.prepare_cached(
            "INSERT INTO engine_threads (session, id, key, created_at, doc)
             VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (session, id) DO UPDATE SET doc = excluded.doc
             WHERE key = excluded.key AND created_at = excluded.created_at",
        )?;
        let created_at = thread.created_at.0.cast_signed();
        let session = self.number()?;
        let row = params![session, thread.id.as_str(), thread.key, created_at, doc];
        changed(put.execute(row)?, || conflict(THREAD, &thread.id))
    }

    fn append_entry(&mut self, entry: &Entry, doc: &str) -> Outcome<()> {
        rules::own(self.session, &entry.session)?;
        let session = self.number()?;
        let thread = self.thread(&entry.thread)?;
        let parent = entry.parent.as_ref();
        let parent = parent.map(|parent| self.entry(parent)).transpose()?;
        let mut append = self.db.prepare_cached(
            "INSERT INTO engine_entries (session, thread, parent, id, doc)
             VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (session, id) DO NOTHING",
        )?;
        let row = params![session, thread, parent, entry.id.as_str(), doc];
        if append.execute(row)? > 0 {
            self.entry = Some((entry.id.clone(), self.db.last_insert_rowid()));
        } else if self.known_entry(&entry.id)?.1 != *entry {
            return Err(conflict(ENTRY, &entry.id).into());
        }
        Ok(())
    }

    /// An entry that is there, with its row.
    fn known_entry(&self, id: &EntryId) -> Outcome<(i64, Entry)> {
        let mut find = self.db.prepare_cached(
            "SELECT number, doc FROM engine_entries WHERE session = ?1 AND id = ?2",
        )?;
        let found = find.query_row(params![self.number()?, id.as_str()], |row| {
            Ok((row.get(0)?, row.get::<_, String>(1)?))
        });
        let (number, doc) = found.optional()?.ok_or_else(|| not_found(ENTRY, id))?;
        Ok((number, document::read(&doc)?))
    }

    fn replace_entry(&self, entry: &Entry, doc: &str) -> Outcome<()> {
        rules::own(self.session, &entry.session)?;
        let (number, before) = self.known_entry(&entry.id)?;
        rules::entry_follows(&before, entry)?;
        let mut replace = self
            .db
            .prepare_cached("UPDATE engine_entries SET doc = ?2 WHERE number = ?1")?;
        replace.execute(params![number, doc])?;
        Ok(())
    }

    fn put_item(&mut self, item: &QueueItem, asked: &[u8], doc: &str) -> Outcome<()> {
        rules::own(self.session, &item.session)?;
        let session = self.number()?;
        let thread = self.thread(&item.thread)?;
        let changes = put_item(self.db, session, thread, item, asked, doc)?;
        changed(changes, || conflict(ITEM, &item.id))
    }

    fn remove_item(&self, item: &QueueItemId) -> Outcome<()> {
        let mut remove = self
            .db
            .prepare_cached("DELETE FROM engine_queue_items WHERE session = ?1 AND id = ?2")?;
        remove.execute(params![self.number()?, item.as_str()])?;
        Ok(())
    }

    fn put_gate(&mut self, gate: &Gate, doc: &str) -> Outcome<()> {
        rules::own(self.session, &gate.origin.session)?;
        let session = self.number()?;
        if let Some((number, before)) = known_gate(self.db, &gate.id)? {
            rules::gate_follows(&before, gate)?;
            return update_gate(self.db, number, gate, doc);
        }
        self.thread(&gate.origin.thread)?;
        let mut put = self.db.prepare_cached(
            "INSERT INTO engine_decision_gates (id, session, item, pending, doc)
             VALUES (?1, ?2, ?3, ?4, ?5)",
        )?;
        let item = gate.origin.item.as_str();
        let pending = gate.status.is_pending();
        put.execute(params![gate.id.as_str(), session, item, pending, doc])?;
        Ok(())
    }

    /// A gate of this session.
    fn gate(&self, gate: &GateId) -> Outcome<i64> {
        let mut find = self.db.prepare_cached(
            "SELECT number FROM engine_decision_gates WHERE id = ?1 AND session = ?2",
        )?;
        let found = find.query_row(params![gate.as_str(), self.number()?], |row| row.get(0));
        Ok(found.optional()?.ok_or_else(|| not_found(GATE, gate))?)
    }

    fn put_gate_ref(&self, shown: &GateRef) -> Outcome<()> {
        let gate = self.gate(&shown.gate)?;
        let mut put = self.db.prepare_cached(
            "INSERT INTO engine_decision_gate_refs (gate, channel, message)
             VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
        )?;
        put.execute(params![gate, shown.channel, shown.message])?;
        Ok(())
    }

    fn put_suspended(&self, turn: &Suspended, doc: &str) -> Outcome<()> {
        rules::own(self.session, &turn.session)?;
        self.gate(&turn.gate)?;
        let mut put = self.db.prepare_cached(
            "INSERT INTO engine_suspended_turns (gate, session, doc) VALUES (?1, ?2, ?3)
             ON CONFLICT (gate) DO UPDATE SET doc = excluded.doc",
        )?;
        put.execute(params![turn.gate.as_str(), self.number()?, doc])?;
        Ok(())
    }

    fn clear_suspended(&self, gate: &GateId) -> Outcome<()> {
        let mut clear = self.db.prepare_cached(
            "DELETE FROM engine_suspended_turns WHERE gate = ?1 AND session = ?2",
        )?;
        clear.execute(params![gate.as_str(), self.number()?])?;
        Ok(())
    }

    fn add_usage(&self, usage: Usage) -> Outcome<()> {
        let session = self.number()?;
        let mut find = self
            .db
            .prepare_cached("SELECT usage FROM engine_sessions WHERE number = ?1")?;
        let before: String = find.query_row([session], |row| row.get(0))?;
        let now = document::read::<Usage>(&before)?.plus(usage);
        let mut put = self
            .db
            .prepare_cached("UPDATE engine_sessions SET usage = ?2 WHERE number = ?1")?;
        put.execute(params![session, document::write(&now)?])?;
        Ok(())
    }

    /// The number of the last event.
    fn last(&mut self) -> Outcome<i64> {
        if let Some(last) = self.last {
            return Ok(last);
        }
        let last = last(self.db, self.number()?)?;
        self.last = Some(last);
        Ok(last)
    }

    fn tell(&mut self, doc: &str) -> Outcome<()> {
        let sequence = self.last()? + 1;
        tell(self.db, self.number()?, sequence, doc)?;
        self.last = Some(sequence);
        Ok(())
    }
}

fn changed(rows: usize, otherwise: impl FnOnce() -> StoreError) -> Outcome<()> {
    match rows {
        0 => Err(otherwise().into()),
        _ => Ok(()),
    }
}

/// A thread's row.
pub(super) fn thread(db: &Connection, session: i64, id: &ThreadId) -> Outcome<i64> {
    let mut find =
        db.prepare_cached("SELECT number FROM engine_threads WHERE session = ?1 AND id = ?2")?;
    let found = find.query_row(params![session, id.as_str()], |row| row.get(0));
    Ok(found.optional()?.ok_or_else(|| not_found(THREAD, id))?)
}

/// Puts a prompt, and tells how many rows changed: none if it is another thread's.
pub(super) fn put_item(
    db: &Connection,
    session: i64,
    thread: i64,
    item: &QueueItem,
    asked: &[u8],
    doc: &str,
) -> Outcome<usize> {
    let mut put = db.prepare_cached(
        "INSERT INTO engine_queue_items (session, thread, id, status, asked, doc)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (session, id) DO UPDATE SET status = excluded.status, doc = excluded.doc
         WHERE thread = excluded.thread",
    )?;
    let status = match item.status {
        ItemStatus::Waiting => "waiting",
        ItemStatus::Running => "running",
        ItemStatus::Done => "done",
        ItemStatus::Failed => "failed",
        ItemStatus::Aborted => "aborted",
    };
    let row = params![session, thread, item.id.as_str(), status, asked, doc];
    Ok(put.execute(row)?)
}

/// A gate and its row.
pub(super) fn known_gate(db: &Connection, id: &GateId) -> Outcome<Option<(i64, Gate)>> {
    let mut find =
        db.prepare_cached("SELECT number, doc FROM engine_decision_gates WHERE id = ?1")?;
    let found = find.query_row([id.as_str()], |row| {
        Ok((row.get(0)?, row.get::<_, String>(1)?))
    });
    match found.optional()? {
        Some((number, doc)) => Ok(Some((number, document::read(&doc)?))),
        None => Ok(None),
    }
}

pub(super) fn update_gate(db: &Connection, number: i64, gate: &Gate, doc: &str) -> Outcome<()> {
    let mut update = db.prepare_cached(
        "UPDATE engine_decision_gates SET pending = ?2, doc = ?3 WHERE number = ?1",
    )?;
    update.execute(params![number, gate.status.is_pending(), doc])?;
    Ok(())
}

/// The number of a session's last event.
pub(super) fn last(db: &Connection, session: i64) -> Outcome<i64> {
    let mut find = db.prepare_cached(
        "SELECT coalesce(max(sequence), 0) FROM engine_events WHERE session = ?1",
    )?;
    Ok(find.query_row([session], |row| row.get(0))?)
}

pub(super) fn tell(db: &Connection, session: i64, sequence: i64, doc: &str) -> Outcome<()> {
    let mut tell = db
        .prepare_cached("INSERT INTO engine_events (session, sequence, doc) VALUES (?1, ?2, ?3)")?;
    tell.execute(params![session, sequence, doc])?;
    Ok(())
}
