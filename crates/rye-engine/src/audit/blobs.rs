//! Whether the blobs are there that a record refers to. An entry names them by their hashes,
//! and so whoever signed the entry signed them.

use lillux::Hash;
use rye_protocol::Archive;

use super::{Finding, FindingKind, Verdict};
use crate::blob::{SCHEME, required_blobs};

/// How a blob is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlobStatus {
    /// As its hash says.
    Intact,
    /// Something else is in its place, or it cannot be read.
    Altered,
    /// Not at all.
    Missing,
}

/// Adds what is wrong with the blobs of a record to what was found of it.
pub fn check_blobs(archive: &Archive, verdict: &mut Verdict, find: impl Fn(&Hash) -> BlobStatus) {
    for (hash, by) in required_blobs(archive) {
        let (kind, why) = match find(&hash) {
            BlobStatus::Intact => {
                verdict.blobs += 1;
                continue;
            }
            BlobStatus::Altered => (FindingKind::Altered, "is not what its hash says"),
            BlobStatus::Missing => (FindingKind::Missing, "is not there"),
        };
        verdict.findings.push(Finding {
            kind,
            location: format!("{SCHEME}{hash}"),
            reason: format!("{by} refers to it, and it {why}"),
        });
    }
}
