//! Whether the blobs are there that a record refers to. An entry names them by their hashes,
//! and so whoever signed the entry signed them.

use lillux::Hash;
use rye_protocol::Archive;

use super::{Fault, Trouble, Verdict};
use crate::blob::{SCHEME, needed};

/// How a blob is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// As its hash says.
    Whole,
    /// Something else is in its place, or it cannot be read.
    Altered,
    /// Not at all.
    Missing,
}

/// Adds what is wrong with the blobs of a record to what was found of it.
pub fn check_blobs(archive: &Archive, verdict: &mut Verdict, find: impl Fn(&Hash) -> Kept) {
    for (hash, by) in needed(archive) {
        let (trouble, why) = match find(&hash) {
            Kept::Whole => {
                verdict.blobs += 1;
                continue;
            }
            Kept::Altered => (Trouble::Altered, "is not what its hash says"),
            Kept::Missing => (Trouble::Missing, "is not there"),
        };
        verdict.faults.push(Fault {
            trouble,
            place: format!("{SCHEME}{hash}"),
            why: format!("{by} refers to it, and it {why}"),
        });
    }
}
