//! Verifies the blobs that a session refers to. Entries contain their hashes, so the seal of an
//! entry covers its blobs.

use lillux::Hash;
use rye_protocol::Archive;

use super::{Finding, FindingKind, Verdict};
use crate::blob::{SCHEME, required_blobs};

/// State of a required blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlobStatus {
    /// The content matches its hash.
    Intact,
    /// The content does not match its hash, or cannot be read.
    Altered,
    /// The blob does not exist.
    Missing,
}

/// Adds findings about a session's blobs to its verdict.
pub fn check_blobs(archive: &Archive, verdict: &mut Verdict, find: impl Fn(&Hash) -> BlobStatus) {
    for (hash, by) in required_blobs(archive) {
        let (kind, problem) = match find(&hash) {
            BlobStatus::Intact => {
                verdict.blobs += 1;
                continue;
            }
            BlobStatus::Altered => (FindingKind::Altered, "its content does not match its hash"),
            BlobStatus::Missing => (FindingKind::Missing, "it is missing"),
        };
        verdict.findings.push(Finding {
            kind,
            location: format!("{SCHEME}{hash}"),
            reason: format!("{by} refers to it, but {problem}"),
        });
    }
}
