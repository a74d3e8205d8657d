//! Verifying thousands of files, on all cores, remembering those that hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use lillux::Hash;

use super::{ItemError, Library, integrity_error, read};
use crate::integrity::IntegrityProblem;
use crate::item::Coverage;
use crate::lookup::ItemFile;
use crate::space::Entry;
use crate::trust::{Trust, TrustedKey};
use crate::verify::{self, CachedVerification, CoarseInstant, VerificationCache};

/// A file whose signature holds.
#[derive(Debug, Clone)]
pub struct VerifiedSignature {
    /// The hash of the covered bytes.
    pub hash: Hash,
    /// The key that signed.
    pub signer: Arc<TrustedKey>,
    /// How much the signature covers.
    pub coverage: Coverage,
}

/// A file and what was found out about it.
pub type FileVerification<'a> = (ItemFile<'a>, Result<VerifiedSignature, ItemError>);

/// Below this, opening the cache costs more than it saves.
const WORTH_A_CACHE: usize = 32;
/// How many files a thread takes at a time.
const BATCH: usize = 64;

impl Library {
    /// Verifies files, in parallel. A file that is in the state in which it was
    /// verified before is not read again: only its key is looked at anew.
    /// `progress` is called now and then with the number of those done.
    pub fn verify_batch<'a>(
        &'a self,
        files: Vec<(Entry, ItemFile<'a>)>,
        progress: &(dyn Fn(usize) + Sync),
    ) -> Vec<FileVerification<'a>> {
        let trust = &self.trust();
        let worth_it = files.len() >= WORTH_A_CACHE;
        let cache = VerificationCache::open(self.parse_cache.cache().filter(|_| worth_it));
        let outcomes = parallel(&files, progress, |(entry, found)| {
            self.verify_one(entry, found, trust, &cache)
        });
        cache.save();
        files
            .into_iter()
            .map(|(_, found)| found)
            .zip(outcomes)
            .collect()
    }

    fn verify_one(
        &self,
        entry: &Entry,
        found: &ItemFile<'_>,
        trust: &Trust<'_>,
        cache: &VerificationCache,
    ) -> Result<VerifiedSignature, ItemError> {
        let format = self.format_of(found);
        let tick = CoarseInstant::now();
        if let Some(state) = entry.identity
            && let Some(seen) = cache.get(&state, &format)
            && let Ok(signer) = trust.key_status(seen.fingerprint())
            && CachedVerification::key_hash(&signer.key) == seen.key
        {
            return Ok(VerifiedSignature {
                hash: seen.hash,
                signer,
                coverage: seen.coverage,
            });
        }
        let settled = cache
            .is_open()
            .then(|| found.root.settled_state(&found.relative));
        let raw = read(found)?;
        let signed =
            verify::check(&raw.bytes, &format, trust).map_err(|problem: IntegrityProblem| {
                ItemError::Integrity(Box::new(integrity_error(found, problem, &raw.bytes)))
            })?;
        if let Some(identity) = raw.identity
            && settled.flatten() == Some(identity)
        {
            let seen = CachedVerification {
                hash: signed.line.hash,
                key: CachedVerification::key_hash(&signed.key.key),
                coverage: signed.coverage,
            };
            cache.put(&identity, &format, tick, &seen);
        }
        Ok(VerifiedSignature {
            hash: signed.line.hash,
            signer: signed.key,
            coverage: signed.coverage,
        })
    }
}

/// Does something with each of many, on all cores; the outcomes are in the
/// order of the inputs.
pub(crate) fn parallel<T: Sync, R: Send>(
    inputs: &[T],
    progress: &(dyn Fn(usize) + Sync),
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let batches: Vec<_> = inputs.chunks(BATCH).collect();
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let worker = || {
        let mut outcomes = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(batch) = batches.get(index) else {
                return outcomes;
            };
            outcomes.push((index, batch.iter().map(&work).collect::<Vec<_>>()));
            progress(done.fetch_add(batch.len(), Ordering::Relaxed) + batch.len());
        }
    };
    let mut outcomes = if batches.len() <= 1 {
        worker()
    } else {
        // Asking how many costs some twenty system calls.
        let threads = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(worker)).collect();
            let mut all = worker();
            for other in others {
                match other.join() {
                    Ok(outcomes) => all.extend(outcomes),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            all
        })
    };
    outcomes.sort_unstable_by_key(|(index, _)| *index);
    outcomes.into_iter().flat_map(|(_, batch)| batch).collect()
}
