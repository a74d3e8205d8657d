//! Whether decisions are as they were signed.

use std::collections::{BTreeMap, HashMap, HashSet};

use lillux::keys::{PublicKey, Signature};
use rye_protocol::{
    CallId, Entry, EntryKind, EventKind, Gate, GateId, GateStatus, Part, Resolution, ThreadId,
};
use serde_json::Value;

use super::signatures::Signed;
use super::{Check, FindingKind};
use crate::audit::imported_decisions::Settled;
use crate::audit::receipt::{difference, receipt_hash};
use crate::audit::{ARGS_HASH, CHAIN_HASH, RECEIPT, question_hash};

impl<'a> Check<'a> {
    /// Each question that was asked is there, as it was asked. A branch shares the history of
    /// another session, which has the gates.
    pub(super) fn gates(&mut self) {
        let archive = self.archive;
        let there: HashMap<_, _> = archive.gates.iter().map(|it| (&it.id, it)).collect();
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
            let Some(gate) = there.get(id) else {
                if id.as_str().starts_with(&own) {
                    let why = "it was asked, and what was decided is not there";
                    self.report(FindingKind::Missing, id, why);
                }
                continue;
            };
            let is_other = match question {
                Some(hash) => *hash != question_hash(gate),
                None => *title != gate.title,
            };
            if is_other {
                let why = "it is not the question that was asked";
                self.report(FindingKind::Altered, id, why);
            }
        }
    }

    /// What was told of questions and answers is what they are.
    pub(super) fn told(&mut self) {
        let archive = self.archive;
        let there: HashMap<_, _> = archive.gates.iter().map(|it| (&it.id, it)).collect();
        let mut answers = BTreeMap::new();
        for event in &archive.events {
            match &event.kind {
                EventKind::DecisionGate { gate } => {
                    let found = there.get(&gate.id);
                    if found.is_some_and(|it| question_hash(it) != question_hash(gate)) {
                        self.doubt(&gate.id, "it is not the question that was told of");
                    }
                }
                // One that was not counted elsewhere is given again: the last one holds.
                EventKind::DecisionGateResolved { gate, resolution } => {
                    answers.insert(gate, resolution);
                }
                _ => {}
            }
        }
        for (id, told) in answers {
            if let Some(gate) = there.get(id)
                && let GateStatus::Resolved { resolution } = &gate.status
                && resolution != told
            {
                self.doubt(id, "it is not the answer that was told of");
            }
        }
    }

    /// A gate is altered, unless it is known that something is wrong with it.
    fn doubt(&mut self, gate: &GateId, why: &str) {
        let mut findings = self.verdict.findings.iter();
        if !findings.any(|finding| finding.location == gate.as_str()) {
            self.report(FindingKind::Altered, gate, why);
        }
    }

    /// What was decided is what was signed, and what was approved is what ran.
    pub(super) fn receipts(&mut self) {
        let settled = Settled::of(self.archive);
        let proven = self.proven();
        // Of several questions about a call, the last one counts.
        let mut asked: HashMap<_, &Gate> = HashMap::new();
        for gate in &self.archive.gates {
            if gate.context.contains_key(CHAIN_HASH) {
                asked.insert((&gate.origin.thread, &gate.origin.call), gate);
            }
            let GateStatus::Resolved { resolution } = &gate.status else {
                continue;
            };
            let Some(receipt) = &resolution.receipt else {
                let wants = gate.context.contains_key(CHAIN_HASH) || proven.contains(&gate.id);
                if wants || !settled.has(gate) {
                    self.report(
                        FindingKind::Signature,
                        &gate.id,
                        "nobody signed the decision",
                    );
                }
                continue;
            };
            self.verdict.receipts += 1;
            let wrong = self.signatures(&[Signed {
                purpose: RECEIPT,
                hash: receipt_hash(receipt),
                key: &receipt.key,
                signature: &receipt.signature,
            }]);
            for wrong in wrong {
                self.note(wrong, &gate.id);
            }
            if let Some(why) = difference(gate, resolution, receipt) {
                self.doubt(&gate.id, why);
            }
        }
        for (call, chain, args) in ran(&self.archive.entries) {
            if let Some(gate) = asked.get(&call)
                && let Some(why) = other_than_approved(gate, chain, args)
            {
                self.report(FindingKind::Altered, &gate.id, why);
            }
        }
    }

    /// The gates whose questions are in a history that somebody signed: whoever signs it signs
    /// the decisions too.
    fn proven(&self) -> HashSet<&'a GateId> {
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

/// In what way something ran that was not approved at the gate.
fn other_than_approved(gate: &Gate, chain: &str, args: Option<&str>) -> Option<String> {
    let resolution = match &gate.status {
        GateStatus::Resolved { resolution } if resolution.action.starts_with("approve") => {
            resolution
        }
        _ => return Some(format!("it was not approved, and {chain} ran")),
    };
    // One that nobody signed is told of as such.
    let receipt = resolution.receipt.as_ref()?;
    let hash = receipt.chain_hash.as_deref().unwrap_or_default();
    if hash != chain {
        return Some(format!("{hash} was approved, and {chain} ran"));
    }
    let other = args.is_some() && receipt.args_hash.as_deref() != args;
    other.then(|| "it ran with other arguments than were approved".to_owned())
}

/// Whether a decision has a receipt that is good, or what is wrong with it. `key` gives the
/// public key of a fingerprint, if it is trusted.
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
        Some(why) => Err(why.to_owned()),
    }
}

/// The hashes of what ran and of its arguments, by call.
fn ran(entries: &[Entry]) -> Vec<((&ThreadId, &CallId), &str, Option<&str>)> {
    let mut ran = Vec::new();
    for entry in entries {
        let EntryKind::Message(message) = &entry.kind else {
            continue;
        };
        for part in &message.parts {
            if let Part::ToolResult { call_id, data, .. } = part
                && let Some(hash) = data.get(CHAIN_HASH).and_then(Value::as_str)
            {
                let args = data.get(ARGS_HASH).and_then(Value::as_str);
                ran.push(((&entry.thread, call_id), hash, args));
            }
        }
    }
    ran
}
