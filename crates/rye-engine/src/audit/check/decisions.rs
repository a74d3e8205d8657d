//! Verifies decisions against receipts, entries and events.

use std::collections::{BTreeMap, HashMap, HashSet};

use lillux::keys::{PublicKey, Signature};
use rye_protocol::{
    CallId, Entry, EntryKind, EventKind, Gate, GateId, GateStatus, Part, Resolution, ThreadId,
};
use serde_json::Value;

use super::signatures::SignedHash;
use super::{FindingKind, Verifier};
use crate::audit::imported_decisions::CompletedWork;
use crate::audit::receipt::{difference, receipt_hash};
use crate::audit::{ARGS_HASH, CHAIN_HASH, RECEIPT, question_hash};

impl<'a> Verifier<'a> {
    /// Verifies that each question in the history has its gate, unchanged. A fork shares history
    /// whose gates belong to another session.
    pub(super) fn gates(&mut self) {
        let archive = self.archive;
        let gates: HashMap<_, _> = archive.gates.iter().map(|it| (&it.id, it)).collect();
        let own = format!("gate:{}:", archive.session.id);
        for entry in &archive.entries {
            let EntryKind::DecisionGate {
                gate: id,
                title,
                question,
            } = &entry.kind
            else {
                continue;
            };
            let Some(gate) = gates.get(id) else {
                if id.as_str().starts_with(&own) {
                    let reason = "the gate is missing";
                    self.report(FindingKind::Missing, id, reason);
                }
                continue;
            };
            let differs = match question {
                Some(hash) => *hash != question_hash(gate),
                None => *title != gate.title,
            };
            if differs {
                let reason = "the question differs from the history";
                self.report(FindingKind::Altered, id, reason);
            }
        }
    }

    /// Verifies that events about gates agree with the gates.
    pub(super) fn decision_events(&mut self) {
        let archive = self.archive;
        let gates: HashMap<_, _> = archive.gates.iter().map(|it| (&it.id, it)).collect();
        let mut answers = BTreeMap::new();
        for event in &archive.events {
            match &event.kind {
                EventKind::DecisionGate { gate } => {
                    let found = gates.get(&gate.id);
                    if found.is_some_and(|it| question_hash(it) != question_hash(gate)) {
                        self.report_gate(&gate.id, "the question differs from its event");
                    }
                }
                // A decision can be repeated after an import; the last one counts.
                EventKind::DecisionGateResolved { gate, resolution } => {
                    answers.insert(gate, resolution);
                }
                _ => {}
            }
        }
        for (id, expected) in answers {
            if let Some(gate) = gates.get(id)
                && let GateStatus::Resolved { resolution } = &gate.status
                && resolution != expected
            {
                self.report_gate(id, "the answer differs from its event");
            }
        }
    }

    /// Reports an altered gate, unless it already has a finding.
    fn report_gate(&mut self, gate: &GateId, reason: &str) {
        let mut findings = self.verdict.findings.iter();
        if !findings.any(|finding| finding.location == gate.as_str()) {
            self.report(FindingKind::Altered, gate, reason);
        }
    }

    /// Verifies the receipts, and that exactly what was approved was run.
    pub(super) fn receipts(&mut self) {
        let completed = CompletedWork::new(self.archive);
        let recorded = self.recorded_gates();
        // Of several gates of a call, the last one counts.
        let mut gates_by_call: HashMap<_, &Gate> = HashMap::new();
        for gate in &self.archive.gates {
            if gate.context.contains_key(CHAIN_HASH) {
                gates_by_call.insert((&gate.origin.thread, &gate.origin.call), gate);
            }
            let GateStatus::Resolved { resolution } = &gate.status else {
                continue;
            };
            let Some(receipt) = &resolution.receipt else {
                let needs_receipt =
                    gate.context.contains_key(CHAIN_HASH) || recorded.contains(&gate.id);
                if needs_receipt || !completed.covers(gate) {
                    self.report(
                        FindingKind::Signature,
                        &gate.id,
                        "the decision is not signed",
                    );
                }
                continue;
            };
            self.verdict.receipts += 1;
            let wrong = self.signatures(&[SignedHash {
                purpose: RECEIPT,
                hash: receipt_hash(receipt),
                key: &receipt.key,
                signature: &receipt.signature,
            }]);
            for wrong in wrong {
                self.report_problem(wrong, &gate.id);
            }
            if let Some(reason) = difference(gate, resolution, receipt) {
                self.report_gate(&gate.id, reason);
            }
        }
        for (call, chain, args) in executed_calls(&self.archive.entries) {
            if let Some(gate) = gates_by_call.get(&call)
                && let Some(reason) = deviation_from_approval(gate, chain, args)
            {
                self.report(FindingKind::Altered, &gate.id, reason);
            }
        }
    }

    /// Gates whose question is part of the history; a session that is sealed signs its decisions
    /// too.
    fn recorded_gates(&self) -> HashSet<&'a GateId> {
        if self.verdict.seals == 0 {
            return HashSet::new();
        }
        let entries = self.archive.entries.iter();
        let questions = entries.filter_map(|entry| match &entry.kind {
            EntryKind::DecisionGate { gate, question, .. } if question.is_some() => Some(gate),
            _ => None,
        });
        questions.collect()
    }
}

/// How the executed call differs from the approved one.
fn deviation_from_approval(gate: &Gate, chain: &str, args: Option<&str>) -> Option<String> {
    let resolution = match &gate.status {
        GateStatus::Resolved { resolution } if resolution.action.is_approval() => resolution,
        _ => return Some(format!("{chain} ran without approval")),
    };
    // A missing receipt is reported elsewhere.
    let receipt = resolution.receipt.as_ref()?;
    let hash = receipt.chain_hash.as_deref().unwrap_or_default();
    if hash != chain {
        return Some(format!("{hash} was approved, but {chain} ran"));
    }
    let other = args.is_some() && receipt.args_hash.as_deref() != args;
    other.then(|| "it ran with other arguments than the approved ones".to_owned())
}

/// Whether a decision has a valid receipt; the error says what is wrong with it. `key` returns
/// the public key of a fingerprint if it is trusted.
pub fn check_receipt(
    gate: &Gate,
    resolution: &Resolution,
    key: impl Fn(&str) -> Option<PublicKey>,
) -> Result<bool, String> {
    let Some(receipt) = &resolution.receipt else {
        return Ok(false);
    };
    let public = key(&receipt.key).ok_or_else(|| {
        format!(
            "the decision is signed by {}, which is not trusted",
            receipt.key
        )
    })?;
    let signature = receipt.signature.parse::<Signature>();
    let hash = receipt_hash(receipt);
    let is_signed = signature.is_ok_and(|it| public.verify_for(RECEIPT, &hash, &it).is_ok());
    match difference(gate, resolution, receipt) {
        None if is_signed => Ok(true),
        None => Err("the receipt is for another decision".to_owned()),
        Some(reason) => Err(reason.to_owned()),
    }
}

/// The chain hash and argument hash of each executed call.
fn executed_calls(entries: &[Entry]) -> Vec<((&ThreadId, &CallId), &str, Option<&str>)> {
    let mut calls = Vec::new();
    for entry in entries {
        let EntryKind::Message(message) = &entry.kind else {
            continue;
        };
        for part in &message.parts {
            if let Part::ToolResult { call_id, data, .. } = part
                && let Some(hash) = data.get(CHAIN_HASH).and_then(Value::as_str)
            {
                let args = data.get(ARGS_HASH).and_then(Value::as_str);
                calls.push(((&entry.thread, call_id), hash, args));
            }
        }
    }
    calls
}
