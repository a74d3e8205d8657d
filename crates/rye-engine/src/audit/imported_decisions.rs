//! Decisions in a record that comes from elsewhere: which of them count here.
//!
//! Whoever wrote the file could write any decision into it. One that nothing hangs on any
//! more is history; one that something would still be done by counts only if somebody who is
//! trusted here has signed it.

use std::collections::HashSet;

use lillux::keys::{PublicKey, SigningKey};
use rye_protocol::{
    Archive, CallId, EntryKind, Event, EventKind, Gate, GateId, GateStatus, Millis, Part, PromptId,
    ThreadId,
};
use serde_json::Value;

use super::{check_receipt, rows, sealed_rows};
use crate::meta_tools::APPROVE_SESSION;

/// Where a session names the gates whose decisions hold for nothing else in it.
pub(super) const DOUBTED: &str = "doubted_decisions";

/// A decision that does not count here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UntrustedDecision {
    /// At which gate.
    pub gate: GateId,
    /// Why not.
    pub reason: String,
    /// Whether it is asked again; else it is a past one, which is not taken for the answer to
    /// what the session wants later.
    pub is_reopened: bool,
}

/// Opens gates again whose decisions would be acted on and are not signed by anybody who is
/// trusted, and marks those that hold for the session.
pub(crate) fn reject_untrusted(
    archive: &mut Archive,
    key: impl Fn(&str) -> Option<PublicKey>,
    now: Millis,
) -> Vec<UntrustedDecision> {
    let doubts = doubts(archive, key);
    for gate in &mut archive.gates {
        let mut doubts = doubts.iter();
        if doubts.any(|it| it.is_reopened && it.gate == gate.id) {
            gate.status = GateStatus::Pending;
            // Who follows the session hears that it is open.
            let kind = EventKind::DecisionGate {
                gate: Box::new(gate.clone()),
            };
            let mut threads = archive.threads.iter_mut();
            if let Some(thread) = threads.find(|it| it.id == gate.origin.thread)
                && let Some(told) = rows::fold(&thread.events_hash, &kind)
            {
                thread.events_hash = told;
            }
            archive.events.push(Event {
                sequence: archive.events.last().map_or(Some(1), following),
                session: archive.session.id.clone(),
                thread: Some(gate.origin.thread.clone()),
                at: now,
                kind,
            });
        }
    }
    let past = doubts.iter().filter(|it| !it.is_reopened);
    let past: Vec<Value> = past.map(|it| it.gate.as_str().into()).collect();
    // What another machine doubted, this one has judged by itself.
    archive.session.metadata.remove(DOUBTED);
    if !past.is_empty() {
        let metadata = &mut archive.session.metadata;
        metadata.insert(DOUBTED.to_owned(), Value::Array(past));
    }
    doubts
}

/// Seals the rows that were changed by an import.
pub(crate) fn seal_changes(archive: &mut Archive, before: &Archive, now: Millis, key: &SigningKey) {
    let known = rows::of_archive(before);
    let mut changed = rows::of_archive(archive);
    changed.retain(|name, hash| known.get(name) != Some(hash));
    if changed.is_empty() {
        return;
    }
    archive.events.push(Event {
        sequence: archive.events.last().map_or(Some(1), following),
        session: archive.session.id.clone(),
        thread: None,
        at: now,
        kind: sealed_rows(&archive.session.id, changed, now, key),
    });
}

fn following(event: &Event) -> Option<u64> {
    event.sequence.map(|it| it + 1)
}

fn doubts(archive: &Archive, key: impl Fn(&str) -> Option<PublicKey>) -> Vec<UntrustedDecision> {
    let settled = Settled::of(archive);
    let mut doubts = Vec::new();
    for gate in &archive.gates {
        let GateStatus::Resolved { resolution } = &gate.status else {
            continue;
        };
        let is_reopened = !settled.has(gate);
        if !is_reopened && resolution.action != APPROVE_SESSION {
            continue;
        }
        let reason = match check_receipt(gate, resolution, &key) {
            Ok(true) => continue,
            Ok(false) => "nobody signed the decision".to_owned(),
            Err(reason) => reason,
        };
        doubts.push(UntrustedDecision {
            gate: gate.id.clone(),
            reason,
            is_reopened,
        });
    }
    doubts
}

/// Whether a decision holds for nothing else in its session.
pub(crate) fn is_untrusted(archive: &Archive, gate: &GateId) -> bool {
    let doubted = archive.session.metadata.get(DOUBTED);
    let doubted = doubted.and_then(Value::as_array);
    doubted.is_some_and(|all| all.iter().any(|it| it.as_str() == Some(gate.as_str())))
}

/// What has ended in a record.
pub(super) struct Settled<'a> {
    prompts: HashSet<&'a PromptId>,
    calls: HashSet<(&'a ThreadId, &'a CallId)>,
}

impl<'a> Settled<'a> {
    pub(super) fn of(archive: &'a Archive) -> Self {
        let turns = archive.threads.iter().filter_map(|it| it.turn.as_ref());
        let running: HashSet<_> = turns.map(|turn| &turn.prompt).collect();
        let prompts = archive.prompts.iter().filter(|it| it.status.is_finished());
        let prompts = prompts.map(|it| &it.id).filter(|it| !running.contains(it));
        let mut calls = HashSet::new();
        for entry in &archive.entries {
            let EntryKind::Message(message) = &entry.kind else {
                continue;
            };
            for part in &message.parts {
                if let Part::ToolResult { call_id, .. } = part {
                    calls.insert((&entry.thread, call_id));
                }
            }
        }
        Self {
            prompts: prompts.collect(),
            calls,
        }
    }

    /// Whether nothing more comes of what is decided at a gate: its prompt is over, or it is
    /// about a call that has a result, and about no other.
    pub(super) fn has(&self, gate: &Gate) -> bool {
        let origin = &gate.origin;
        let id = GateId::new(
            &origin.session,
            &origin.thread,
            &origin.prompt,
            &origin.resume_key,
        );
        let call = (&origin.thread, &origin.call);
        let is_over = self.prompts.contains(&origin.prompt);
        gate.id == id && (is_over || (names_its_call(gate) && self.calls.contains(&call)))
    }
}

/// Whether a gate's key is for one call alone. Any other may be asked for by the next call.
fn names_its_call(gate: &Gate) -> bool {
    let key = gate.origin.resume_key.as_str();
    let mut kinds = ["approve:", "rerun:"].into_iter();
    let rest = kinds.find_map(|kind| key.strip_prefix(kind));
    let after = rest.unwrap_or(key).strip_prefix(gate.origin.call.as_str());
    after.is_some_and(|after| after.is_empty() || after.starts_with(':'))
}
