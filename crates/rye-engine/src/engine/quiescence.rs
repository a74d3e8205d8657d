//! Quiescence: is the session blocked on user input?

use rye_protocol::{
    CallState, Gate, Phase, PromptStatus, SessionId, SessionStatus, Thread, ThreadStatus, Turn,
};

use super::Engine;
use crate::child;
use crate::sandbox::FileAccess;
use crate::store::{SessionSnapshot, StoreError};

impl Engine {
    /// Whether a session and its tasks do nothing, and will do nothing before a decision or a
    /// prompt. Decided from the store, so it may be true before the last event is published.
    pub async fn is_quiescent(&self, id: &SessionId) -> Result<bool, StoreError> {
        let mut unvisited = vec![id.clone()];
        while let Some(id) = unvisited.pop() {
            let Some(record) = self.inner.store.snapshot(&id).await? else {
                // A call that is not a task, or whose session does not exist yet.
                return Ok(false);
            };
            if record.session.parent.is_some() && is_idle(&record) {
                // Its call still runs: it is about to prompt, or has just been answered.
                return Ok(false);
            }
            match blocked_tasks(&record) {
                None => return Ok(false),
                Some(calls) => unvisited.extend(calls),
            }
        }
        Ok(true)
    }

    /// Closes a session that this process holds if nothing runs or waits in it, so that another
    /// process can open it. Returns whether this process does not hold it any more. A session whose
    /// files are in memory stays open.
    pub async fn release_if_idle(&self, id: &SessionId) -> Result<bool, StoreError> {
        let Some(open) = self.session(id) else {
            return Ok(true);
        };
        let is_in_memory = open.sandbox().confinement().files == FileAccess::Memory;
        if is_in_memory || !open.shared().background.lock().is_empty() {
            return Ok(false);
        }
        let Some(record) = self.inner.store.snapshot(id).await? else {
            return Ok(false);
        };
        let is_compacting = record.threads.iter().any(|it| it.compaction.is_some());
        if !is_idle(&record) || is_compacting || !record.prompts.is_empty() {
            return Ok(false);
        }
        // What is posted meanwhile stays in the store and opens the session again.
        open.close().await?;
        Ok(true)
    }
}

/// Whether no thread has a turn or is paused.
fn is_idle(record: &SessionSnapshot) -> bool {
    let paused = record.session.status == SessionStatus::Paused;
    let mut threads = record.threads.iter();
    !paused && threads.all(|it| it.turn.is_none() && it.status == ThreadStatus::Active)
}

/// The ids of possible child sessions of running calls if nothing else runs; `None` if something
/// does.
fn blocked_tasks(record: &SessionSnapshot) -> Option<Vec<SessionId>> {
    let mut calls = Vec::new();
    for thread in &record.threads {
        let paused =
            record.session.status == SessionStatus::Paused || thread.status != ThreadStatus::Active;
        match &thread.turn {
            None if paused => {}
            None if thread.compaction.is_some() || has_waiting_prompt(record, thread) => {
                return None;
            }
            None => {}
            Some(turn) => calls.extend(blocked_calls(record, thread, turn, paused)?),
        }
    }
    Some(calls)
}

/// Whether a thread has a waiting prompt.
fn has_waiting_prompt(record: &SessionSnapshot, thread: &Thread) -> bool {
    let mut prompts = record.prompts.iter();
    prompts.any(|prompt| prompt.thread == thread.id && prompt.status == PromptStatus::Waiting)
}

/// The ids of possible child sessions of a turn; `None` if the turn is active.
fn blocked_calls(
    record: &SessionSnapshot,
    thread: &Thread,
    turn: &Turn,
    paused: bool,
) -> Option<Vec<SessionId>> {
    let pending = |gate: &&Gate| gate.origin.thread == thread.id && gate.status.is_pending();
    let mut gates = record.gates.iter().filter(pending);
    let calls = match &turn.phase {
        // A turn at a limit gate, or a paused one, calls no model.
        Phase::Model => return (paused || gates.next().is_some()).then(Vec::new),
        Phase::Tools { calls, .. } => calls,
    };
    let mut tasks = Vec::new();
    for call in calls {
        match &call.state {
            // A requested call is held back by another one.
            CallState::Ended | CallState::Requested => {}
            CallState::Started => {
                tasks.push(child::id(
                    &thread.session,
                    &thread.id,
                    &turn.prompt,
                    &call.id,
                ));
            }
            CallState::Blocked { gate } => {
                let mut gates = record.gates.iter().filter(pending);
                gates.find(|it| it.id == *gate)?;
            }
        }
    }
    let ended = |state: &CallState| *state == CallState::Ended;
    let all_ended = calls.iter().all(|call| ended(&call.state));
    (paused || !all_ended).then_some(tasks)
}
