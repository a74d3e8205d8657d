//! Rules that all session stores share: which updates are valid, and what a decision does to a
//! gate. Pure functions, so that the stores cannot diverge.

use lillux::{Hash, canonical};
use rye_engine::store::{PostOutcome, StoreError};
use rye_protocol::{
    Entry, EventKind, Gate, GateStatus, QueuedPrompt, Resolution, Session, SessionId, Thread,
};
use serde_json::{Value, json};

pub(crate) const SESSION: &str = "session";
pub(crate) const THREAD: &str = "thread";
pub(crate) const ENTRY: &str = "entry";
pub(crate) const PROMPT: &str = "prompt";
pub(crate) const GATE: &str = "gate";

pub(crate) fn not_found(kind: &'static str, id: &impl ToString) -> StoreError {
    let id = id.to_string();
    StoreError::NotFound { kind, id }
}

pub(crate) fn conflict(kind: &'static str, id: &impl ToString) -> StoreError {
    let id = id.to_string();
    StoreError::Conflict { kind, id }
}

/// Checks that an object belongs to the session of the lease.
pub(crate) fn check_session(lease: &SessionId, named: &SessionId) -> Result<(), StoreError> {
    if lease == named {
        Ok(())
    } else {
        Err(StoreError::Fenced(named.clone()))
    }
}

/// The immutable fields of a session. If they differ, a batch would overwrite one session with
/// another.
pub(crate) fn session_identity(session: &Session) -> Value {
    json!([
        session.user_id,
        session.org_id,
        session.purpose,
        session.parent,
        session.depth,
        session.created_at,
    ])
}

/// Checks that an update does not change the immutable fields of a thread.
pub(crate) fn check_thread_update(before: &Thread, now: &Thread) -> Result<(), StoreError> {
    let agrees = before.key == now.key && before.created_at == now.created_at;
    agrees
        .then_some(())
        .ok_or_else(|| conflict(THREAD, &now.id))
}

/// Checks that an update does not move an entry within the tree.
pub(crate) fn check_entry_update(before: &Entry, now: &Entry) -> Result<(), StoreError> {
    let agrees = before.thread == now.thread && before.parent == now.parent;
    agrees.then_some(()).ok_or_else(|| conflict(ENTRY, &now.id))
}

/// Checks that an update neither moves a gate nor changes a closed one.
pub(crate) fn check_gate_update(before: &Gate, now: &Gate) -> Result<(), StoreError> {
    if before.origin != now.origin {
        Err(conflict(GATE, &now.id))
    } else if before.status.is_pending() {
        Ok(())
    } else {
        Err(StoreError::GateClosed(now.id.clone()))
    }
}

/// Hash of the fields that the sender of a prompt chose. Identifies a prompt that is sent twice,
/// regardless of its progress, its position and the time of sending.
pub(crate) fn content_hash(prompt: &QueuedPrompt) -> Hash {
    let fields = (
        &prompt.thread,
        &prompt.content,
        &prompt.attachments,
        &prompt.author,
        &prompt.reply_to,
        &prompt.model,
        &prompt.role,
        &prompt.mode,
        &prompt.result_schema,
    );
    // Values that nest too deep have no canonical form; their plain JSON is a sufficient substitute.
    let text =
        canonical::to_vec(&fields).unwrap_or_else(|_| json!(fields).to_string().into_bytes());
    Hash::digest(text)
}

/// What a decision does to a gate.
#[derive(Debug, PartialEq)]
pub(crate) enum GateOutcome {
    /// Sets the status, publishes the event and returns the answer to the caller.
    Closes(GateStatus, Box<EventKind>, PostOutcome),
    /// Only returns the answer to the caller.
    Unchanged(PostOutcome),
}

/// Applies a decision: the first one wins. A decision after the deadline expires the gate, even
/// if no host was running at the deadline.
pub(crate) fn resolve_gate(gate: &Gate, resolution: &Resolution) -> GateOutcome {
    match &gate.status {
        GateStatus::Pending => match gate.expires_at {
            Some(deadline) if resolution.at >= deadline => {
                let status = GateStatus::Expired { at: deadline };
                let event = EventKind::DecisionGateExpired {
                    gate: gate.id.clone(),
                };
                GateOutcome::Closes(
                    status.clone(),
                    Box::new(event),
                    PostOutcome::GateClosed(status),
                )
            }
            _ => {
                let status = GateStatus::Resolved {
                    resolution: resolution.clone(),
                };
                let event = EventKind::DecisionGateResolved {
                    gate: gate.id.clone(),
                    resolution: resolution.clone(),
                };
                GateOutcome::Closes(status, Box::new(event), PostOutcome::Written)
            }
        },
        GateStatus::Resolved { resolution: first } if first.agrees_with(resolution) => {
            GateOutcome::Unchanged(PostOutcome::Duplicate)
        }
        GateStatus::Resolved { resolution: first } => {
            GateOutcome::Unchanged(PostOutcome::Conflict(first.clone()))
        }
        status @ (GateStatus::Withdrawn { .. } | GateStatus::Expired { .. }) => {
            GateOutcome::Unchanged(PostOutcome::GateClosed(status.clone()))
        }
    }
}
