//! Receipts: signs decisions, and defines what the signature covers.
//!
//! A receipt covers everything that the person was shown and everything they answered. The
//! question is fixed when the gate is opened; only its status changes.

use lillux::Hash;
use lillux::keys::SigningKey;
use rye_protocol::{
    Action, ActionId, CallId, Gate, GateId, GateKind, GateOrigin, Millis, Receipt, Resolution,
    SessionId,
};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{ARGS_HASH, CHAIN_HASH, RECEIPT, args_hash, hash};
use crate::arguments;

/// Hash of a gate's question: everything except its status.
pub fn question_hash(gate: &Gate) -> String {
    #[derive(Serialize)]
    struct HashInput<'a> {
        id: &'a GateId,
        kind: GateKind,
        title: &'a str,
        body: &'a str,
        actions: &'a [Action],
        origin: &'a GateOrigin,
        expires_at: Option<Millis>,
        context: &'a Map<String, Value>,
        created_at: Millis,
    }
    let input = HashInput {
        id: &gate.id,
        kind: gate.kind,
        title: &gate.title,
        body: &gate.body,
        actions: &gate.actions,
        origin: &gate.origin,
        expires_at: gate.expires_at,
        context: &gate.context,
        created_at: gate.created_at,
    };
    hash("rye gate as shown 1", &input).to_hex()
}

fn answer_hash(resolution: &Resolution) -> String {
    #[derive(Serialize)]
    struct HashInput<'a> {
        action: &'a ActionId,
        value: &'a Value,
        by: &'a str,
        at: Millis,
        source: &'a str,
    }
    let input = HashInput {
        action: &resolution.action,
        value: &resolution.value,
        by: &resolution.by,
        at: resolution.at,
        source: &resolution.source,
    };
    hash("rye answer 1", &input).to_hex()
}

pub(super) fn receipt_hash(receipt: &Receipt) -> Hash {
    #[derive(Serialize)]
    struct HashInput<'a> {
        session: &'a SessionId,
        gate: &'a GateId,
        call: &'a CallId,
        action: &'a ActionId,
        chain_hash: &'a Option<String>,
        args_hash: &'a Option<String>,
        question: &'a Option<String>,
        answer: &'a Option<String>,
        by: &'a str,
        at: Millis,
        key: &'a str,
    }
    let input = HashInput {
        session: &receipt.session,
        gate: &receipt.gate,
        call: &receipt.call,
        action: &receipt.action,
        chain_hash: &receipt.chain_hash,
        args_hash: &receipt.args_hash,
        question: &receipt.question,
        answer: &receipt.answer,
        by: &receipt.by,
        at: receipt.at,
        key: &receipt.key,
    };
    hash("rye receipt 1", &input)
}

/// Signs the receipt of a decision.
pub fn receipt(gate: &Gate, resolution: &Resolution, key: &SigningKey) -> Receipt {
    let mut receipt = unsigned(gate, resolution);
    receipt.key = key.public().fingerprint().to_string();
    receipt.signature = key.sign_for(RECEIPT, &receipt_hash(&receipt)).to_string();
    receipt
}

fn unsigned(gate: &Gate, resolution: &Resolution) -> Receipt {
    let text = |key: &str| gate.context.get(key).and_then(Value::as_str);
    let edited = arguments::edited_arguments(&gate.context, resolution).map(args_hash);
    Receipt {
        session: gate.origin.session.clone(),
        gate: gate.id.clone(),
        call: gate.origin.call.clone(),
        action: resolution.action.clone(),
        chain_hash: text(CHAIN_HASH).map(str::to_owned),
        args_hash: edited.or_else(|| text(ARGS_HASH).map(str::to_owned)),
        question: Some(question_hash(gate)),
        answer: Some(answer_hash(resolution)),
        by: resolution.by.clone(),
        at: resolution.at,
        key: String::new(),
        signature: String::new(),
    }
}

/// How a decision differs from its receipt; the signature is verified separately.
pub(super) fn difference(
    gate: &Gate,
    resolution: &Resolution,
    receipt: &Receipt,
) -> Option<&'static str> {
    let mut expected = unsigned(gate, resolution);
    expected.key.clone_from(&receipt.key);
    expected.signature.clone_from(&receipt.signature);
    if expected == *receipt {
        return None;
    }
    let differs = expected.question != receipt.question;
    expected.question.clone_from(&receipt.question);
    // The call is part of the question.
    expected.chain_hash.clone_from(&receipt.chain_hash);
    expected.args_hash.clone_from(&receipt.args_hash);
    Some(if differs && expected == *receipt {
        "the question differs from the answered one"
    } else {
        "the receipt is for another decision"
    })
}
