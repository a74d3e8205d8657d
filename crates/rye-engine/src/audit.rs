//! A record that proves itself: entries chained by their hashes, signed at the ends of turns,
//! and receipts under decisions. Whoever has the record and the public keys can tell whether
//! anything in it was altered, removed, reordered or added since.
//!
//! Everything else of a session, its row and those of its threads, prompts and gates, is
//! covered by seals: each names the hashes of the rows that its commit has written.
//!
//! What the hash of an entry covers is its JSON text without the ids of its session and
//! thread, which the seal binds, so that a branch shares its past; and without `elided`,
//! which says what a model is shown and not what happened.

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

use crate::machine::CowArc as Shared;

pub use blobs::{BlobStatus, check_blobs};
pub use check::{Finding, FindingKind, Verdict, check, check_receipt};
pub use imported_decisions::UntrustedDecision;
pub(crate) use imported_decisions::{is_untrusted, reject_untrusted, seal_changes};
pub use receipt::{question_hash, receipt};
pub use tasks::check_all;

/// The purpose of the signature under a seal.
const SEAL: Purpose = Purpose::new("seal");
/// The purpose of the signature under a receipt of a decision.
const RECEIPT: Purpose = Purpose::new("receipt");

/// Where a session says that it was imported though it could not be verified, and why.
pub const UNVERIFIED: &str = "unverified_import";
/// Where a gate's context keeps the hash of what would run.
pub const CHAIN_HASH: &str = "chain_hash";
/// Where it keeps that of the arguments.
pub const ARGS_HASH: &str = "args_hash";

/// The hash of an entry that follows one with this hash; none for the first.
pub fn entry_hash(entry: &Entry, before: &str) -> String {
    #[derive(Serialize)]
    struct Hashed<'a> {
        id: &'a EntryId,
        parent: &'a Option<EntryId>,
        before: &'a str,
        prompt: &'a Option<PromptId>,
        kind: &'a EntryKind,
        created_at: Millis,
    }
    let kind = as_it_happened(&entry.kind);
    hash(
        "rye entry 1",
        &Hashed {
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

/// What happened, where something of it is not shown any more.
fn as_it_happened(kind: &EntryKind) -> Option<EntryKind> {
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
    struct Hashed<'a> {
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
        &Hashed {
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

/// Takes the events of a commit into the rolling hash of their thread.
pub(crate) fn fold_events(thread: &mut Shared<Thread>, ops: &[Op]) {
    for op in ops {
        if let Op::Event(Some(of), kind) = op
            && *of == thread.id
            && let Some(told) = rows::fold(&thread.events_hash, kind)
        {
            thread.events_hash = told;
        }
    }
}

/// The seal of a commit of a thread's host, unsigned; none if it needs none. `last` is the hash
/// of the session's last seal, `ended` are gates that have ended before, and `running` is the
/// prompt of the turn.
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

/// The event that seals the rows which a commit writes outside of any thread's history.
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
/// the commit in its rolling hash, and seals the rows if there is a key.
pub fn seal_commit(batch: &mut Batch, mut thread: Thread, at: Millis, key: Option<&SigningKey>) {
    let session = thread.session.clone();
    for op in &batch.ops {
        if let Op::Event(Some(of), kind) = op
            && *of == thread.id
            && let Some(hash) = rows::fold(&thread.events_hash, kind)
        {
            thread.events_hash = hash;
        }
    }
    let is_event = |op: &Op| matches!(op, Op::Event(..));
    let first_event = batch.ops.iter().position(is_event);
    let place = first_event.unwrap_or(batch.ops.len());
    batch.ops.insert(place, Op::PutThread(Arc::new(thread)));
    if let Some(key) = key {
        let kind = seal_rows(&session, &batch.ops, at, key);
        batch.push(Op::Event(None, Arc::new(kind)));
    }
}

/// The same for all rows of a session that nobody has sealed yet.
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

/// Signs, and gives the hash that the next seal names.
pub(crate) fn sign_seal(mut seal: Seal, key: &SigningKey) -> (Seal, String) {
    seal.key = key.public().fingerprint().to_string();
    let hash = seal_hash(&seal);
    seal.signature = key.sign_for(SEAL, &hash).to_string();
    (seal, hash.to_hex())
}

/// The hash of arguments, whatever the order of their names.
pub fn args_hash(args: &Value) -> String {
    match lillux::canonical::to_vec(args) {
        Ok(bytes) => Hash::digest(bytes).to_hex(),
        // A number that has no canonical form: its text does as well.
        Err(_) => Hash::digest(args.to_string()).to_hex(),
    }
}

/// The hash of a thing's JSON text, for one purpose.
fn hash(purpose: &str, thing: &impl Serialize) -> Hash {
    // Written in one place, with room for most: many small pieces are slower to hash.
    let mut text = Vec::with_capacity(1000);
    text.extend_from_slice(purpose.as_bytes());
    text.push(b'\n');
    // What is plain data has a JSON form.
    let _ = serde_json::to_writer(&mut text, thing);
    Hash::digest(text)
}
