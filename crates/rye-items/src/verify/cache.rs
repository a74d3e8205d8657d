//! Cache of verified files, keyed by file state.
//!
//! An entry says that a file in exactly this state (device, inode, size, mtime and ctime) had a
//! valid signature of this key. Programs cannot set the ctime, and a state is stored only if its
//! ctime was in the past when the file was read, so every later write gives the file another
//! state. Trust in the key is not cached.
//!
//! A write through an existing writable mapping does not update the timestamps. So a state is
//! stored only if no process had the file open for writing or mapped it writable
//! ([`lillux::file_times`]). A disk that was modified on another machine with a manipulated clock is
//! not detected; therefore only bulk verification uses this cache, while loading an item always
//! reads and verifies its file.

use std::cmp::Ordering;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use lillux::Hash;
use lillux::keys::{Fingerprint, PublicKey};
use rustix::time::{ClockId, clock_gettime};

use super::{SignatureFormat, requires_bound_signatures};
use crate::item::Coverage;
use crate::owner_only_dir::create_owner_only_dir;
use crate::space::FileIdentity;

const MAGIC: &[u8; 16] = b"rye verified 2\n\0";
const KEY: usize = 48;
const RECORD: usize = 120;
const SUM: usize = 32;
/// The maximum number of entries. The oldest are removed first.
const MAX_ENTRIES: usize = 100_000;

/// The cached result of a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CachedVerification {
    /// The hash of the covered bytes.
    pub hash: Hash,
    /// The hash of the signing key's PEM text.
    pub key: Hash,
    /// How much the signature covers.
    pub coverage: Coverage,
}

impl CachedVerification {
    /// The hash that identifies a key in the cache.
    pub fn key_hash(key: &PublicKey) -> Hash {
        Hash::digest(key.to_pem())
    }

    /// The fingerprint of the signer's key.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::from_pem_hash(&self.key)
    }
}

/// The kernel's clock for file timestamps, sampled before a file is read.
#[derive(Debug, Clone, Copy)]
pub struct CoarseInstant(i64);

impl CoarseInstant {
    /// The current time of the coarse clock, which file systems use for timestamps.
    pub fn now() -> Self {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        Self(
            now.tv_sec
                .saturating_mul(1_000_000_000)
                .saturating_add(now.tv_nsec),
        )
    }

    /// Whether every later change must alter this state of a file that was read after this
    /// instant.
    pub(crate) fn is_after(self, state: &FileIdentity) -> bool {
        state.has_reliable_times(self.0.into())
    }
}

/// The entries of earlier runs and of this one.
#[derive(Debug)]
pub struct VerificationCache {
    file: Option<PathBuf>,
    /// Records of earlier runs, sorted by key.
    old: Vec<u8>,
    new: Mutex<Vec<[u8; RECORD]>>,
}

impl VerificationCache {
    /// Opens the cache in a directory. A missing or damaged file is an empty cache.
    pub fn open(dir: Option<&Path>) -> Self {
        let file = dir.map(|dir| dir.join("verified"));
        let old = file.as_ref().and_then(|file| records(fs::read(file).ok()?));
        Self {
            file,
            old: old.unwrap_or_default(),
            new: Mutex::default(),
        }
    }

    /// Whether the cache has a directory to store entries in.
    pub(crate) fn is_open(&self) -> bool {
        self.file.is_some()
    }

    /// The cached result for a file in this state.
    pub fn get(
        &self,
        identity: &FileIdentity,
        format: &SignatureFormat,
    ) -> Option<CachedVerification> {
        let key = key(identity, format)?;
        let (mut from, mut to) = (0, self.old.len() / RECORD);
        while from < to {
            let middle = usize::midpoint(from, to);
            let record = self.old.get(middle * RECORD..(middle + 1) * RECORD)?;
            match record[..KEY].cmp(&key) {
                Ordering::Less => from = middle + 1,
                Ordering::Greater => to = middle,
                Ordering::Equal => return value(record),
            }
        }
        None
    }

    /// Stores a result, unless the file could still change without a new state.
    pub fn put(
        &self,
        identity: &FileIdentity,
        format: &SignatureFormat,
        started: CoarseInstant,
        result: &CachedVerification,
    ) {
        let (Some(key), true) = (key(identity, format), started.is_after(identity)) else {
            return;
        };
        let mut record = [0; RECORD];
        record[..KEY].copy_from_slice(&key);
        record[48..80].copy_from_slice(result.hash.as_bytes());
        record[80..112].copy_from_slice(result.key.as_bytes());
        record[112] = u8::from(result.coverage == Coverage::Partial);
        let day = u32::try_from(started.0 / 86_400_000_000_000).unwrap_or_default();
        record[116..120].copy_from_slice(&day.to_be_bytes());
        let mut new = self.new.lock().unwrap_or_else(PoisonError::into_inner);
        new.push(record);
    }

    /// Writes new entries to disk. Failure to write is ignored.
    pub fn save(self) {
        let new = self
            .new
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        if let (Some(file), false) = (&self.file, new.is_empty()) {
            let _ = write(file, merge(&self.old, new));
        }
    }
}

/// Merges records; of two with the same key, the new one wins.
fn merge(old: &[u8], new: Vec<[u8; RECORD]>) -> Vec<[u8; RECORD]> {
    let mut all = new;
    all.extend(
        old.chunks_exact(RECORD)
            .filter_map(|record| <[u8; RECORD]>::try_from(record).ok()),
    );
    all.sort_by(|one, other| one[..KEY].cmp(&other[..KEY]));
    all.dedup_by(|later, earlier| later[..KEY] == earlier[..KEY]);
    if all.len() > MAX_ENTRIES {
        all.sort_by(|one, other| other[116..].cmp(&one[116..]));
        all.truncate(MAX_ENTRIES);
        all.sort_by(|one, other| one[..KEY].cmp(&other[..KEY]));
    }
    all
}

fn write(file: &Path, records: Vec<[u8; RECORD]>) -> std::io::Result<()> {
    let dir = file.parent().unwrap_or(file);
    create_owner_only_dir(dir)?;
    let mut bytes = Vec::with_capacity(MAGIC.len() + records.len() * RECORD + SUM);
    bytes.extend(MAGIC);
    for record in records {
        bytes.extend(record);
    }
    let sum = Hash::digest(&bytes);
    bytes.extend(sum.as_bytes());
    // Written atomically, with mode 0600.
    let mut temporary = tempfile::Builder::new()
        .prefix(".verified-")
        .tempfile_in(dir)?;
    temporary.write_all(&bytes)?;
    temporary.persist(file)?;
    Ok(())
}

/// The records of a cache file; none if it is damaged.
fn records(mut file: Vec<u8>) -> Option<Vec<u8>> {
    let end = file.len().checked_sub(SUM)?;
    let whole = file.starts_with(MAGIC)
        && end.checked_sub(MAGIC.len())?.is_multiple_of(RECORD)
        && Hash::digest(&file[..end]).as_bytes()[..] == file[end..];
    if !whole {
        return None;
    }
    file.truncate(end);
    file.drain(..MAGIC.len());
    Some(file)
}

/// The key of a record; none for timestamps that do not fit.
fn key(identity: &FileIdentity, format: &SignatureFormat) -> Option<[u8; KEY]> {
    let suffix = format.comment.suffix.as_deref().unwrap_or_default();
    let binding = format.binding.as_ref().map(ToString::to_string);
    let format = format!(
        "{}\0{suffix}\0{}\0{}\0{}",
        format.comment.prefix,
        format.partial,
        binding.unwrap_or_default(),
        requires_bound_signatures()
    );
    let format = Hash::digest(format);
    let mut key = [0; KEY];
    let times = [identity.modified, identity.changed].map(i64::try_from);
    let [Ok(modified), Ok(changed)] = times else {
        return None;
    };
    let fields = [
        identity.device.to_be_bytes(),
        identity.inode.to_be_bytes(),
        identity.size.to_be_bytes(),
        modified.to_be_bytes(),
        changed.to_be_bytes(),
    ];
    for (slot, field) in key.chunks_exact_mut(8).zip(fields) {
        slot.copy_from_slice(&field);
    }
    key[40..].copy_from_slice(&format.as_bytes()[..8]);
    Some(key)
}

fn value(record: &[u8]) -> Option<CachedVerification> {
    let hash = |from: usize| {
        record
            .get(from..from + 32)?
            .try_into()
            .ok()
            .map(Hash::from_bytes)
    };
    Some(CachedVerification {
        hash: hash(48)?,
        key: hash(80)?,
        coverage: match record.get(112)? {
            0 => Coverage::Whole,
            _ => Coverage::Partial,
        },
    })
}

#[cfg(test)]
mod tests;
