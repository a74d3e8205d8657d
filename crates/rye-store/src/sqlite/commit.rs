//! What a batch does to the database.

use lillux::Hash;
use rusqlite::{Connection, OptionalExtension, params};
use rye_engine::store::{Lease, StoreError};
use rye_protocol::{
    CommandId, Entry, EntryId, Gate, GateId, GateRef, PromptId, QueuedPrompt, Session,
    SuspendedTurn, Thread, ThreadId, Usage,
};

use super::book::{Book, Place};
use super::changes::{Change, Changes};
use super::document::Text;
use super::error::Outcome;
use super::log::Log;
use super::news::News;
use super::threads::Known;
use super::{document, holder, prompts, rows, threads};
use crate::rules::{self, ENTRY, GATE, PROMPT, SESSION, THREAD, conflict, not_found};

/// Writes a batch and gives the number of the session's last event.
pub(super) fn commit(book: &Book, lease: &Lease, changes: Changes) -> Outcome<u64> {
    let mut commit = Commit {
        db: book,
        place: place(book, lease)?,
        usage: Some(changes.usage).filter(|usage| !usage.is_zero()),
        news: changes.news,
    };
    for (at, change) in changes.all.into_iter().enumerate() {
        commit.apply(change, changes.bearer == Some(at))?;
    }
    commit.finish()?;
    let Some(log) = commit.place.log else {
        return Ok(0);
    };
    book.leave_off(commit.place);
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
        prompt: None,
    })
}

/// A commit under way.
struct Commit<'a> {
    db: &'a Connection,
    place: Place,
    /// What is used up, until it is written.
    usage: Option<Usage>,
    /// What is told, until it is written.
    news: Option<News>,
}

impl Commit<'_> {
    /// Makes a change; an entry that is the `bearer` has with it what is told.
    fn apply(&mut self, change: Change, bearer: bool) -> Outcome<()> {
        match change {
            Change::PutSession(session, doc) => self.put_session(&session, &doc),
            Change::PutThread(thread, doc) => self.put_thread(&thread, doc),
            Change::AppendEntry(entry, doc) => self.append_entry(&entry, &doc, bearer),
            Change::ReplaceEntry(entry, doc) => self.replace_entry(&entry, &doc),
            Change::PutPrompt(prompt, asked, doc) => self.put_prompt(&prompt, asked, &doc),
            Change::RemovePrompt(prompt) => self.remove_prompt(&prompt),
            Change::PutGate(gate, doc) => self.put_gate(&gate, &doc),
            Change::PutGateRef(shown) => self.put_gate_ref(&shown),
            Change::PutSuspendedTurn(turn, doc) => self.put_suspended(&turn, &doc),
            Change::RemoveSuspendedTurn(gate) => self.clear_suspended(&gate),
            Change::CompleteCommand(order) => self.end_order(&order),
            Change::Together => Ok(self.number().map(drop)?),
        }
    }

    /// Writes what was written with nothing else.
    fn finish(&mut self) -> Outcome<()> {
        if let Some(usage) = self.usage.take() {
            self.add_usage(usage)?;
        }
        if let Some(thread) = &mut self.place.thread {
            thread.write(self.db)?;
        }
        if let (Some(news), Some(log)) = (self.news.take(), &mut self.place.log) {
            log.tell(self.db, &news)?;
        }
        Ok(())
    }

    fn log(&self) -> Result<Log, StoreError> {
        let session = &self.place.lease.session;
        self.place.log.ok_or_else(|| not_found(SESSION, session))
    }

    fn number(&self) -> Result<i64, StoreError> {
        Ok(self.log()?.session)
    }

    /// A thread, if there is one.
    fn known_thread(&mut self, id: &ThreadId) -> Outcome<Option<&mut Known>> {
        if self.place.thread.as_ref().is_none_or(|last| last.id != *id) {
            return match threads::known(self.db, self.number()?, id)? {
                Some(found) => self.remember(found).map(Some),
                None => Ok(None),
            };
        }
        Ok(self.place.thread.as_mut())
    }

    /// Goes on with another thread; what was put of the last is written.
    fn remember(&mut self, thread: Known) -> Outcome<&mut Known> {
        if let Some(mut last) = self.place.thread.take() {
            last.write(self.db)?;
        }
        Ok(self.place.thread.insert(thread))
    }

    fn thread(&mut self, id: &ThreadId) -> Outcome<&mut Known> {
        let found = self.known_thread(id)?;
        Ok(found.ok_or_else(|| not_found(THREAD, id))?)
    }

    /// An entry's row.
    fn entry(&self, id: &EntryId) -> Outcome<i64> {
        if let Some(newest) = &self.place.entry
            && newest.id == *id
        {
            return Ok(newest.number);
        }
        let found = self.log()?.entry(self.db, id)?;
        Ok(found.ok_or_else(|| not_found(ENTRY, id))?)
    }

    fn put_session(&mut self, session: &Session, doc: &Text) -> Outcome<()> {
        rules::own(&self.place.lease.session, &session.id)?;
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
        self.place.log.get_or_insert_with(|| Log::empty(number));
        Ok(())
    }

    fn put_thread(&mut self, thread: &Thread, doc: Text) -> Outcome<()> {
        rules::own(&self.place.lease.session, &thread.session)?;
        let (db, session, usage) = (self.db, self.number()?, self.usage.take());
        let known = if let Some(known) = self.known_thread(&thread.id)? {
            if !known.put(thread, doc) {
                return Err(conflict(THREAD, &thread.id).into());
            }
            known
        } else {
            self.remember(threads::insert(db, session, thread, &doc)?)?
        };
        if let Some(usage) = usage {
            known.add(usage);
        }
        Ok(())
    }

    fn append_entry(&mut self, entry: &Entry, doc: &Text, bearer: bool) -> Outcome<()> {
        rules::own(&self.place.lease.session, &entry.session)?;
        let thread = self.thread(&entry.thread)?.number;
        let parent = entry.parent.as_ref();
        let parent = parent.map(|parent| self.entry(parent)).transpose()?;
        let (db, mut log) = (self.db, self.log()?);
        if self.place.entry.is_none() {
            self.place.entry = log.newest(db)?;
        }
        let newest = self.place.entry.as_ref();
        let news = self.news.as_ref().filter(|_| bearer);
        let place = (thread, parent);
        if let Some(newest) = log.append_entry(db, newest, place, &entry.id, (news, doc))? {
            self.place.entry = Some(newest);
            self.place.log = Some(log);
            if bearer {
                self.news = None;
            }
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

    fn replace_entry(&self, entry: &Entry, doc: &Text) -> Outcome<()> {
        rules::own(&self.place.lease.session, &entry.session)?;
        let number = self.entry(&entry.id)?;
        rules::entry_follows(&self.known_entry(number)?, entry)?;
        let mut replace = self
            .db
            .prepare_cached("UPDATE engine_log SET doc = ?2 WHERE number = ?1")?;
        replace.execute(params![number, doc])?;
        Ok(())
    }

    /// A prompt's row, if there is one.
    fn prompt(&mut self, id: &PromptId) -> Outcome<Option<i64>> {
        let log = self.log()?;
        if self.place.prompt.is_none() {
            self.place.prompt = log.last_prompt(self.db)?;
        }
        log.prompt(self.db, self.place.prompt.as_ref(), id)
    }

    fn put_prompt(
        &mut self,
        prompt: &QueuedPrompt,
        asked: Option<Hash>,
        doc: &Text,
    ) -> Outcome<()> {
        rules::own(&self.place.lease.session, &prompt.session)?;
        let (db, thread) = (self.db, self.thread(&prompt.thread)?.number);
        let number = if let Some(number) = self.prompt(&prompt.id)? {
            if !prompts::update(db, number, thread, doc)? {
                return Err(conflict(PROMPT, &prompt.id).into());
            }
            number
        } else {
            let asked = asked.unwrap_or_else(|| rules::asked(prompt));
            let (mut log, last) = (self.log()?, self.place.prompt.as_ref());
            let texts = (&asked.as_bytes()[..], doc);
            let new = log.append_prompt(db, last, thread, prompt, texts)?;
            self.place.log = Some(log);
            self.place.prompt.insert(new).number
        };
        let open = !prompt.status.is_finished();
        self.thread(&prompt.thread)?.keep(number, open);
        Ok(())
    }

    fn remove_prompt(&mut self, id: &PromptId) -> Outcome<()> {
        let Some(number) = self.prompt(id)? else {
            return Ok(());
        };
        let thread = self.log()?.remove_prompt(self.db, number, id)?;
        self.place.prompt = None;
        if let Some(mut last) = self.place.thread.take() {
            last.write(self.db)?;
        }
        threads::close(self.db, thread, number)
    }

    fn put_gate(&mut self, gate: &Gate, doc: &Text) -> Outcome<()> {
        rules::own(&self.place.lease.session, &gate.origin.session)?;
        let session = self.number()?;
        if let Some((number, before)) = rows::gate(self.db, &gate.id)? {
            rules::gate_follows(&before, gate)?;
            return rows::update_gate(self.db, number, gate, doc);
        }
        self.thread(&gate.origin.thread)?;
        let mut put = self.db.prepare_cached(
            "INSERT INTO engine_decision_gates (id, session, prompt, pending, doc)
             VALUES (?1, ?2, ?3, ?4, ?5)",
        )?;
        let prompt = gate.origin.prompt.as_str();
        let pending = gate.status.is_pending();
        put.execute(params![gate.id.as_str(), session, prompt, pending, doc])?;
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

    fn put_suspended(&self, turn: &SuspendedTurn, doc: &Text) -> Outcome<()> {
        rules::own(&self.place.lease.session, &turn.session)?;
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

    fn end_order(&self, order: &CommandId) -> Outcome<()> {
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
