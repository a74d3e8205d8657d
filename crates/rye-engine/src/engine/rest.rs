//! Whether anything goes on in a session before somebody decides something.

use rye_protocol::{
    CallState, Gate, Phase, PromptStatus, SessionId, SessionStatus, Thread, ThreadStatus, Turn,
};

use super::Engine;
use crate::child;
use crate::store::{SessionSnapshot, StoreError};

impl Engine {
    /// Whether nothing is under way in a session and in its tasks, and nothing will be before
    /// somebody makes a decision or asks for something. As the record says: also while what
    /// was written last is about to be told.
    pub async fn is_quiescent(&self, id: &SessionId) -> Result<bool, StoreError> {
        let mut unseen = vec![id.clone()];
        while let Some(id) = unseen.pop() {
            let Some(record) = self.inner.store.snapshot(&id).await? else {
                // A call that is no task, or one whose session is not there yet.
                return Ok(false);
            };
            if record.session.parent.is_some() && has_nothing_to_do(&record) {
                // Its call goes on: it is about to ask, or has its answer.
                return Ok(false);
            }
            match under_way(&record) {
                None => return Ok(false),
                Some(calls) => unseen.extend(calls),
            }
        }
        Ok(true)
    }
}

fn has_nothing_to_do(record: &SessionSnapshot) -> bool {
    let paused = record.session.status == SessionStatus::Paused;
    let mut threads = record.threads.iter();
    !paused && threads.all(|it| it.turn.is_none() && it.status == ThreadStatus::Active)
}

/// The sessions that calls under way would be if they are tasks, where nothing else is under
/// way; none where something is.
fn under_way(record: &SessionSnapshot) -> Option<Vec<SessionId>> {
    let mut calls = Vec::new();
    for thread in &record.threads {
        let paused =
            record.session.status == SessionStatus::Paused || thread.status != ThreadStatus::Active;
        match &thread.turn {
            None if paused => {}
            None if thread.compaction.is_some() || waits(record, thread) => return None,
            None => {}
            Some(turn) => calls.extend(of_turn(record, thread, turn, paused)?),
        }
    }
    Some(calls)
}

/// Whether a prompt is about to begin.
fn waits(record: &SessionSnapshot, thread: &Thread) -> bool {
    let mut prompts = record.prompts.iter();
    prompts.any(|prompt| prompt.thread == thread.id && prompt.status == PromptStatus::Waiting)
}

fn of_turn(
    record: &SessionSnapshot,
    thread: &Thread,
    turn: &Turn,
    paused: bool,
) -> Option<Vec<SessionId>> {
    let pending = |gate: &&Gate| gate.origin.thread == thread.id && gate.status.is_pending();
    let mut gates = record.gates.iter().filter(pending);
    let calls = match &turn.phase {
        // One that asks for more, or that begins nothing, calls no model.
        Phase::Model => return (paused || gates.next().is_some()).then(Vec::new),
        Phase::Tools { calls, .. } => calls,
    };
    let mut tasks = Vec::new();
    for call in calls {
        match &call.state {
            // One that is not begun is held back by another.
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
