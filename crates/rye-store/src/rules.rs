//! What holds in every store: what may follow what, and what an answer at a gate does.
//! Pure, so that two stores cannot come to differ in it.

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

/// A lease is for one session; with it, no other one is written.
pub(crate) fn own(lease: &SessionId, named: &SessionId) -> Result<(), StoreError> {
    if lease == named {
        Ok(())
    } else {
        Err(StoreError::Fenced(named.clone()))
    }
}

/// A session is made once. Whoever writes it with another owner, parent or time of making
/// is about to make a second one over it.
pub(crate) fn session_fixed(session: &Session) -> Value {
    json!([
        session.user_id,
        session.org_id,
        session.purpose,
        session.parent,
        session.depth,
        session.created_at,
    ])
}

/// So is a thread.
pub(crate) fn thread_follows(before: &Thread, now: &Thread) -> Result<(), StoreError> {
    let agrees = before.key == now.key && before.created_at == now.created_at;
    agrees
        .then_some(())
        .ok_or_else(|| conflict(THREAD, &now.id))
}

/// What an entry says may be replaced, but never its place in the graph.
pub(crate) fn entry_follows(before: &Entry, now: &Entry) -> Result<(), StoreError> {
    let agrees = before.thread == now.thread && before.parent == now.parent;
    agrees.then_some(()).ok_or_else(|| conflict(ENTRY, &now.id))
}

/// A gate stays where it is, and one that has ended stays as it is.
pub(crate) fn gate_follows(before: &Gate, now: &Gate) -> Result<(), StoreError> {
    if before.origin != now.origin {
        Err(conflict(GATE, &now.id))
    } else if before.status.is_pending() {
        Ok(())
    } else {
        Err(StoreError::GateClosed(now.id.clone()))
    }
}

/// What was asked, in a hash: the same prompt sent again has the same one, whatever has
/// become of it since, and whenever and in which place it was sent.
pub(crate) fn asked(prompt: &QueuedPrompt) -> Hash {
    let fixed = (
        &prompt.thread,
        &prompt.content,
        &prompt.attachments,
        &prompt.author,
        &prompt.reply_to,
        &prompt.model,
        &prompt.role,
        &prompt.mode,
        &prompt.metadata,
    );
    // A plain text is written the same either way.
    let is_plain =
        prompt.attachments.is_empty() && prompt.author.is_none() && prompt.metadata.is_empty();
    if is_plain
        && let Ok(text) = serde_json::to_vec(&fixed)
        && text.iter().all(|byte| matches!(byte, b' '..=b'~'))
    {
        return Hash::digest(text);
    }
    // What has no canonical form (it nests too deep) is still the same when it is
    // written the same.
    let text = canonical::to_vec(&fixed).unwrap_or_else(|_| json!(fixed).to_string().into_bytes());
    Hash::digest(text)
}

/// What an answer does at a gate.
#[derive(Debug, PartialEq)]
pub(crate) enum Verdict {
    /// The gate ends so, and this is told.
    Ends(GateStatus, Box<EventKind>, PostOutcome),
    /// Nothing.
    Stands(PostOutcome),
}

/// The first answer wins. One that comes after the deadline finds the gate expired, also
/// when nobody was there to see it expire.
pub(crate) fn answer(gate: &Gate, resolution: &Resolution) -> Verdict {
    match &gate.status {
        GateStatus::Pending => match gate.expires_at {
            Some(deadline) if resolution.at >= deadline => {
                let status = GateStatus::Expired { at: deadline };
                let told = EventKind::DecisionGateExpired {
                    gate: gate.id.clone(),
                };
                Verdict::Ends(
                    status.clone(),
                    Box::new(told),
                    PostOutcome::GateClosed(status),
                )
            }
            _ => {
                let status = GateStatus::Resolved {
                    resolution: resolution.clone(),
                };
                let told = EventKind::DecisionGateResolved {
                    gate: gate.id.clone(),
                    resolution: resolution.clone(),
                };
                Verdict::Ends(status, Box::new(told), PostOutcome::Written)
            }
        },
        GateStatus::Resolved { resolution: first } if first.agrees_with(resolution) => {
            Verdict::Stands(PostOutcome::Duplicate)
        }
        GateStatus::Resolved { resolution: first } => {
            Verdict::Stands(PostOutcome::Conflict(first.clone()))
        }
        over @ (GateStatus::Withdrawn { .. } | GateStatus::Expired { .. }) => {
            Verdict::Stands(PostOutcome::GateClosed(over.clone()))
        }
    }
}

#[cfg(test)]
mod tests {
    use rye_protocol::{PromptId, QueueMode};

    use super::*;

    /// What was written before is compared with what is asked now: both ways must agree.
    #[test]
    fn a_plain_text_has_the_hash_of_its_canonical_form() {
        for content in [
            "look at it",
            "a \"b\" \\ 1.0 {x:1}",
            "tab\there",
            "né",
            "\u{7f}",
        ] {
            let prompt: QueuedPrompt = serde_json::from_value(json!({
                "id": PromptId::new(), "session": "s", "thread": "t", "order": 1,
                "content": content, "mode": QueueMode::Steer, "status": "waiting",
                "created_at": 0,
            }))
            .unwrap();
            let fixed = json!([
                "t",
                content,
                [],
                null,
                null,
                null,
                null,
                QueueMode::Steer,
                {}
            ]);
            let text = canonical::to_vec(&fixed).unwrap();
            assert_eq!(asked(&prompt), Hash::digest(text), "{content:?}");
        }
    }
}
