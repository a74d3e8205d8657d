//! Sessions as a file: one JSON document a line, ended by a signature under all lines before.
//!
//! A file that lost its end, or in which a single bit is another, is told from a whole one
//! before anything of it is used.
//!
//! What the sessions have in the blob store comes behind them, each blob in lines of a bounded
//! length, so that none need be in memory with the others. Its hash is what entries call it.

mod read;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use lillux::Hash;
use lillux::keys::{PublicKey, Purpose, Signature};
use rye_engine::audit::BlobStatus;
use rye_engine::protocol::{
    Archive, Entry, Event, Gate, GateRef, QueuedPrompt, Session, SuspendedTurn, Thread,
};
use serde::{Deserialize, Serialize};

pub use read::{Reader, read};
pub use write::Writer;

/// The version of the form.
const VERSION: u32 = 1;

/// Why a file is no session.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// It cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A line that makes no sense.
    #[error("line {line}: {why}")]
    Line {
        /// Which, from 1.
        line: usize,
        /// Why.
        why: String,
    },
    /// Something is not as it was when it was written.
    #[error("the file is damaged: {0}")]
    Damaged(String),
    /// Another version of Rye wrote it.
    #[error("the file has version {0} of the format, and this Rye reads version {VERSION}")]
    Version(u32),
}

/// What a file says.
#[derive(Debug)]
pub struct Transfer {
    /// The sessions, the topmost first.
    pub archives: Vec<Archive>,
    /// The public keys that come with it. They are there to be looked at; to trust them is
    /// somebody else's decision.
    pub keys: BTreeMap<String, PublicKey>,
    /// Who signed the file.
    pub signed_by: Option<Signed>,
    /// What came from the blob store.
    pub blobs: Blobs,
}

/// What a file has from a blob store.
#[derive(Debug, Default)]
pub struct Blobs {
    /// Those that are what their hashes say.
    pub whole: BTreeSet<Hash>,
    /// Those that are not.
    pub altered: BTreeSet<Hash>,
}

impl Blobs {
    /// How one is found.
    pub fn find(&self, hash: &Hash) -> BlobStatus {
        if self.whole.contains(hash) {
            BlobStatus::Intact
        } else if self.altered.contains(hash) {
            BlobStatus::Altered
        } else {
            BlobStatus::Missing
        }
    }
}

/// The purpose of the signature under an export.
const EXPORT: Purpose = Purpose::new("export");

/// A signature under a file.
#[derive(Debug)]
pub struct Signed {
    /// The fingerprint of the key.
    pub key: String,
    hash: Hash,
    signature: String,
}

impl Signed {
    /// Whether this key made it.
    pub fn is_by(&self, key: &PublicKey) -> bool {
        let signature = self.signature.parse::<Signature>();
        self.key == key.fingerprint().to_string()
            && signature
                .is_ok_and(|signature| key.verify_for(EXPORT, &self.hash, &signature).is_ok())
    }
}

/// A line.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    RyeSessions {
        version: u32,
        keys: BTreeMap<String, String>,
    },
    Session(Box<Session>),
    Thread(Box<Thread>),
    Entry(Box<Entry>),
    Prompt(Box<QueuedPrompt>),
    Gate(Box<Gate>),
    GateRef(GateRef),
    SuspendedTurn(Box<SuspendedTurn>),
    Event(Box<Event>),
    Blob(Piece),
    End(End),
}

/// A part of a blob. The parts of one follow each other.
#[derive(Serialize, Deserialize)]
struct Piece {
    hash: Hash,
    /// How long the whole is.
    size: u64,
    /// Where the part begins.
    #[serde(default, skip_serializing_if = "is_first")]
    offset: u64,
    /// It, in base64.
    bytes: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_first(offset: &u64) -> bool {
    *offset == 0
}

#[derive(Serialize, Deserialize)]
struct End {
    /// The hash of all lines before.
    hash: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signature: Option<String>,
}
