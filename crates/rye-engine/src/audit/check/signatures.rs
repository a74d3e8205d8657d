//! Verifies signatures, in parallel.

use std::thread;

use lillux::Hash;
use lillux::keys::{PublicKey, Purpose, Signature};

use super::{FindingKind, Verifier};

/// Minimum number of items per thread.
const MIN_CHUNK: usize = 64;

/// A hash with its signature and the key that made it.
pub(super) struct SignedHash<'a> {
    pub(super) purpose: Purpose,
    pub(super) hash: Hash,
    /// Fingerprint of the key.
    pub(super) key: &'a str,
    pub(super) signature: &'a str,
}

/// The problem with a signature, if there is one.
pub(super) type Problem = Option<(FindingKind, String)>;

impl Verifier<'_> {
    /// Verifies signatures and collects their keys.
    pub(super) fn signatures(&mut self, all: &[SignedHash<'_>]) -> Vec<Problem> {
        for SignedHash { key, .. } in all {
            if !self.keys.contains_key(*key) {
                self.keys.insert((*key).to_owned(), (self.key)(key));
                self.verdict.keys.insert((*key).to_owned());
            }
        }
        let keys = &self.keys;
        par_map(all, |it| {
            problem(it, keys.get(it.key).and_then(Option::as_ref))
        })
    }

    /// Reports the problem with a signature.
    pub(super) fn report_problem(&mut self, problem: Problem, location: &impl ToString) {
        if let Some((kind, reason)) = problem {
            self.report(kind, location, reason);
        }
    }
}

fn problem(signed: &SignedHash<'_>, key: Option<&PublicKey>) -> Problem {
    let Some(key) = key else {
        let reason = format!("signed by {}, which is not trusted", signed.key);
        return Some((FindingKind::UnknownKey, reason));
    };
    let signature = signed.signature.parse::<Signature>();
    let is_valid = signature.is_ok_and(|signature| {
        key.verify_for(signed.purpose, &signed.hash, &signature)
            .is_ok()
    });
    (!is_valid).then(|| (FindingKind::Signature, "invalid signature".to_owned()))
}

/// Maps items on all processors, keeping their order.
pub(super) fn par_map<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let map_chunk = |part: &[T]| part.iter().map(&work).collect::<Vec<_>>();
    if items.len() < 2 * MIN_CHUNK {
        return map_chunk(items);
    }
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let size = items.len().div_ceil(threads).max(MIN_CHUNK);
    let (own, others) = items.split_at(size.min(items.len()));
    thread::scope(|scope| {
        let others = others.chunks(size).map(|part| {
            let thread = thread::Builder::new().spawn_scoped(scope, move || map_chunk(part));
            (part, thread)
        });
        let others: Vec<_> = others.collect();
        let mut all = map_chunk(own);
        for (part, thread) in others {
            match thread.map(thread::ScopedJoinHandle::join) {
                Ok(Ok(results)) => all.extend(results),
                Ok(Err(panic)) => std::panic::resume_unwind(panic),
                // The thread could not be started.
                Err(_) => all.extend(map_chunk(part)),
            }
        }
        all
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_their_order() {
        for count in [
            0,
            1,
            MIN_CHUNK,
            2 * MIN_CHUNK - 1,
            2 * MIN_CHUNK,
            2 * MIN_CHUNK + 1,
            1_000,
            9_999,
        ] {
            let items: Vec<_> = (0..count).collect();
            let doubled: Vec<_> = (0..count).map(|it| it * 2).collect();
            assert_eq!(par_map(&items, |it| it * 2), doubled);
        }
    }
}
