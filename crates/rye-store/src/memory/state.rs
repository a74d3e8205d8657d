//! The state of the memory store, and how batches change it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use indexmap::IndexMap;
use lillux::Hash;
use rye_engine::store::{
    Claim, Holder, InboxMessage, Lease, PostOutcome, SessionCommand, StoreError,
};
use rye_protocol::{
    Batch, CommandId, Entry, EntryId, Event, EventKind, Gate, GateId, GateRef, Millis, Op,
    PromptId, QueuedPrompt, Session, SessionId, SessionStatus, Thread, ThreadId, ThreadStatus,
};

use crate::invariants::{
    self, ENTRY, GATE, GateOutcome, PROMPT, SESSION, THREAD, conflict, not_found,
};

/// All sessions, and the leases on them.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) sessions: IndexMap<SessionId, SessionState>,
    /// The gates of all sessions; gate ids are unique across sessions.
    pub(super) gates: IndexMap<GateId, Arc<Gate>>,
    leases: HashMap<SessionId, u64>,
    epoch: u64,
}

/// A session with its threads, entries, prompts and events.
#[derive(Debug, Clone)]
pub(super) struct SessionState {
    pub(super) session: Session,
    pub(super) threads: IndexMap<ThreadId, Arc<Thread>>,
    pub(super) entries: IndexMap<EntryId, Arc<Entry>>,
    pub(super) prompts: IndexMap<PromptId, StoredPrompt>,
    pub(super) gate_refs: Vec<GateRef>,
    pub(super) events: Vec<StoredEvent>,
    commands: IndexMap<CommandId, SessionCommand>,
}

/// A prompt with the hash of its content as first sent.
#[derive(Debug, Clone)]
pub(super) struct StoredPrompt {
    pub(super) prompt: Arc<QueuedPrompt>,
    content_hash: Hash,
}

/// An event without its session and its sequence number.
#[derive(Debug, Clone)]
pub(super) struct StoredEvent {
    thread: Option<ThreadId>,
    at: Millis,
    kind: Arc<EventKind>,
}

impl SessionState {
    fn new(session: Session) -> Self {
        Self {
            session,
            threads: IndexMap::new(),
            entries: IndexMap::new(),
            prompts: IndexMap::new(),
            gate_refs: Vec::new(),
            events: Vec::new(),
            commands: IndexMap::new(),
        }
    }

    fn check_thread(&self, thread: &ThreadId) -> Result<(), StoreError> {
        match self.threads.get(thread) {
            Some(_) => Ok(()),
            None => Err(not_found(THREAD, thread)),
        }
    }

    fn thread_with_key(&self, key: &str) -> Option<&ThreadId> {
        let mut threads = self.threads.values();
        threads.find(|it| it.key == key).map(|thread| &thread.id)
    }

    /// Creates the thread of a posted prompt, unless one with its key exists. Returns its id.
    fn ensure_thread(&mut self, thread: Thread, now: Millis) -> ThreadId {
        if let Some(existing) = self.thread_with_key(&thread.key) {
            return existing.clone();
        }
        let (id, key) = (thread.id.clone(), thread.key.clone());
        self.threads.insert(id.clone(), Arc::new(thread));
        self.push_event(
            Some(id.clone()),
            now,
            Arc::new(EventKind::ThreadStart { key }),
        );
        id
    }

    /// Events after a sequence number.
    pub(super) fn events_after(&self, after: u64) -> impl Iterator<Item = Event> {
        let skip = usize::try_from(after).unwrap_or(usize::MAX);
        let numbered = (1..).zip(&self.events).skip(skip);
        numbered.map(|(number, event)| Event {
            sequence: Some(number),
            session: self.session.id.clone(),
            thread: event.thread.clone(),
            at: event.at,
            kind: EventKind::clone(&event.kind),
        })
    }

    fn push_event(&mut self, thread: Option<ThreadId>, at: Millis, kind: Arc<EventKind>) {
        self.events.push(StoredEvent { thread, at, kind });
    }
}

impl State {
    pub(super) fn claim(&mut self, session: &SessionId, claim: Claim) -> Result<Lease, StoreError> {
        if claim == Claim::IfFree && self.leases.contains_key(session) {
            return Err(StoreError::InUse {
                session: session.clone(),
                holder: "this process".to_owned(),
            });
        }
        self.epoch += 1;
        self.leases.insert(session.clone(), self.epoch);
        Ok(Lease {
            session: session.clone(),
            epoch: self.epoch,
        })
    }

    pub(super) fn release(&mut self, lease: &Lease) {
        if self.check_lease(lease).is_ok() {
            self.leases.remove(&lease.session);
        }
    }

    pub(super) fn holders(&self, session: Option<&SessionId>) -> Vec<Holder> {
        let held = self.leases.keys();
        let held = held.filter(|held| session.is_none_or(|session| session == *held));
        let holders = held.map(|held| Holder {
            session: held.clone(),
            host: String::new(),
            process: None,
        });
        holders.collect()
    }

    fn check_lease(&self, lease: &Lease) -> Result<(), StoreError> {
        match self.leases.get(&lease.session) {
            Some(epoch) if *epoch == lease.epoch => Ok(()),
            _ => Err(StoreError::Fenced(lease.session.clone())),
        }
    }

    pub(super) fn session(&self, session: &SessionId) -> Result<&SessionState, StoreError> {
        let state = self.sessions.get(session);
        state.ok_or_else(|| not_found(SESSION, session))
    }

    fn session_mut(&mut self, session: &SessionId) -> Result<&mut SessionState, StoreError> {
        let state = self.sessions.get_mut(session);
        state.ok_or_else(|| not_found(SESSION, session))
    }

    pub(super) fn commit(
        &mut self,
        lease: &Lease,
        batch: Batch,
        now: Millis,
    ) -> Result<u64, StoreError> {
        self.check_lease(lease)?;
        let session = &lease.session;
        let before = (self.sessions.get(session).cloned(), self.gates.clone());
        let mut ops = batch.ops.into_iter();
        if let Err(error) = ops.try_for_each(|op| self.apply(session, op, now)) {
            self.gates = before.1;
            match before.0 {
                Some(state) => self.sessions.insert(session.clone(), state),
                None => self.sessions.shift_remove(session),
            };
            return Err(error);
        }
        let state = self.sessions.get(&lease.session);
        Ok(state.map_or(0, |state| state.events.len() as u64))
    }

    fn apply(&mut self, session: &SessionId, op: Op, now: Millis) -> Result<(), StoreError> {
        match op {
            Op::PutSession(new) => self.put_session(session, Arc::unwrap_or_clone(new))?,
            Op::PutThread(thread) => self.put_thread(session, thread)?,
            Op::AppendEntry(entry) => self.append_entry(session, entry)?,
            Op::ReplaceEntry(entry) => self.replace_entry(session, entry)?,
            Op::PutPrompt(prompt) => self.put_prompt(session, prompt)?,
            Op::RemovePrompt(prompt) => {
                self.session_mut(session)?.prompts.shift_remove(&prompt);
            }
            Op::PutGate(gate) => self.put_gate(session, gate)?,
            Op::PutGateRef(gate_ref) => self.put_gate_ref(session, gate_ref)?,
            Op::CompleteCommand(command) => {
                self.session_mut(session)?.commands.shift_remove(&command);
            }
            Op::AddUsage(usage) => {
                let total = &mut self.session_mut(session)?.session.usage;
                *total = total.plus(usage);
            }
            Op::ImportedEvent(event) => {
                let Event {
                    thread, at, kind, ..
                } = Arc::unwrap_or_clone(event);
                self.session_mut(session)?
                    .push_event(thread, at, Arc::new(kind));
            }
            Op::Event(thread, kind) => self.session_mut(session)?.push_event(thread, now, kind),
        }
        Ok(())
    }

    fn put_session(&mut self, session: &SessionId, mut new: Session) -> Result<(), StoreError> {
        invariants::check_session(session, &new.id)?;
        let Some(state) = self.sessions.get_mut(session) else {
            self.sessions
                .insert(session.clone(), SessionState::new(new));
            return Ok(());
        };
        if invariants::session_identity(&state.session) != invariants::session_identity(&new) {
            return Err(conflict(SESSION, &new.id));
        }
        new.usage = state.session.usage;
        state.session = new;
        Ok(())
    }

    fn put_thread(&mut self, session: &SessionId, thread: Arc<Thread>) -> Result<(), StoreError> {
        invariants::check_session(session, &thread.session)?;
        let state = self.session_mut(session)?;
        match state.threads.get(&thread.id) {
            Some(before) => invariants::check_thread_update(before, &thread)?,
            None if state.thread_with_key(&thread.key).is_some() => {
                return Err(conflict(THREAD, &thread.key));
            }
            None => {}
        }
        state.threads.insert(thread.id.clone(), thread);
        Ok(())
    }

    fn append_entry(&mut self, session: &SessionId, entry: Arc<Entry>) -> Result<(), StoreError> {
        invariants::check_session(session, &entry.session)?;
        let state = self.session_mut(session)?;
        state.check_thread(&entry.thread)?;
        if let Some(parent) = &entry.parent
            && state.entries.get(parent).is_none()
        {
            return Err(not_found(ENTRY, parent));
        }
        match state.entries.get(&entry.id) {
            Some(before) if *before == entry => return Ok(()),
            Some(_) => return Err(conflict(ENTRY, &entry.id)),
            None => {}
        }
        state.entries.insert(entry.id.clone(), entry);
        Ok(())
    }

    fn replace_entry(&mut self, session: &SessionId, entry: Arc<Entry>) -> Result<(), StoreError> {
        invariants::check_session(session, &entry.session)?;
        let state = self.session_mut(session)?;
        let before = state.entries.get(&entry.id);
        let before = before.ok_or_else(|| not_found(ENTRY, &entry.id))?;
        invariants::check_entry_update(before, &entry)?;
        state.entries.insert(entry.id.clone(), entry);
        Ok(())
    }

    fn put_prompt(
        &mut self,
        session: &SessionId,
        prompt: Arc<QueuedPrompt>,
    ) -> Result<(), StoreError> {
        invariants::check_session(session, &prompt.session)?;
        let state = self.session_mut(session)?;
        state.check_thread(&prompt.thread)?;
        let content_hash = match state.prompts.get(&prompt.id) {
            Some(before) if before.prompt.thread != prompt.thread => {
                return Err(conflict(PROMPT, &prompt.id));
            }
            Some(before) => before.content_hash,
            None => invariants::content_hash(&prompt),
        };
        state.prompts.insert(
            prompt.id.clone(),
            StoredPrompt {
                prompt,
                content_hash,
            },
        );
        Ok(())
    }

    fn put_gate(&mut self, session: &SessionId, gate: Arc<Gate>) -> Result<(), StoreError> {
        invariants::check_session(session, &gate.origin.session)?;
        let state = self.session(session)?;
        match self.gates.get(&gate.id) {
            Some(before) => invariants::check_gate_update(before, &gate)?,
            None => state.check_thread(&gate.origin.thread)?,
        }
        self.gates.insert(gate.id.clone(), gate);
        Ok(())
    }

    fn check_gate(&self, session: &SessionId, gate: &GateId) -> Result<(), StoreError> {
        match self.gates.get(gate) {
            Some(known) if known.origin.session == *session => Ok(()),
            _ => Err(not_found(GATE, gate)),
        }
    }

    fn put_gate_ref(&mut self, session: &SessionId, gate_ref: GateRef) -> Result<(), StoreError> {
        self.session(session)?;
        self.check_gate(session, &gate_ref.gate)?;
        let state = self.session_mut(session)?;
        if state.gate_refs.contains(&gate_ref) {
            return Ok(());
        }
        state.gate_refs.push(gate_ref);
        Ok(())
    }

    /// Applies a post. Also returns whether it changed anything.
    pub(super) fn post(
        &mut self,
        session: &SessionId,
        post: InboxMessage,
        now: Millis,
    ) -> Result<(PostOutcome, bool), StoreError> {
        match post {
            InboxMessage::Prompt {
                mut prompt,
                new_thread,
            } => {
                let state = self.session_mut(session)?;
                let mut sessions = new_thread.iter().map(|thread| &thread.session);
                if prompt.session != *session || sessions.any(|it| it != session) {
                    return Err(conflict(PROMPT, &prompt.id));
                }
                if let Some(thread) = &new_thread {
                    let existing = state.thread_with_key(&thread.key);
                    prompt.thread.clone_from(existing.unwrap_or(&thread.id));
                }
                let content_hash = invariants::content_hash(&prompt);
                match state.prompts.get(&prompt.id) {
                    Some(known) if known.content_hash == content_hash => {
                        return Ok((PostOutcome::Duplicate, false));
                    }
                    Some(_) => return Err(conflict(PROMPT, &prompt.id)),
                    None => {}
                }
                if let Some(thread) = new_thread {
                    state.ensure_thread(*thread, now);
                }
                state.check_thread(&prompt.thread)?;
                let prompt: Arc<QueuedPrompt> = Arc::from(prompt);
                state.prompts.insert(
                    prompt.id.clone(),
                    StoredPrompt {
                        prompt,
                        content_hash,
                    },
                );
            }
            InboxMessage::Resolve { gate, resolution } => {
                let state = self.sessions.get_mut(session);
                let state = state.ok_or_else(|| not_found(SESSION, session))?;
                let found = self.gates.get_mut(&gate);
                let found = found.filter(|found| found.origin.session == *session);
                let found = found.ok_or_else(|| not_found(GATE, &gate))?;
                match invariants::resolve_gate(found, &resolution) {
                    GateOutcome::Closes(status, event, posted) => {
                        Arc::make_mut(found).status = status;
                        let thread = found.origin.thread.clone();
                        state.push_event(Some(thread), resolution.at, Arc::from(event));
                        return Ok((posted, true));
                    }
                    GateOutcome::Unchanged(posted) => return Ok((posted, false)),
                }
            }
            InboxMessage::Command(command) => {
                let state = self.session_mut(session)?;
                if let Some(thread) = &command.thread {
                    state.check_thread(thread)?;
                }
                if state.commands.get(&command.id).is_some() {
                    return Ok((PostOutcome::Duplicate, false));
                }
                state.commands.insert(command.id.clone(), command);
            }
        }
        Ok((PostOutcome::Written, true))
    }

    /// Sessions that nobody holds and that have something to do.
    pub(super) fn due(&self, before: Millis) -> Vec<SessionId> {
        let unheld = self.sessions.iter();
        let unheld = unheld.filter(|(id, state)| {
            let is_held = self.leases.contains_key(*id);
            let is_over = matches!(
                state.session.status,
                SessionStatus::Terminated | SessionStatus::Error
            );
            !is_held && !is_over && state.session.run.is_none()
        });
        let due = unheld.filter(|(id, state)| {
            let pending =
                |gate: &&Arc<Gate>| gate.origin.session == **id && gate.status.is_pending();
            let gates: Vec<_> = self.gates.values().filter(pending).collect();
            let is_active = |thread: &ThreadId| {
                let thread = state.threads.get(thread);
                thread.is_some_and(|thread| thread.status == ThreadStatus::Active)
            };
            let open = state.prompts.values().map(|stored| &stored.prompt);
            let open = open.filter(|it| !it.status.is_finished() && is_active(&it.thread));
            let busy: BTreeSet<_> = open.map(|prompt| &prompt.thread).collect();
            let blocked: BTreeSet<_> = gates.iter().map(|gate| &gate.origin.thread).collect();
            let is_running = state.session.status == SessionStatus::Running;
            !state.commands.is_empty()
                || (is_running && busy.difference(&blocked).next().is_some())
                || gates
                    .iter()
                    .any(|gate| gate.expires_at.is_some_and(|at| at <= before))
        });
        due.map(|(id, _)| id.clone()).collect()
    }

    pub(super) fn pending_commands(
        &self,
        lease: &Lease,
    ) -> Result<Vec<SessionCommand>, StoreError> {
        self.check_lease(lease)?;
        let state = self.sessions.get(&lease.session);
        Ok(state.map_or_else(Vec::new, |state| state.commands.values().cloned().collect()))
    }

    pub(super) fn remove(&mut self, leases: &[Lease]) -> Result<(), StoreError> {
        leases
            .iter()
            .try_for_each(|lease| self.check_lease(lease))?;
        for Lease { session, .. } in leases {
            self.gates.retain(|_, gate| gate.origin.session != *session);
            self.sessions.shift_remove(session);
            self.leases.remove(session);
        }
        Ok(())
    }
}
