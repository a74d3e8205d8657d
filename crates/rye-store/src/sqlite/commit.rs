//! Commits a batch.

use lillux::Hash;
use rusqlite::{Connection, OptionalExtension, params};
use rye_engine::store::{Lease, StoreError};
use rye_protocol::{
    CommandId, Entry, EntryId, Gate, GateId, GateRef, PromptId, QueuedPrompt, Session, Thread,
    ThreadId, Usage,
};

use super::commit_cache::{CommitState, WriteConnection};
use super::error::DbResult;
use super::log::Log;
use super::threads::ThreadRow;
use super::{lease, prompts, rows, threads};
use crate::events::EventBatch;
use crate::invariants::{self, ENTRY, GATE, PROMPT, SESSION, THREAD, conflict, not_found};
use crate::json_text;
use crate::json_text::JsonText;
use crate::prepared_batch::{PreparedBatch, PreparedOp};

/// Writes a batch and returns the sequence number of the session's last event.
pub(super) fn commit(db: &WriteConnection, lease: &Lease, batch: PreparedBatch) -> DbResult<u64> {
    let mut commit = Commit {
        db,
        state: load_state(db, lease)?,
        usage: Some(batch.usage).filter(|usage| !usage.is_zero()),
        events: batch.events,
    };
    for (index, op) in batch.ops.into_iter().enumerate() {
        commit.apply(op, batch.events_op == Some(index))?;
    }
    commit.finish()?;
    let Some(log) = commit.state.log else {
        return Ok(0);
    };
    db.store_state(commit.state);
    Ok(log.sequence.cast_unsigned())
}

/// The state of the lease's session, from the cache or the database.
fn load_state(db: &WriteConnection, lease: &Lease) -> DbResult<CommitState> {
    if let Some(state) = db.take_state(lease) {
        return Ok(state);
    }
    Ok(CommitState {
        lease: lease.clone(),
        log: lease::check_lease(db, lease)?,
        thread: None,
        entry: None,
        prompt: None,
    })
}

/// A commit in progress.
struct Commit<'a> {
    db: &'a Connection,
    state: CommitState,
    /// Usage that is not written yet.
    usage: Option<Usage>,
    /// Events that are not written yet.
    events: Option<EventBatch>,
}

impl Commit<'_> {
    /// Applies one operation. `with_events` writes the events in the row of the entry.
    fn apply(&mut self, op: PreparedOp, with_events: bool) -> DbResult<()> {
        match op {
            PreparedOp::PutSession(session, doc) => self.put_session(&session, &doc),
            PreparedOp::PutThread(thread, doc) => self.put_thread(&thread, doc),
            PreparedOp::AppendEntry(entry, doc) => self.append_entry(&entry, &doc, with_events),
            PreparedOp::ReplaceEntry(entry, doc) => self.replace_entry(&entry, &doc),
            PreparedOp::PutPrompt(prompt, hash, doc) => self.put_prompt(&prompt, hash, &doc),
            PreparedOp::RemovePrompt(prompt) => self.remove_prompt(&prompt),
            PreparedOp::PutGate(gate, doc) => self.put_gate(&gate, &doc),
            PreparedOp::PutGateRef(gate_ref) => self.put_gate_ref(&gate_ref),
            PreparedOp::CompleteCommand(command) => self.complete_command(&command),
            PreparedOp::Merged => Ok(self.session_number().map(drop)?),
        }
    }

    /// Writes usage and events that no other row has taken.
    fn finish(&mut self) -> DbResult<()> {
        if let Some(usage) = self.usage.take() {
            self.add_usage(usage)?;
        }
        if let Some(thread) = &mut self.state.thread {
            thread.write(self.db)?;
        }
        if let (Some(events), Some(log)) = (self.events.take(), &mut self.state.log) {
            log.append_events(self.db, &events)?;
        }
        Ok(())
    }

    fn log(&self) -> Result<Log, StoreError> {
        let session = &self.state.lease.session;
        self.state.log.ok_or_else(|| not_found(SESSION, session))
    }

    fn session_number(&self) -> Result<i64, StoreError> {
        Ok(self.log()?.session)
    }

    /// Finds a thread and makes it the current one.
    fn find_thread(&mut self, id: &ThreadId) -> DbResult<Option<&mut ThreadRow>> {
        if self.state.thread.as_ref().is_none_or(|last| last.id != *id) {
            return match threads::find(self.db, self.session_number()?, id)? {
                Some(found) => self.set_thread(found).map(Some),
                None => Ok(None),
            };
        }
        Ok(self.state.thread.as_mut())
    }

    /// Makes a thread the current one, and writes the changes of the previous one.
    fn set_thread(&mut self, thread: ThreadRow) -> DbResult<&mut ThreadRow> {
        if let Some(mut last) = self.state.thread.take() {
            last.write(self.db)?;
        }
        Ok(self.state.thread.insert(thread))
    }

    fn thread(&mut self, id: &ThreadId) -> DbResult<&mut ThreadRow> {
        let found = self.find_thread(id)?;
        Ok(found.ok_or_else(|| not_found(THREAD, id))?)
    }

    /// The row number of an entry.
    fn entry_number(&self, id: &EntryId) -> DbResult<i64> {
        if let Some(last) = &self.state.entry
            && last.id == *id
        {
            return Ok(last.number);
        }
        let found = self.log()?.find_entry(self.db, id)?;
        Ok(found.ok_or_else(|| not_found(ENTRY, id))?)
    }

    fn put_session(&mut self, session: &Session, doc: &JsonText) -> DbResult<()> {
        invariants::check_session(&self.state.lease.session, &session.id)?;
        let mut put = self.db.prepare_cached(
            "INSERT INTO engine_sessions (id, user_id, identity, usage, doc)
             VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (id) DO UPDATE SET doc = excluded.doc WHERE identity = excluded.identity
             RETURNING number",
        )?;
        let identity = invariants::session_identity(session).to_string();
        let usage = json_text::encode(&session.usage)?;
        let row = params![session.id.as_str(), session.user_id, identity, usage, doc];
        let number = put.query_row(row, |row| row.get(0)).optional()?;
        let number = number.ok_or_else(|| conflict(SESSION, &session.id))?;
        self.state.log.get_or_insert_with(|| Log::empty(number));
        Ok(())
    }

    fn put_thread(&mut self, thread: &Thread, doc: JsonText) -> DbResult<()> {
        invariants::check_session(&self.state.lease.session, &thread.session)?;
        let (db, session, usage) = (self.db, self.session_number()?, self.usage.take());
        let row = if let Some(row) = self.find_thread(&thread.id)? {
            if !row.update(thread, doc) {
                return Err(conflict(THREAD, &thread.id).into());
            }
            row
        } else if threads::id_with_key(db, session, &thread.key)?.is_some() {
            return Err(conflict(THREAD, &thread.key).into());
        } else {
            self.set_thread(threads::insert(db, session, thread, &doc)?)?
        };
        if let Some(usage) = usage {
            row.add_usage(usage);
        }
        Ok(())
    }

    fn append_entry(&mut self, entry: &Entry, doc: &JsonText, with_events: bool) -> DbResult<()> {
        invariants::check_session(&self.state.lease.session, &entry.session)?;
        let thread = self.thread(&entry.thread)?.number;
        let parent = entry.parent.as_ref();
        let parent = parent.map(|parent| self.entry_number(parent)).transpose()?;
        let (db, mut log) = (self.db, self.log()?);
        if self.state.entry.is_none() {
            self.state.entry = log.last_entry(db)?;
        }
        let last = self.state.entry.as_ref();
        let events = self.events.as_ref().filter(|_| with_events);
        let position = (thread, parent);
        if let Some(last) = log.append_entry(db, last, position, &entry.id, (events, doc))? {
            self.state.entry = Some(last);
            self.state.log = Some(log);
            if with_events {
                self.events = None;
            }
            return Ok(());
        }
        if self.read_entry(self.entry_number(&entry.id)?)? == *entry {
            Ok(())
        } else {
            Err(conflict(ENTRY, &entry.id).into())
        }
    }

    /// Reads the entry of a row.
    fn read_entry(&self, number: i64) -> DbResult<Entry> {
        let mut query = self
            .db
            .prepare_cached("SELECT doc FROM engine_log WHERE number = ?1")?;
        let doc: String = query.query_row([number], |row| row.get(0))?;
        Ok(json_text::decode(&doc)?)
    }

    fn replace_entry(&self, entry: &Entry, doc: &JsonText) -> DbResult<()> {
        invariants::check_session(&self.state.lease.session, &entry.session)?;
        let number = self.entry_number(&entry.id)?;
        invariants::check_entry_update(&self.read_entry(number)?, entry)?;
        let mut replace = self
            .db
            .prepare_cached("UPDATE engine_log SET doc = ?2 WHERE number = ?1")?;
        replace.execute(params![number, doc])?;
        Ok(())
    }

    /// The row number of a prompt.
    fn find_prompt(&mut self, id: &PromptId) -> DbResult<Option<i64>> {
        let log = self.log()?;
        if self.state.prompt.is_none() {
            self.state.prompt = log.read_last_prompt(self.db)?;
        }
        log.find_prompt(self.db, self.state.prompt.as_ref(), id)
    }

    fn put_prompt(
        &mut self,
        prompt: &QueuedPrompt,
        hash: Option<Hash>,
        doc: &JsonText,
    ) -> DbResult<()> {
        invariants::check_session(&self.state.lease.session, &prompt.session)?;
        let (db, thread) = (self.db, self.thread(&prompt.thread)?.number);
        let number = if let Some(number) = self.find_prompt(&prompt.id)? {
            if !prompts::update(db, number, thread, doc)? {
                return Err(conflict(PROMPT, &prompt.id).into());
            }
            number
        } else {
            let hash = hash.unwrap_or_else(|| invariants::content_hash(prompt));
            let (mut log, last) = (self.log()?, self.state.prompt.as_ref());
            let texts = (&hash.as_bytes()[..], doc);
            let new = log.append_prompt(db, last, thread, prompt, texts)?;
            self.state.log = Some(log);
            self.state.prompt.insert(new).number
        };
        let open = !prompt.status.is_finished();
        self.thread(&prompt.thread)?.set_open(number, open);
        Ok(())
    }

    fn remove_prompt(&mut self, id: &PromptId) -> DbResult<()> {
        let Some(number) = self.find_prompt(id)? else {
            return Ok(());
        };
        let thread = self.log()?.remove_prompt(self.db, number, id)?;
        self.state.prompt = None;
        if let Some(mut last) = self.state.thread.take() {
            last.write(self.db)?;
        }
        threads::remove_open_prompt(self.db, thread, number)
    }

    fn put_gate(&mut self, gate: &Gate, doc: &JsonText) -> DbResult<()> {
        invariants::check_session(&self.state.lease.session, &gate.origin.session)?;
        let session = self.session_number()?;
        if let Some((number, before)) = rows::gate(self.db, &gate.id)? {
            invariants::check_gate_update(&before, gate)?;
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

    /// The row number of a gate of this session.
    fn gate_number(&self, gate: &GateId) -> DbResult<i64> {
        let mut query = self.db.prepare_cached(
            "SELECT number FROM engine_decision_gates WHERE id = ?1 AND session = ?2",
        )?;
        let found = query.query_row(params![gate.as_str(), self.session_number()?], |row| {
            row.get(0)
        });
        Ok(found.optional()?.ok_or_else(|| not_found(GATE, gate))?)
    }

    fn put_gate_ref(&self, gate_ref: &GateRef) -> DbResult<()> {
        let gate = self.gate_number(&gate_ref.gate)?;
        let mut put = self.db.prepare_cached(
            "INSERT INTO engine_decision_gate_refs (gate, channel, message)
             VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
        )?;
        put.execute(params![gate, gate_ref.channel, gate_ref.message])?;
        Ok(())
    }

    fn complete_command(&self, command: &CommandId) -> DbResult<()> {
        let mut end = self
            .db
            .prepare_cached("DELETE FROM engine_inbox WHERE session = ?1 AND id = ?2")?;
        end.execute(params![self.session_number()?, command.as_str()])?;
        Ok(())
    }

    /// Adds usage to the session itself.
    fn add_usage(&self, usage: Usage) -> DbResult<()> {
        let session = self.session_number()?;
        let mut query = self
            .db
            .prepare_cached("SELECT usage FROM engine_sessions WHERE number = ?1")?;
        let before: String = query.query_row([session], |row| row.get(0))?;
        let now = json_text::decode::<Usage>(&before)?.plus(usage);
        let mut put = self
            .db
            .prepare_cached("UPDATE engine_sessions SET usage = ?2 WHERE number = ?1")?;
        put.execute(params![session, json_text::encode(&now)?])?;
        Ok(())
    }
}
