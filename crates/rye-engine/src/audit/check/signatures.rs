//! Whether signatures are good.

use std::thread;

use lillux::Hash;
use lillux::keys::{PublicKey, Purpose, Signature};

use super::{Check, FindingKind};

/// So many are one thread's work at least.
const FEW: usize = 64;

/// What somebody signed.
pub(super) struct Signed<'a> {
    pub(super) purpose: Purpose,
    pub(super) hash: Hash,
    /// The fingerprint of the key.
    pub(super) key: &'a str,
    pub(super) signature: &'a str,
}

/// What is wrong with a signature, if anything is.
pub(super) type Wrong = Option<(FindingKind, String)>;

impl Check<'_> {
    /// Looks at each of them.
    pub(super) fn signatures(&mut self, all: &[Signed<'_>]) -> Vec<Wrong> {
        for Signed { key, .. } in all {
            if !self.keys.contains_key(*key) {
                self.keys.insert((*key).to_owned(), (self.key)(key));
                self.verdict.keys.insert((*key).to_owned());
            }
        }
        let keys = &self.keys;
        each(all, |it| {
            wrong(it, keys.get(it.key).and_then(Option::as_ref))
        })
    }

    /// Notes down what is wrong with a signature.
    pub(super) fn note(&mut self, wrong: Wrong, location: &impl ToString) {
        if let Some((kind, reason)) = wrong {
            self.report(kind, location, reason);
        }
    }
}

fn wrong(signed: &Signed<'_>, key: Option<&PublicKey>) -> Wrong {
    let Some(key) = key else {
        let why = format!("it is signed by {}, which is not trusted", signed.key);
        return Some((FindingKind::UnknownKey, why));
    };
    let signature = signed.signature.parse::<Signature>();
    let is_good = signature.is_ok_and(|signature| {
        key.verify_for(signed.purpose, &signed.hash, &signature)
            .is_ok()
    });
    (!is_good).then(|| (FindingKind::Signature, "its signature is wrong".to_owned()))
}

/// Does the same with each, on all processors, and gives the results in their order.
pub(super) fn each<T: Sync, R: Send>(things: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let do_all = |part: &[T]| part.iter().map(&work).collect::<Vec<_>>();
    if things.len() < 2 * FEW {
        return do_all(things);
    }
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let size = things.len().div_ceil(threads).max(FEW);
    let (own, others) = things.split_at(size.min(things.len()));
    thread::scope(|scope| {
        let others = others.chunks(size).map(|part| {
            let thread = thread::Builder::new().spawn_scoped(scope, move || do_all(part));
            (part, thread)
        });
        let others: Vec<_> = others.collect();
        let mut all = do_all(own);
        for (part, thread) in others {
            match thread.map(thread::ScopedJoinHandle::join) {
                Ok(Ok(results)) => all.extend(results),
                Ok(Err(panic)) => std::panic::resume_unwind(panic),
                // No thread could be had.
                Err(_) => all.extend(do_all(part)),
            }
        }
        all
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_stand_in_the_order_of_what_they_are_of() {
        for count in [0, 1, FEW, 2 * FEW - 1, 2 * FEW, 2 * FEW + 1, 1_000, 9_999] {
            let things: Vec<_> = (0..count).collect();
            let doubled: Vec<_> = (0..count).map(|it| it * 2).collect();
            assert_eq!(each(&things, |it| it * 2), doubled);
        }
    }
}
