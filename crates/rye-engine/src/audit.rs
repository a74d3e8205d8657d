//! The audit trail: hash-chained entries, seals at the ends of turns, and receipts under
//! decisions. With the exported session and the public keys, anyone can detect whether anything
//! was altered, removed, reordered or added.
//!
//! Seals also cover the rows of the session, its threads, prompts and gates: each seal contains
//! the hashes of the rows that its commit has written.
//!
//! An entry's hash covers its JSON text without the ids of its session and thread, which the seal
//! binds, so that forks can share history; and without `elided`, which changes what a model is
//! shown but not what happened.

mod blobs;
mod check;
mod imported_decisions;
mod receipt;
mod rows;
mod tasks;

use std::collections::BTreeMap;
use std::sync::Arc;

use lillux::Hash;
use lillux::keys::{Purpose, SigningKey};
use rye_protocol::{
    Archive, Batch, Entry, EntryId, EntryKind, EventKind, Gate, Millis, Op, Part, PromptId,
    QueuedPrompt, Seal, SessionId, Thread, ThreadId,
};
use serde::Serialize;
use serde_json::Value;

use crate::machine::CowArc;

pub use blobs::{BlobStatus, check_blobs};
pub use check::{Finding, FindingKind, Verdict, check, check_receipt};
pub use imported_decisions::UntrustedDecision;
pub(crate) use imported_decisions::{reject_untrusted, seal_changes};
pub use receipt::{question_hash, receipt};
pub use tasks::check_all;

/// Purpose of the signature under a seal.
const SEAL: Purpose = Purpose::new("seal");
/// Purpose of the signature under a receipt.
const RECEIPT: Purpose = Purpose::new("receipt");
/// Context key of a gate: hash of the chain that would run.
pub const CHAIN_HASH: &str = "chain_hash";
/// Context key of a gate: hash of the arguments.
pub const ARGS_HASH: &str = "args_hash";

/// Hash of an entry that follows the one with hash `before`, which is empty for the first.
pub fn entry_hash(entry: &Entry, before: &str) -> String {
    #[derive(Serialize)]
    struct HashInput<'a> {
        id: &'a EntryId,
        parent: &'a Option<EntryId>,
        before: &'a str,
        prompt: &'a Option<PromptId>,
        kind: &'a EntryKind,
        created_at: Millis,
    }
    let kind = without_elision(&entry.kind);
    hash(
        "rye entry 1",
        &HashInput {
            id: &entry.id,
            parent: &entry.parent,
            before,
            prompt: &entry.prompt,
            kind: kind.as_ref().unwrap_or(&entry.kind),
            created_at: entry.created_at,
        },
    )
    .to_hex()
}

/// The entry without `elided` marks, if it has any.
fn without_elision(kind: &EntryKind) -> Option<EntryKind> {
    let is_elided = |part: &Part| matches!(part, Part::ToolResult { elided: true, .. });
    let EntryKind::Message(message) = kind else {
        return None;
    };
    if !message.parts.iter().any(is_elided) {
        return None;
    }
    let mut message = message.clone();
    for part in &mut message.parts {
        if let Part::ToolResult { elided, .. } = part {
            *elided = false;
        }
    }
    Some(EntryKind::Message(message))
}

fn seal_hash(seal: &Seal) -> Hash {
    #[derive(Serialize)]
    struct HashInput<'a> {
        session: &'a SessionId,
        thread: &'a Option<ThreadId>,
        leaf: &'a Option<EntryId>,
        hash: &'a str,
        rows: &'a BTreeMap<String, String>,
        after: &'a [String],
        at: Millis,
        key: &'a str,
    }
    hash(
        "rye seal 2",
        &HashInput {
            session: &seal.session,
            thread: &seal.thread,
            leaf: &seal.leaf,
            hash: &seal.hash,
            rows: &seal.rows,
            after: &seal.after,
            at: seal.at,
            key: &seal.key,
        },
    )
}

/// Adds the events of a commit to the rolling hash of their thread.
pub(crate) fn fold_events(thread: &mut CowArc<Thread>, ops: &[Op]) {
    for op in ops {
        if let Op::Event(Some(of), kind) = op
            && *of == thread.id
            && let Some(hash) = rows::fold(&thread.events_hash, kind)
        {
            thread.events_hash = hash;
        }
    }
}

/// The unsigned seal of a thread's commit; `None` if it needs none. `last` is the hash of the
/// session's last seal, `ended` are gates that were closed before, and `running` is the prompt of
/// the turn.
pub(crate) fn thread_seal<'a>(
    thread: &Thread,
    ops: &[Op],
    ended: impl Iterator<Item = &'a Gate>,
    running: Option<&QueuedPrompt>,
    last: Option<String>,
    at: Millis,
) -> Option<Seal> {
    if !rows::needs_seal(thread, ops) {
        return None;
    }
    let mut rows = BTreeMap::new();
    for gate in ended {
        rows.insert(format!("gate:{}", gate.id), rows::of_gate(gate));
    }
    if let Some(prompt) = running {
        rows.insert(format!("prompt:{}", prompt.id), rows::of_prompt(prompt));
    }
    for op in ops {
        rows::add(&mut rows, op);
    }
    rows.insert(format!("thread:{}", thread.id), rows::of_thread(thread));
    let own = Some(thread.seal.clone()).filter(|seal| !seal.is_empty());
    let last = last.filter(|last| own.as_ref() != Some(last));
    Some(Seal {
        session: thread.session.clone(),
        thread: Some(thread.id.clone()),
        leaf: thread.leaf.clone(),
        hash: thread.leaf_hash.clone(),
        rows,
        after: own.into_iter().chain(last).collect(),
        at,
        key: String::new(),
        signature: String::new(),
    })
}

/// A seal event for the rows that a commit writes outside of any thread's history.
pub(crate) fn seal_rows(
    session: &SessionId,
    ops: &[Op],
    at: Millis,
    key: &SigningKey,
) -> EventKind {
    let mut rows = BTreeMap::new();
    for op in ops {
        rows::add(&mut rows, op);
    }
    sealed_rows(session, rows, at, key)
}

/// Completes a commit to a session that no runner drives: adds the thread, with the events of
/// the commit in its rolling hash, and seals the commit if there is a key.
pub(crate) fn complete_commit(
    batch: &mut Batch,
    thread: &mut Thread,
    at: Millis,
    key: Option<&SigningKey>,
) {
    for op in &batch.ops {
        if let Op::Event(_, kind) = op
            && let Some(hash) = rows::fold(&thread.events_hash, kind)
        {
            thread.events_hash = hash;
        }
    }
    let seal = thread_seal(thread, &batch.ops, [].into_iter(), None, None, at);
    if let (Some(key), Some(seal)) = (key, seal) {
        let (seal, hash) = sign_seal(seal, key);
        thread.seal = hash;
        let seal = Box::new(seal);
        batch.push_event(&thread.id, EventKind::Sealed { seal });
    }
    // The session exists before its thread, and the thread before its entries and events.
    let index = usize::from(matches!(batch.ops.first(), Some(Op::PutSession(_))));
    batch
        .ops
        .insert(index, Op::PutThread(Arc::new(thread.clone())));
}

/// A seal event for all rows of a session that has no seal yet.
pub(crate) fn seal_archive(archive: &Archive, at: Millis, key: &SigningKey) -> EventKind {
    sealed_rows(&archive.session.id, rows::of_archive(archive), at, key)
}

fn sealed_rows(
    session: &SessionId,
    rows: BTreeMap<String, String>,
    at: Millis,
    key: &SigningKey,
) -> EventKind {
    let seal = Seal {
        session: session.clone(),
        thread: None,
        leaf: None,
        hash: String::new(),
        rows,
        after: Vec::new(),
        at,
        key: String::new(),
        signature: String::new(),
    };
    let (seal, _) = sign_seal(seal, key);
    EventKind::Sealed {
        seal: Box::new(seal),
    }
}

/// Signs a seal. Also returns its hash, which the next seal refers to.
pub(crate) fn sign_seal(mut seal: Seal, key: &SigningKey) -> (Seal, String) {
    seal.key = key.public().fingerprint().to_string();
    let hash = seal_hash(&seal);
    seal.signature = key.sign_for(SEAL, &hash).to_string();
    (seal, hash.to_hex())
}

/// Hash of arguments, independent of key order.
pub fn args_hash(args: &Value) -> String {
    match lillux::canonical::to_vec(args) {
        Ok(bytes) => Hash::digest(bytes).to_hex(),
        // A number without a canonical form: hash the plain text.
        Err(_) => Hash::digest(args.to_string()).to_hex(),
    }
}

/// Hash of a value's JSON text, with a domain separator.
fn hash(purpose: &str, value: &impl Serialize) -> Hash {
    // One buffer: hashing many small pieces is slower.
    let mut text = Vec::with_capacity(1000);
    text.extend_from_slice(purpose.as_bytes());
    text.push(b'\n');
    // Plain data always serialises.
    let _ = serde_json::to_writer(&mut text, value);
    Hash::digest(text)
}
