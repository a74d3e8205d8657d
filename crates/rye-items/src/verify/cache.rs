//! What was verified before, by the state of the file it was read from.
//!
//! An entry says: a file in exactly this state (device, inode, size, content and
//! change time) carried a good signature of this key. No write makes it stale.
//! The kernel sets the change time and nobody can set it back; and a state is
//! entered only if its change time was already past when the file was read, so
//! that any later write gives the file another one. Whether the key still
//! counts is asked anew each time.
//!
//! A write through a mapping that was writable before gets no new time; so a state is
//! entered only if nobody had the file open for writing or mapped writable when it was read
//! ([`lillux::file_times`]). A disk that was changed elsewhere by somebody who could set its clock
//! is not noticed: this is for looking over many files, and an item that is loaded is always
//! read and verified.

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
/// When there are more, those that were seen longest ago go.
const MOST: usize = 100_000;

/// What was found out about a file.
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
    /// What stands for a key in the cache.
    pub fn key_hash(key: &PublicKey) -> Hash {
        Hash::digest(key.to_pem())
    }

    /// The key's short name.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::from_pem_hash(&self.key)
    }
}

/// A moment before a file was read: what changed later has a later change time.
#[derive(Debug, Clone, Copy)]
pub struct CoarseInstant(i64);

impl CoarseInstant {
    /// Now, on the clock that file systems stamp with.
    pub fn now() -> Self {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        Self(
            now.tv_sec
                .saturating_mul(1_000_000_000)
                .saturating_add(now.tv_nsec),
        )
    }

    /// Whether a file that was read after this moment, and was in this state,
    /// would be in another after any later change.
    pub(crate) fn is_after(self, state: &FileIdentity) -> bool {
        state.is_settled(self.0.into())
    }
}

/// The entries of earlier runs, and those of this one.
#[derive(Debug)]
pub struct VerificationCache {
    file: Option<PathBuf>,
    /// Records, ordered by their keys.
    old: Vec<u8>,
    new: Mutex<Vec<[u8; RECORD]>>,
}

impl VerificationCache {
    /// Opens the cache in a folder; one that is not there or damaged is empty.
    pub fn open(folder: Option<&Path>) -> Self {
        let file = folder.map(|folder| folder.join("verified"));
        let old = file.as_ref().and_then(|file| records(fs::read(file).ok()?));
        Self {
            file,
            old: old.unwrap_or_default(),
            new: Mutex::default(),
        }
    }

    /// Whether entries are kept at all.
    pub(crate) fn is_open(&self) -> bool {
        self.file.is_some()
    }

    /// What is known of a file in this state.
    pub fn get(
        &self,
        identity: &FileIdentity,
        form: &SignatureFormat,
    ) -> Option<CachedVerification> {
        let key = key(identity, form)?;
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

    /// Enters what was found out, unless the file could still change unnoticed.
    pub fn put(
        &self,
        identity: &FileIdentity,
        form: &SignatureFormat,
        tick: CoarseInstant,
        seen: &CachedVerification,
    ) {
        let (Some(key), true) = (key(identity, form), tick.is_after(identity)) else {
            return;
        };
        let mut record = [0; RECORD];
        record[..KEY].copy_from_slice(&key);
        record[48..80].copy_from_slice(seen.hash.as_bytes());
        record[80..112].copy_from_slice(seen.key.as_bytes());
        record[112] = u8::from(seen.coverage == Coverage::Partial);
        let day = u32::try_from(tick.0 / 86_400_000_000_000).unwrap_or_default();
        record[116..120].copy_from_slice(&day.to_be_bytes());
        let mut new = self.new.lock().unwrap_or_else(PoisonError::into_inner);
        new.push(record);
    }

    /// Writes the new entries down, if there are any. A cache that cannot be
    /// written is only slower.
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

/// The new ones and the old ones, of two with the same key the new one.
fn merge(old: &[u8], new: Vec<[u8; RECORD]>) -> Vec<[u8; RECORD]> {
    let mut all = new;
    all.extend(
        old.chunks_exact(RECORD)
            .filter_map(|record| <[u8; RECORD]>::try_from(record).ok()),
    );
    all.sort_by(|one, other| one[..KEY].cmp(&other[..KEY]));
    all.dedup_by(|later, earlier| later[..KEY] == earlier[..KEY]);
    if all.len() > MOST {
        all.sort_by(|one, other| other[116..].cmp(&one[116..]));
        all.truncate(MOST);
        all.sort_by(|one, other| one[..KEY].cmp(&other[..KEY]));
    }
    all
}

fn write(file: &Path, records: Vec<[u8; RECORD]>) -> std::io::Result<()> {
    let folder = file.parent().unwrap_or(file);
    create_owner_only_dir(folder)?;
    let mut bytes = Vec::with_capacity(MAGIC.len() + records.len() * RECORD + SUM);
    bytes.extend(MAGIC);
    for record in records {
        bytes.extend(record);
    }
    let sum = Hash::digest(&bytes);
    bytes.extend(sum.as_bytes());
    // Mode 0600, and never half-written under its name.
    let mut temporary = tempfile::Builder::new()
        .prefix(".verified-")
        .tempfile_in(folder)?;
    temporary.write_all(&bytes)?;
    temporary.persist(file)?;
    Ok(())
}

/// The records of a file that is as it was written.
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

/// None for times that no file has.
fn key(identity: &FileIdentity, form: &SignatureFormat) -> Option<[u8; KEY]> {
    let suffix = form.comment.suffix.as_deref().unwrap_or_default();
    let binding = form.binding.as_ref().map(ToString::to_string);
    let form = format!(
        "{}\0{suffix}\0{}\0{}\0{}",
        form.comment.prefix,
        form.partial,
        binding.unwrap_or_default(),
        requires_bound_signatures()
    );
    let form = Hash::digest(form);
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
    for (place, field) in key.chunks_exact_mut(8).zip(fields) {
        place.copy_from_slice(&field);
    }
    key[40..].copy_from_slice(&form.as_bytes()[..8]);
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
