//! A record that proves itself: entries chained by their hashes, signed at the ends of turns,
//! and receipts under decisions. Whoever has the record and the public keys can tell whether
//! anything in it was altered, removed, reordered or added since.
//!
//! What the hash of an entry covers is its JSON text without the ids of its session and
//! thread, which the seal binds, so that a branch shares its past; and without `elided`,
//! which says what a model is shown and not what happened.

mod blobs;
mod check;
mod elsewhere;
mod receipt;
mod tasks;

use lillux::Hash;
use lillux::keys::{Purpose, SigningKey};
use rye_protocol::{
    Entry, EntryId, EntryKind, Millis, Part, QueueItemId, Seal, SessionId, Thread, ThreadId,
};
use serde::Serialize;
use serde_json::Value;

pub use blobs::{Kept, check_blobs};
pub use check::{Fault, Trouble, Verdict, check, check_receipt};
pub use elsewhere::Doubt;
pub(crate) use elsewhere::{doubt, is_doubted};
pub use receipt::{question_hash, receipt};
pub use tasks::check_all;

/// The purpose of the signature under a seal.
const SEAL: Purpose = Purpose::new("seal");
/// The purpose of the signature under a receipt of a decision.
const RECEIPT: Purpose = Purpose::new("receipt");

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
        item: &'a Option<QueueItemId>,
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
            item: &entry.item,
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
        thread: &'a ThreadId,
        leaf: &'a EntryId,
        hash: &'a str,
        after: &'a [String],
        at: Millis,
        key: &'a str,
    }
    hash(
        "rye seal 1",
        &Hashed {
            session: &seal.session,
            thread: &seal.thread,
            leaf: &seal.leaf,
            hash: &seal.hash,
            after: &seal.after,
            at: seal.at,
            key: &seal.key,
        },
    )
}

/// What is signed of a thread, with the session's last seal; nothing of an empty one.
pub(crate) fn unsigned_seal(thread: &Thread, last: Option<String>, at: Millis) -> Option<Seal> {
    let own = Some(thread.seal.clone()).filter(|seal| !seal.is_empty());
    let last = last.filter(|last| own.as_ref() != Some(last));
    Some(Seal {
        session: thread.session.clone(),
        thread: thread.id.clone(),
        leaf: thread.leaf.clone()?,
        hash: thread.leaf_hash.clone(),
        after: own.into_iter().chain(last).collect(),
        at,
        key: String::new(),
        signature: String::new(),
    })
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
        Ok(bytes) => Hash::of(bytes).to_hex(),
        // A number that has no canonical form: its text does as well.
        Err(_) => Hash::of(args.to_string()).to_hex(),
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
    Hash::of(text)
}
