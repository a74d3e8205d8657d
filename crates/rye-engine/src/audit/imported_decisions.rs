//! Decisions in an imported session: which of them are trusted.
//!
//! The author of the file could have written any decision into it. A decision that would still be
//! acted on needs a receipt by a trusted key; one that has no further effect is history.

use std::collections::HashSet;

use lillux::keys::{PublicKey, SigningKey};
use rye_protocol::{
    ActionId, Archive, CallId, EntryKind, Event, EventKind, Gate, GateId, GateStatus, Millis, Part,
    PromptId, ThreadId,
};

use super::{check_receipt, rows, sealed_rows};

/// A decision that is not trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UntrustedDecision {
    /// The gate that it resolved.
    pub gate: GateId,
    /// Why it is not trusted.
    pub reason: String,
    /// Whether the gate is pending again; otherwise the decision stays, but is not reused.
    pub is_reopened: bool,
}

/// Reopens gates whose untrusted decisions would still be acted on, and marks untrusted decisions
/// that would be reused in the session.
pub(crate) fn reject_untrusted(
    archive: &mut Archive,
    key: impl Fn(&str) -> Option<PublicKey>,
    now: Millis,
) -> Vec<UntrustedDecision> {
    let untrusted = untrusted_decisions(archive, key);
    for gate in &mut archive.gates {
        let mut decisions = untrusted.iter();
        if decisions.any(|it| it.is_reopened && it.gate == gate.id) {
            gate.status = GateStatus::Pending;
            // Subscribers must see that the gate is open.
            let kind = EventKind::DecisionGate {
                gate: Box::new(gate.clone()),
            };
            let mut threads = archive.threads.iter_mut();
            if let Some(thread) = threads.find(|it| it.id == gate.origin.thread)
                && let Some(hash) = rows::fold(&thread.events_hash, &kind)
            {
                thread.events_hash = hash;
            }
            archive.events.push(Event {
                sequence: archive.events.last().map_or(Some(1), next_sequence),
                session: archive.session.id.clone(),
                thread: Some(gate.origin.thread.clone()),
                at: now,
                kind,
            });
        }
    }
    let past = untrusted.iter().filter(|it| !it.is_reopened);
    // Marks from another machine are replaced by our own.
    archive.session.untrusted_decisions = past.map(|it| it.gate.clone()).collect();
    untrusted
}

/// Seals the rows that an import has changed.
pub(crate) fn seal_changes(archive: &mut Archive, before: &Archive, now: Millis, key: &SigningKey) {
    let known = rows::of_archive(before);
    let mut changed = rows::of_archive(archive);
    changed.retain(|name, hash| known.get(name) != Some(hash));
    if changed.is_empty() {
        return;
    }
    archive.events.push(Event {
        sequence: archive.events.last().map_or(Some(1), next_sequence),
        session: archive.session.id.clone(),
        thread: None,
        at: now,
        kind: sealed_rows(&archive.session.id, changed, now, key),
    });
}

fn next_sequence(event: &Event) -> Option<u64> {
    event.sequence.map(|it| it + 1)
}

fn untrusted_decisions(
    archive: &Archive,
    key: impl Fn(&str) -> Option<PublicKey>,
) -> Vec<UntrustedDecision> {
    let completed = CompletedWork::new(archive);
    let mut untrusted = Vec::new();
    for gate in &archive.gates {
        let GateStatus::Resolved { resolution } = &gate.status else {
            continue;
        };
        let is_reopened = !completed.covers(gate);
        let is_reusable = matches!(
            resolution.action,
            ActionId::ApproveSession | ActionId::ApprovePrefix
        );
        if !is_reopened && !is_reusable {
            continue;
        }
        let reason = match check_receipt(gate, resolution, &key) {
            Ok(true) => continue,
            Ok(false) => "the decision is not signed".to_owned(),
            Err(reason) => reason,
        };
        untrusted.push(UntrustedDecision {
            gate: gate.id.clone(),
            reason,
            is_reopened,
        });
    }
    untrusted
}

/// Prompts and calls of a session that have ended.
pub(super) struct CompletedWork<'a> {
    prompts: HashSet<&'a PromptId>,
    calls: HashSet<(&'a ThreadId, &'a CallId)>,
}

impl<'a> CompletedWork<'a> {
    pub(super) fn new(archive: &'a Archive) -> Self {
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

    /// Whether a gate's decision has no further effect: its prompt has ended, or the only call
    /// it is about has a result.
    pub(super) fn covers(&self, gate: &Gate) -> bool {
        let origin = &gate.origin;
        let id = GateId::new(
            &origin.session,
            &origin.thread,
            &origin.prompt,
            &origin.resume_key,
        );
        let call = (&origin.thread, &origin.call);
        let is_over = self.prompts.contains(&origin.prompt);
        gate.id == id && (is_over || (is_for_one_call(gate) && self.calls.contains(&call)))
    }
}

/// Whether a gate's key is for one call only; any other key may be used again by a later call.
fn is_for_one_call(gate: &Gate) -> bool {
    let key = gate.origin.resume_key.as_str();
    let mut kinds = ["approve:", "rerun:"].into_iter();
    let rest = kinds.find_map(|kind| key.strip_prefix(kind));
    let after = rest.unwrap_or(key).strip_prefix(gate.origin.call.as_str());
    after.is_some_and(|after| after.is_empty() || after.starts_with(':'))
}
