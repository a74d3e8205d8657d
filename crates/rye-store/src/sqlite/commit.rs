//! What a batch does to the database.

use lillux::Hash;
use rusqlite::{Connection, OptionalExtension, params};
use rye_engine::store::{Lease, StoreError};
use rye_protocol::{
    Entry, EntryId, Gate, GateId, GateRef, OrderId, QueueItem, Session, SessionId, Suspended,
    Thread, ThreadId, Usage,
};

use super::book::{Book, Place};
use super::changes::{Change, Changes};
use super::error::Outcome;
use super::log::{self, Log, Newest};
use super::{document, holder, rows};
use crate::rules::{self, ENTRY, GATE, ITEM, SESSION, THREAD, conflict, not_found};

/// Writes a batch and gives the number of the session's last event.
pub(super) fn commit(book: &Book, lease: &Lease, changes: Changes) -> Outcome<u64> {
    let Place {
        log, thread, entry, ..
    } = place(book, lease)?;
    let mut commit = Commit {
        db: book,
        session: &lease.session,
        log,
        thread,
        entry,
        usage: Some(changes.usage).filter(|usage| !usage.is_zero()),
        told: Vec::new(),
    };
    for change in changes.all {
        commit.apply(change)?;
    }
    if let Some(usage) = commit.usage {
        commit.add_usage(usage)?;
    }
    let Some(mut log) = commit.log else {
        return Ok(0);
    };
    log.tell(book, &commit.told)?;
    book.leave_off(Place {
        lease: lease.clone(),
        log: Some(log),
        thread: commit.thread,
        entry: commit.entry,
    });
    Ok(log.sequence.cast_unsigned())
}

/// Where a lease's last commit has left off, which is remembered or looked up.
fn place(book: &Book, lease: &Lease) -> Outcome<Place> {
    if let Some(place) = book.take_up(lease) {
        return Ok(place);
    }
    Ok(Place {
        lease: lease.clone(),
        log: holder::holds(book, lease)?,
        thread: None,
        entry: None,
    })
}

/// A commit under way.
struct Commit<'a> {
    db: &'a Connection,
    session: &'a SessionId,
    /// The session's log, once there is one.
    log: Option<Log>,
    /// As in [`Place`].
    thread: Option<(ThreadId, i64)>,
    entry: Option<Newest>,
    /// What is used up, until it is written.
    usage: Option<Usage>,
    /// What is told at the end.
    told: Vec<String>,
}

impl Commit<'_> {
    fn apply(&mut self, change: Change) -> Outcome<()> {
        match change {
            Change::PutSession(session, doc) => self.put_session(&session, &doc),
            Change::PutThread(thread, doc) => self.put_thread(&thread, &doc),
            Change::AppendEntry(entry, doc) => self.append_entry(&entry, &doc),
            Change::ReplaceEntry(entry, doc) => self.replace_entry(&entry, &doc),
            Change::PutItem(item, asked, doc) => self.put_item(&item, asked, &doc),
            Change::RemoveItem(item) => self.log()?.remove_item(self.db, &item),
            Change::PutGate(gate, doc) => self.put_gate(&gate, &doc),
            Change::PutGateRef(shown) => self.put_gate_ref(&shown),
            Change::PutSuspended(turn, doc) => self.put_suspended(&turn, &doc),
            Change::ClearSuspended(gate) => self.clear_suspended(&gate),
            Change::EndOrder(order) => self.end_order(&order),
            Change::AddUsage => Ok(self.number().map(drop)?),
            Change::Event(doc) => {
                self.number()?;
                self.told.push(doc);
                Ok(())
            }
        }
    }

    fn log(&self) -> Result<Log, StoreError> {
        self.log.ok_or_else(|| not_found(SESSION, self.session))
    }

    fn number(&self) -> Result<i64, StoreError> {
        Ok(self.log()?.session)
    }

    /// A thread's row, if there is one.
    fn known_thread(&mut self, id: &ThreadId) -> Outcome<Option<i64>> {
        if let Some((last, number)) = &self.thread
            && last == id
        {
            return Ok(Some(*number));
        }
        let found = rows::known_thread(self.db, self.number()?, id)?;
        if let Some(number) = found {
            self.thread = Some((id.clone(), number));
        }
        Ok(found)
    }

    fn thread(&mut self, id: &ThreadId) -> Outcome<i64> {
        let found = self.known_thread(id)?;
        Ok(found.ok_or_else(|| not_found(THREAD, id))?)
    }

    /// An entry's row.
    fn entry(&self, id: &EntryId) -> Outcome<i64> {
        if let Some(newest) = &self.entry
            && newest.id == *id
        {
            return Ok(newest.number);
        }
        let found = self.log()?.entry(self.db, id)?;
        Ok(found.ok_or_else(|| not_found(ENTRY, id))?)
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
        let number = number.ok_or_else(|| conflict(SESSION, &session.id))?;
        self.log.get_or_insert_with(|| Log::empty(number));
        Ok(())
    }

    fn put_thread(&mut self, thread: &Thread, doc: &str) -> Outcome<()> {
        rules::own(self.session, &thread.session)?;
        let (session, id, key) = (self.number()?, thread.id.as_str(), &thread.key);
        let created_at = thread.created_at.0.cast_signed();
        let [turns, input, cached, cache_write, output, spend] =
            rows::columns(self.usage.take().unwrap_or_default());
        let Some(number) = self.known_thread(&thread.id)? else {
            let mut insert = self.db.prepare_cached(
                "INSERT INTO engine_threads (session, id, key, created_at,
                     turns, input, cached, cache_write, output, spend, doc)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            )?;
            insert.execute(params![
                session,
                id,
                key,
                created_at,
                turns,
                input,
                cached,
                cache_write,
                output,
                spend,
                doc
            ])?;
            return Ok(());
        };
        let mut update = self.db.prepare_cached(
            "UPDATE engine_threads SET doc = ?4,
                 turns = min(turns, 9223372036854775807 - ?5) + ?5,
                 input = min(input, 9223372036854775807 - ?6) + ?6,
                 cached = min(cached, 9223372036854775807 - ?7) + ?7,
                 cache_write = min(cache_write, 9223372036854775807 - ?8) + ?8,
                 output = min(output, 9223372036854775807 - ?9) + ?9,
                 spend = min(spend, 9223372036854775807 - ?10) + ?10
             WHERE number = ?1 AND key = ?2 AND created_at = ?3",
        )?;
        let changed = update.execute(params![
            number,
            key,
            created_at,
            doc,
            turns,
            input,
            cached,
            cache_write,
            output,
            spend
        ])?;
        match changed {
            0 => Err(conflict(THREAD, &thread.id).into()),
            _ => Ok(()),
        }
    }

    fn append_entry(&mut self, entry: &Entry, doc: &str) -> Outcome<()> {
        rules::own(self.session, &entry.session)?;
        let thread = self.thread(&entry.thread)?;
        let parent = entry.parent.as_ref();
        let parent = parent.map(|parent| self.entry(parent)).transpose()?;
        let (db, mut log) = (self.db, self.log()?);
        if self.entry.is_none() {
            self.entry = log.newest(db)?;
        }
        let newest = self.entry.as_ref();
        let place = (thread, parent);
        if let Some(newest) = log.append_entry(db, newest, place, &entry.id, doc)? {
            self.entry = Some(newest);
            self.log = Some(log);
            return Ok(());
        }
        if self.known_entry(self.entry(&entry.id)?)? == *entry {
            Ok(())
        } else {
            Err(conflict(ENTRY, &entry.id).into())
        }
    }

    /// An entry that is there.
    fn known_entry(&self, number: i64) -> Outcome<Entry> {
        let mut find = self
            .db
            .prepare_cached("SELECT doc FROM engine_log WHERE number = ?1")?;
        let doc: String = find.query_row([number], |row| row.get(0))?;
        Ok(document::read(&doc)?)
    }

    fn replace_entry(&self, entry: &Entry, doc: &str) -> Outcome<()> {
        rules::own(self.session, &entry.session)?;
        let number = self.entry(&entry.id)?;
        rules::entry_follows(&self.known_entry(number)?, entry)?;
        let mut replace = self
            .db
            .prepare_cached("UPDATE engine_log SET doc = ?2 WHERE number = ?1")?;
        replace.execute(params![number, doc])?;
        Ok(())
    }

    fn put_item(&mut self, item: &QueueItem, asked: Option<Hash>, doc: &str) -> Outcome<()> {
        rules::own(self.session, &item.session)?;
        let thread = self.thread(&item.thread)?;
        let (db, mut log) = (self.db, self.log()?);
        let Some(known) = log::item(db, log.session, &item.id)? else {
            let asked = asked.unwrap_or_else(|| rules::asked(item));
            log.append_item(db, thread, item, asked.as_bytes(), doc)?;
            self.log = Some(log);
            return Ok(());
        };
        if log.update_item(db, known, thread, item, doc)? {
            Ok(())
        } else {
            Err(conflict(ITEM, &item.id).into())
        }
    }

    fn put_gate(&mut self, gate: &Gate, doc: &str) -> Outcome<()> {
        rules::own(self.session, &gate.origin.session)?;
        let session = self.number()?;
        if let Some((number, before)) = rows::gate(self.db, &gate.id)? {
            rules::gate_follows(&before, gate)?;
            return rows::update_gate(self.db, number, gate, doc);
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

    fn end_order(&self, order: &OrderId) -> Outcome<()> {
        let mut end = self
            .db
            .prepare_cached("DELETE FROM engine_inbox WHERE session = ?1 AND id = ?2")?;
        end.execute(params![self.number()?, order.as_str()])?;
        Ok(())
    }

    /// What no thread was written with.
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
}
