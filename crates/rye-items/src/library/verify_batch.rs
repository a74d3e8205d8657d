//! Verifies many files in parallel.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use lillux::Hash;

use super::{ItemError, Library, integrity_error, read};
use crate::item::Coverage;
use crate::lookup::ItemFile;
use crate::trust::TrustedKey;
use crate::verify;

/// A valid signature of a file.
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

/// The number of files a worker thread claims at a time.
const BATCH: usize = 64;

impl Library {
    /// Verifies files in parallel. `progress` is called after each batch with the number of files
    /// done.
    pub fn verify_batch<'a>(
        &'a self,
        files: Vec<ItemFile<'a>>,
        progress: &(dyn Fn(usize) + Sync),
    ) -> Vec<FileVerification<'a>> {
        let trust = &self.trust();
        let outcomes = parallel(&files, progress, |item_file| {
            let raw = read(item_file)?;
            let signed = verify::check(&raw.bytes, &self.format_of(item_file), trust)
                .map_err(|problem| integrity_error(item_file, problem, &raw.bytes))?;
            Ok(VerifiedSignature {
                hash: signed.line.hash,
                signer: signed.key,
                coverage: signed.coverage,
            })
        });
        files.into_iter().zip(outcomes).collect()
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
