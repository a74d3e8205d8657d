//! Reads and writes exported sessions: JSON lines with a signed hash of all lines at the end.
//!
//! A reader detects a truncated or modified file before it uses the content.
//!
//! The blobs of the sessions follow them, split into lines of limited length, so that the file can
//! be processed one blob at a time. A blob is identified by its hash.

mod export;
mod import;
mod read;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use lillux::Hash;
use lillux::keys::{PublicKey, Purpose, Signature};
use rye_engine::audit::BlobStatus;
use rye_engine::protocol::{Archive, Entry, Event, Gate, GateRef, QueuedPrompt, Session, Thread};
use serde::{Deserialize, Serialize};

pub use export::{WrittenBlobs, export, public_keys};
pub use import::{Imported, check_not_present, import_blobs, import_sessions, open_seekable};
pub use read::{Reader, read};
pub use write::Writer;

/// Version of the file format.
const VERSION: u32 = 1;

/// Why an exported file cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A line is invalid.
    #[error("line {line}: {reason}")]
    Line {
        /// Line number, from 1.
        line: usize,
        /// The error.
        reason: String,
    },
    /// The file was truncated or modified.
    #[error("the file is damaged: {0}")]
    Damaged(String),
    /// The file has another format version.
    #[error("the file has format version {0}, but this version of Rye reads version {VERSION}")]
    Version(u32),
}

/// The content of an exported file.
#[derive(Debug)]
pub struct ExportFile {
    /// The sessions; parents come first.
    pub archives: Vec<Archive>,
    /// The public keys of the file, by fingerprint. They are not trusted.
    pub keys: BTreeMap<String, PublicKey>,
    /// The signature of the file.
    pub signature: Option<FileSignature>,
    /// The blobs of the sessions.
    pub blobs: ExportedBlobs,
}

/// The blobs of an exported file.
#[derive(Debug, Default)]
pub struct ExportedBlobs {
    /// Blobs that match their hashes.
    pub intact: BTreeSet<Hash>,
    /// Blobs that do not.
    pub altered: BTreeSet<Hash>,
}

impl ExportedBlobs {
    /// The status of a blob.
    pub fn status(&self, hash: &Hash) -> BlobStatus {
        if self.intact.contains(hash) {
            BlobStatus::Intact
        } else if self.altered.contains(hash) {
            BlobStatus::Altered
        } else {
            BlobStatus::Missing
        }
    }
}

/// The purpose of the signature under an export.
const EXPORT_PURPOSE: Purpose = Purpose::new("export");

/// The signature of an exported file.
#[derive(Debug)]
pub struct FileSignature {
    /// Fingerprint of the key.
    pub key: String,
    hash: Hash,
    signature: String,
}

impl FileSignature {
    /// Verifies the signature with a key.
    pub fn is_valid_for(&self, key: &PublicKey) -> bool {
        let signature = self.signature.parse::<Signature>();
        self.key == key.fingerprint().to_string()
            && signature.is_ok_and(|signature| {
                key.verify_for(EXPORT_PURPOSE, &self.hash, &signature)
                    .is_ok()
            })
    }
}

/// A line of the file.
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
    Event(Box<Event>),
    Blob(BlobChunk),
    End(Trailer),
}

/// A part of a blob. The parts of a blob are consecutive lines.
#[derive(Serialize, Deserialize)]
struct BlobChunk {
    hash: Hash,
    /// Size of the whole blob.
    size: u64,
    /// Position of the part in the blob.
    #[serde(default, skip_serializing_if = "is_zero")]
    offset: u64,
    /// The part in base64.
    bytes: String,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "signature required by serde"
)]
fn is_zero(offset: &u64) -> bool {
    *offset == 0
}

#[derive(Serialize, Deserialize)]
struct Trailer {
    /// Hash of all previous lines.
    hash: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signature: Option<String>,
}
