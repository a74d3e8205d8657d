//! Verifies many files in parallel, and caches the results by file state.

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

/// A valid signature of a file, possibly from the verification cache.
#[derive(Debug, Clone)]
pub struct VerifiedSignature {
    /// The hash of the covered bytes.
    pub hash: Hash,
    /// The signer's key.
    pub signer: Arc<TrustedKey>,
    /// How much the signature covers.
    pub coverage: Coverage,
}

/// A file and the result of its verification.
pub type FileVerification<'a> = (ItemFile<'a>, Result<VerifiedSignature, ItemError>);

/// With fewer files, opening the cache costs more than it saves.
const MIN_FILES_FOR_CACHE: usize = 32;
/// The number of files a worker thread claims at a time.
const BATCH: usize = 64;

impl Library {
    /// Verifies files in parallel. A file whose state is unchanged since an earlier verification
    /// is not read again; only the trust in its key is checked. `progress` is called after each
    /// batch with the number of files done.
    pub fn verify_batch<'a>(
        &'a self,
        files: Vec<(Entry, ItemFile<'a>)>,
        progress: &(dyn Fn(usize) + Sync),
    ) -> Vec<FileVerification<'a>> {
        let trust = &self.trust();
        let use_cache = files.len() >= MIN_FILES_FOR_CACHE;
        let cache = VerificationCache::open(self.parse_cache.dir().filter(|_| use_cache));
        let outcomes = parallel(&files, progress, |(entry, item_file)| {
            self.verify_one(entry, item_file, trust, &cache)
        });
        cache.save();
        files
            .into_iter()
            .map(|(_, item_file)| item_file)
            .zip(outcomes)
            .collect()
    }

    fn verify_one(
        &self,
        entry: &Entry,
        item_file: &ItemFile<'_>,
        trust: &Trust<'_>,
        cache: &VerificationCache,
    ) -> Result<VerifiedSignature, ItemError> {
        let format = self.format_of(item_file);
        let started = CoarseInstant::now();
        if let Some(state) = entry.identity
            && let Some(cached) = cache.get(&state, &format)
            && let Ok(signer) = trust.key_status(cached.fingerprint())
            && CachedVerification::key_hash(&signer.key) == cached.key
        {
            return Ok(VerifiedSignature {
                hash: cached.hash,
                signer,
                coverage: cached.coverage,
            });
        }
        let stable = cache
            .is_open()
            .then(|| item_file.root.stable_identity(&item_file.relative));
        let raw = read(item_file)?;
        let signed =
            verify::check(&raw.bytes, &format, trust).map_err(|problem: IntegrityProblem| {
                ItemError::Integrity(Box::new(integrity_error(item_file, problem, &raw.bytes)))
            })?;
        if let Some(identity) = raw.identity
            && stable.flatten() == Some(identity)
        {
            let cached = CachedVerification {
                hash: signed.line.hash,
                key: CachedVerification::key_hash(&signed.key.key),
                coverage: signed.coverage,
            };
            cache.put(&identity, &format, started, &cached);
        }
        Ok(VerifiedSignature {
            hash: signed.line.hash,
            signer: signed.key,
            coverage: signed.coverage,
        })
    }
}

/// Applies a function to all inputs on all cores. Returns the results in input order.
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
        // `available_parallelism` costs about twenty system calls, so a single batch skips it.
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
