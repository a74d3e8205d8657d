//! All that the memory store knows, and what a batch does to it.

use std::collections::HashMap;
use std::sync::Arc;

use lillux::Hash;
use rye_engine::store::{Claim, InboxMessage, Lease, PostOutcome, SessionCommand, StoreError};
use rye_protocol::{
    Batch, CommandId, Entry, EntryId, Event, EventKind, Gate, GateId, GateRef, Millis, Op,
    PromptId, QueuedPrompt, Session, SessionId, SuspendedTurn, Thread, ThreadId, Usage,
};

use super::shelf::{Before, Shelf};
use crate::rules::{self, ENTRY, GATE, PROMPT, SESSION, THREAD, Verdict, conflict, not_found};

#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) sessions: Shelf<SessionId, Held>,
    /// Of all sessions, since their ids are.
    pub(super) gates: Shelf<GateId, Arc<Gate>>,
    leases: HashMap<SessionId, u64>,
    epoch: u64,
}

/// A session with all that is its own.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) session: Session,
    pub(super) threads: Shelf<ThreadId, Arc<Thread>>,
    pub(super) entries: Shelf<EntryId, Arc<Entry>>,
    pub(super) prompts: Shelf<PromptId, Asked>,
    pub(super) refs: Vec<GateRef>,
    pub(super) suspended: Shelf<GateId, Arc<SuspendedTurn>>,
    pub(super) told: Vec<Told>,
    controls: Shelf<CommandId, SessionCommand>,
}

/// A prompt, and what it was when it came.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) prompt: Arc<QueuedPrompt>,
    first: Hash,
}

/// An event without what its place says.
#[derive(Debug)]
pub(super) struct Told {
    thread: Option<ThreadId>,
    at: Millis,
    kind: Arc<EventKind>,
}

/// What takes one change back.
enum Undo {
    Made,
    Session(Box<Session>),
    Thread(Before<ThreadId, Arc<Thread>>),
    Entry(Before<EntryId, Arc<Entry>>),
    Prompt(Before<PromptId, Asked>),
    Gate(Before<GateId, Arc<Gate>>),
    Ref,
    SuspendedTurn(Before<GateId, Arc<SuspendedTurn>>),
    CommandKind(Before<CommandId, SessionCommand>),
    Usage(Usage),
    Event,
}

impl Held {
    fn new(session: Session) -> Self {
        Self {
            session,
            threads: Shelf::default(),
            entries: Shelf::default(),
            prompts: Shelf::default(),
            refs: Vec::new(),
            suspended: Shelf::default(),
            told: Vec::new(),
            controls: Shelf::default(),
        }
    }

    fn has_thread(&self, thread: &ThreadId) -> Result<(), StoreError> {
        match self.threads.get(thread) {
            Some(_) => Ok(()),
            None => Err(not_found(THREAD, thread)),
        }
    }

    /// What was told behind an event of this number.
    pub(super) fn events(&self, after: u64) -> impl Iterator<Item = Event> {
        let seen = usize::try_from(after).unwrap_or(usize::MAX);
        let numbered = (1..).zip(&self.told).skip(seen);
        numbered.map(|(number, told)| Event {
            sequence: Some(number),
            session: self.session.id.clone(),
            thread: told.thread.clone(),
            at: told.at,
            kind: EventKind::clone(&told.kind),
        })
    }

    fn tell(&mut self, thread: Option<ThreadId>, at: Millis, kind: Arc<EventKind>) {
        self.told.push(Told { thread, at, kind });
    }
}

impl World {
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
        if self.holds(lease).is_ok() {
            self.leases.remove(&lease.session);
        }
    }

    fn holds(&self, lease: &Lease) -> Result<(), StoreError> {
        match self.leases.get(&lease.session) {
            Some(epoch) if *epoch == lease.epoch => Ok(()),
            _ => Err(StoreError::Fenced(lease.session.clone())),
        }
    }

    pub(super) fn held(&self, session: &SessionId) -> Result<&Held, StoreError> {
        let held = self.sessions.get(session);
        held.ok_or_else(|| not_found(SESSION, session))
    }

    fn held_mut(&mut self, session: &SessionId) -> Result<&mut Held, StoreError> {
        let held = self.sessions.get_mut(session);
        held.ok_or_else(|| not_found(SESSION, session))
    }

    pub(super) fn commit(
        &mut self,
        lease: &Lease,
        batch: Batch,
        now: Millis,
    ) -> Result<u64, StoreError> {
        self.holds(lease)?;
        let mut done = Vec::with_capacity(batch.ops.len());
        for op in batch.ops {
            match self.apply(&lease.session, op, now) {
                Ok(undo) => done.extend(undo),
                Err(error) => {
                    self.take_back(&lease.session, done);
                    return Err(error);
                }
            }
        }
        let held = self.sessions.get(&lease.session);
        Ok(held.map_or(0, |held| held.told.len() as u64))
    }

    fn apply(
        &mut self,
        session: &SessionId,
        op: Op,
        now: Millis,
    ) -> Result<Option<Undo>, StoreError> {
        let undo = match op {
            Op::PutSession(new) => self.put_session(session, Arc::unwrap_or_clone(new))?,
            Op::PutThread(thread) => self.put_thread(session, thread)?,
            Op::AppendEntry(entry) => return self.append_entry(session, entry),
            Op::ReplaceEntry(entry) => self.replace_entry(session, entry)?,
            Op::PutPrompt(prompt) => self.put_prompt(session, prompt)?,
            Op::RemovePrompt(prompt) => {
                Undo::Prompt(self.held_mut(session)?.prompts.remove(prompt))
            }
            Op::PutGate(gate) => self.put_gate(session, gate)?,
            Op::PutGateRef(shown) => return self.put_gate_ref(session, shown),
            Op::PutSuspendedTurn(turn) => self.put_suspended(session, turn)?,
            Op::RemoveSuspendedTurn(gate) => {
                Undo::SuspendedTurn(self.held_mut(session)?.suspended.remove(gate))
            }
            Op::CompleteCommand(order) => {
                Undo::CommandKind(self.held_mut(session)?.controls.remove(order))
            }
            Op::AddUsage(usage) => {
                let held = self.held_mut(session)?;
                let was = held.session.usage;
                held.session.usage = was.plus(usage);
                Undo::Usage(was)
            }
            Op::ImportedEvent(event) => {
                let Event {
                    thread, at, kind, ..
                } = Arc::unwrap_or_clone(event);
                self.held_mut(session)?.tell(thread, at, Arc::new(kind));
                Undo::Event
            }
            Op::Event(thread, kind) => {
                self.held_mut(session)?.tell(thread, now, kind);
                Undo::Event
            }
        };
        Ok(Some(undo))
    }

    fn put_session(&mut self, session: &SessionId, mut new: Session) -> Result<Undo, StoreError> {
        rules::own(session, &new.id)?;
        let Some(held) = self.sessions.get_mut(session) else {
            self.sessions.put(session.clone(), Held::new(new));
            return Ok(Undo::Made);
        };
        if rules::session_fixed(&held.session) != rules::session_fixed(&new) {
            return Err(conflict(SESSION, &new.id));
        }
        new.usage = held.session.usage;
        let was = std::mem::replace(&mut held.session, new);
        Ok(Undo::Session(Box::new(was)))
    }

    fn put_thread(&mut self, session: &SessionId, thread: Arc<Thread>) -> Result<Undo, StoreError> {
        rules::own(session, &thread.session)?;
        let held = self.held_mut(session)?;
        if let Some(before) = held.threads.get(&thread.id) {
            rules::thread_follows(before, &thread)?;
        }
        Ok(Undo::Thread(held.threads.put(thread.id.clone(), thread)))
    }

    fn append_entry(
        &mut self,
        session: &SessionId,
        entry: Arc<Entry>,
    ) -> Result<Option<Undo>, StoreError> {
        rules::own(session, &entry.session)?;
        let held = self.held_mut(session)?;
        held.has_thread(&entry.thread)?;
        if let Some(parent) = &entry.parent
            && held.entries.get(parent).is_none()
        {
            return Err(not_found(ENTRY, parent));
        }
        match held.entries.get(&entry.id) {
            Some(before) if *before == entry => return Ok(None),
            Some(_) => return Err(conflict(ENTRY, &entry.id)),
            None => {}
        }
        let before = held.entries.put(entry.id.clone(), entry);
        Ok(Some(Undo::Entry(before)))
    }

    fn replace_entry(
        &mut self,
        session: &SessionId,
        entry: Arc<Entry>,
    ) -> Result<Undo, StoreError> {
        rules::own(session, &entry.session)?;
        let held = self.held_mut(session)?;
        let before = held.entries.get(&entry.id);
        let before = before.ok_or_else(|| not_found(ENTRY, &entry.id))?;
        rules::entry_follows(before, &entry)?;
        Ok(Undo::Entry(held.entries.put(entry.id.clone(), entry)))
    }

    fn put_prompt(
        &mut self,
        session: &SessionId,
        prompt: Arc<QueuedPrompt>,
    ) -> Result<Undo, StoreError> {
        rules::own(session, &prompt.session)?;
        let held = self.held_mut(session)?;
        held.has_thread(&prompt.thread)?;
        let first = match held.prompts.get(&prompt.id) {
            Some(before) if before.prompt.thread != prompt.thread => {
                return Err(conflict(PROMPT, &prompt.id));
            }
            Some(before) => before.first,
            None => rules::asked(&prompt),
        };
        let before = held.prompts.put(prompt.id.clone(), Asked { prompt, first });
        Ok(Undo::Prompt(before))
    }

    fn put_gate(&mut self, session: &SessionId, gate: Arc<Gate>) -> Result<Undo, StoreError> {
        rules::own(session, &gate.origin.session)?;
        let held = self.held(session)?;
        match self.gates.get(&gate.id) {
            Some(before) => rules::gate_follows(before, &gate)?,
            None => held.has_thread(&gate.origin.thread)?,
        }
        Ok(Undo::Gate(self.gates.put(gate.id.clone(), gate)))
    }

    fn has_gate(&self, session: &SessionId, gate: &GateId) -> Result<(), StoreError> {
        match self.gates.get(gate) {
            Some(known) if known.origin.session == *session => Ok(()),
            _ => Err(not_found(GATE, gate)),
        }
    }

    fn put_gate_ref(
        &mut self,
        session: &SessionId,
        shown: GateRef,
    ) -> Result<Option<Undo>, StoreError> {
        self.held(session)?;
        self.has_gate(session, &shown.gate)?;
        let held = self.held_mut(session)?;
        if held.refs.contains(&shown) {
            return Ok(None);
        }
        held.refs.push(shown);
        Ok(Some(Undo::Ref))
    }

    fn put_suspended(
        &mut self,
        session: &SessionId,
        turn: Arc<SuspendedTurn>,
    ) -> Result<Undo, StoreError> {
        rules::own(session, &turn.session)?;
        self.held(session)?;
        self.has_gate(session, &turn.gate)?;
        let held = self.held_mut(session)?;
        let before = held.suspended.put(turn.gate.clone(), turn);
        Ok(Undo::SuspendedTurn(before))
    }

    fn take_back(&mut self, session: &SessionId, done: Vec<Undo>) {
        for undo in done.into_iter().rev() {
            match undo {
                Undo::Made => {
                    self.sessions.remove(session.clone());
                }
                Undo::Gate(before) => self.gates.take_back(before),
                of_session => {
                    if let Some(held) = self.sessions.get_mut(session) {
                        held.take_back(of_session);
                    }
                }
            }
        }
    }

    /// What came of a post, and whether it changed anything.
    pub(super) fn post(
        &mut self,
        session: &SessionId,
        post: InboxMessage,
    ) -> Result<(PostOutcome, bool), StoreError> {
        match post {
            InboxMessage::Prompt(prompt) => {
                let held = self.held_mut(session)?;
                if prompt.session != *session {
                    return Err(conflict(PROMPT, &prompt.id));
                }
                let first = rules::asked(&prompt);
                match held.prompts.get(&prompt.id) {
                    Some(known) if known.first == first => {
                        return Ok((PostOutcome::Duplicate, false));
                    }
                    Some(_) => return Err(conflict(PROMPT, &prompt.id)),
                    None => held.has_thread(&prompt.thread)?,
                }
                let prompt: Arc<QueuedPrompt> = Arc::from(prompt);
                held.prompts.put(prompt.id.clone(), Asked { prompt, first });
            }
            InboxMessage::Resolve { gate, resolution } => {
                let held = self.sessions.get_mut(session);
                let held = held.ok_or_else(|| not_found(SESSION, session))?;
                let found = self.gates.get_mut(&gate);
                let found = found.filter(|found| found.origin.session == *session);
                let found = found.ok_or_else(|| not_found(GATE, &gate))?;
                match rules::answer(found, &resolution) {
                    Verdict::Ends(status, told, posted) => {
                        Arc::make_mut(found).status = status;
                        let thread = found.origin.thread.clone();
                        held.tell(Some(thread), resolution.at, Arc::from(told));
                        return Ok((posted, true));
                    }
                    Verdict::Stands(posted) => return Ok((posted, false)),
                }
            }
            InboxMessage::Command(control) => {
                let held = self.held_mut(session)?;
                if let Some(thread) = &control.thread {
                    held.has_thread(thread)?;
                }
                if held.controls.get(&control.id).is_some() {
                    return Ok((PostOutcome::Duplicate, false));
                }
                held.controls.put(control.id.clone(), control);
            }
        }
        Ok((PostOutcome::Written, true))
    }

    pub(super) fn pending_commands(
        &self,
        lease: &Lease,
    ) -> Result<Vec<SessionCommand>, StoreError> {
        self.holds(lease)?;
        let held = self.sessions.get(&lease.session);
        Ok(held.map_or_else(Vec::new, |held| held.controls.values().cloned().collect()))
    }

    pub(super) fn remove(&mut self, leases: &[Lease]) -> Result<(), StoreError> {
        leases.iter().try_for_each(|lease| self.holds(lease))?;
        for Lease { session, .. } in leases {
            let gates = self.gates.values();
            let own = gates.filter(|gate| gate.origin.session == *session);
            let own: Vec<_> = own.map(|gate| gate.id.clone()).collect();
            for gate in own {
                self.gates.remove(gate);
            }
            self.sessions.remove(session.clone());
            self.leases.remove(session);
        }
        Ok(())
    }
}

impl Held {
    fn take_back(&mut self, undo: Undo) {
        match undo {
            Undo::Session(was) => self.session = *was,
            Undo::Thread(before) => self.threads.take_back(before),
            Undo::Entry(before) => self.entries.take_back(before),
            Undo::Prompt(before) => self.prompts.take_back(before),
            Undo::Ref => {
                self.refs.pop();
            }
            Undo::SuspendedTurn(before) => self.suspended.take_back(before),
            Undo::CommandKind(before) => self.controls.take_back(before),
            Undo::Usage(was) => self.session.usage = was,
            Undo::Event => {
                self.told.pop();
            }
            // The world's own.
            Undo::Made | Undo::Gate(_) => {}
        }
    }
}
