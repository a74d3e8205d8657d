//! Whether decisions are as they were signed.

use std::collections::{HashMap, HashSet};

use lillux::keys::{PublicKey, Signature};
use rye_protocol::{CallId, Entry, EntryKind, Gate, GateStatus, Part, Resolution, ThreadId};
use serde_json::Value;

use super::{Check, Trouble};
use crate::proof::elsewhere::Settled;
use crate::proof::{ARGS_HASH, CHAIN_HASH, receipt_hash, unsigned};

impl Check<'_> {
    /// Each question that was asked is there. A branch shares the history of another session,
    /// which has the gates.
    pub(super) fn gates(&mut self) {
        let there: HashSet<_> = self.archive.gates.iter().map(|gate| &gate.id).collect();
        let own = format!("gate:{}:", self.archive.session.id);
        for entry in &self.archive.entries {
            if let EntryKind::DecisionGate { gate, .. } = &entry.kind
                && gate.as_str().starts_with(&own)
                && !there.contains(gate)
            {
                let why = "it was asked, and what was decided is not there";
                self.fault(Trouble::Missing, gate, why);
            }
        }
    }

    /// What was decided is what was signed, and what was approved is what ran.
    pub(super) fn receipts(&mut self) {
        let settled = Settled::of(self.archive);
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
                if gate.context.contains_key(CHAIN_HASH) || !settled.has(gate) {
                    self.fault(Trouble::Signature, &gate.id, "nobody signed the decision");
                }
                continue;
            };
            self.verdict.receipts += 1;
            let hash = receipt_hash(receipt);
            self.signature(&receipt.key, &hash, &receipt.signature, &gate.id);
            if !agrees(gate, resolution) {
                let why = "the receipt is for another decision";
                self.fault(Trouble::Altered, &gate.id, why);
            }
        }
        for (call, chain, args) in ran(&self.archive.entries) {
            if let Some(gate) = asked.get(&call)
                && let Some(why) = other_than_approved(gate, chain, args)
            {
                self.fault(Trouble::Altered, &gate.id, why);
            }
        }
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
    let is_signed = signature.is_ok_and(|it| public.verify(&receipt_hash(receipt), &it).is_ok());
    if is_signed && agrees(gate, resolution) {
        Ok(true)
    } else {
        Err("the receipt is for another decision".to_owned())
    }
}

fn agrees(gate: &Gate, resolution: &Resolution) -> bool {
    let Some(receipt) = &resolution.receipt else {
        return false;
    };
    let mut expected = unsigned(gate, resolution);
    expected.key.clone_from(&receipt.key);
    expected.signature.clone_from(&receipt.signature);
    expected == **receipt
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
