//! Caches verification and parsing results for the lifetime of the process.
//!
//! Every entry is a pure function of bytes and is keyed by their hash: valid signatures, parsed
//! trust files, extractor tables and metadata. Whether a key is trusted, and which file an id
//! resolves to, is not cached: each call determines it again.

use std::collections::HashMap;
use std::sync::Arc;

use lillux::Hash;
use lillux::keys::{BadSignature, PublicKey};
use parking_lot::Mutex;

use crate::metadata::{Extractors, Metadata};
use crate::signature::{self, SignatureLine};
use crate::system;
use crate::trust::TrustFile;

/// The maximum number of entries per cache. A full cache is cleared.
const MAX_ENTRIES: usize = 20_000;

/// A cache that all calls of a process share.
#[derive(Debug, Default)]
pub struct ProcessCache {
    signatures: HashCache<()>,
    pub(crate) trust_files: HashCache<Arc<TrustFile>>,
    pub(crate) extractors: HashCache<Arc<Extractors>>,
    pub(crate) metadata: HashCache<Arc<Metadata>>,
}

impl ProcessCache {
    /// Verifies a signature, unless it was verified before or, for an embedded file, at build
    /// time.
    pub(crate) fn verify(&self, key: &PublicKey, line: &SignatureLine) -> Result<(), BadSignature> {
        let cache_key = signature::cache_key(key, line);
        if system::SIGNATURES
            .binary_search(cache_key.as_bytes())
            .is_ok()
        {
            return Ok(());
        }
        self.signatures.get(cache_key, || line.verify(key))
    }
}

/// Values by the hash of their input.
#[derive(Debug)]
pub(crate) struct HashCache<T>(Mutex<HashMap<Hash, T>>);

impl<T> Default for HashCache<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> HashCache<T> {
    /// Returns the cached value, or computes and caches it. Errors are not cached.
    pub(crate) fn get<E>(
        &self,
        hash: Hash,
        compute: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        if let Some(value) = self.0.lock().get(&hash) {
            return Ok(value.clone());
        }
        let value = compute()?;
        let mut entries = self.0.lock();
        if entries.len() >= MAX_ENTRIES {
            entries.clear();
        }
        entries.insert(hash, value.clone());
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use lillux::keys::SigningKey;

    use super::*;
    use crate::signature::Binding;

    #[test]
    fn only_valid_signatures_are_cached_per_key_and_content() {
        let cache = ProcessCache::default();
        let (one, other) = (
            SigningKey::generate().unwrap(),
            SigningKey::generate().unwrap(),
        );
        let time = "2026-04-10T03:28:17Z";
        let binding = Binding::item("tools/a.py");
        let good = SignatureLine::sign(Hash::digest("x"), binding, &one, time, None);
        let wrong = [
            SignatureLine {
                hash: Hash::digest("y"),
                ..good.clone()
            },
            SignatureLine {
                binding: Some(Binding::item("tools/b.py")),
                ..good.clone()
            },
            SignatureLine {
                time: "2026-04-11T03:28:17Z".to_owned(),
                ..good.clone()
            },
            SignatureLine {
                provenance: Some("a@b".to_owned()),
                ..good.clone()
            },
            SignatureLine {
                binding: None,
                ..good.clone()
            },
        ];
        for _ in 0..2 {
            assert!(cache.verify(one.public(), &good).is_ok());
            assert!(cache.verify(other.public(), &good).is_err());
            for line in &wrong {
                assert!(cache.verify(one.public(), line).is_err(), "{line}");
            }
        }
    }

    #[test]
    fn cached_bound_signature_does_not_validate_an_unbound_one() {
        let cache = ProcessCache::default();
        let key = SigningKey::generate().unwrap();
        let time = "2026-04-10T03:28:17Z";
        let binding = Binding::item("tools/a.py");
        let hash = Hash::digest("x");
        let bound = SignatureLine::sign(hash, binding.clone(), &key, time, None);
        assert!(cache.verify(key.public(), &bound).is_ok());
        // A file that contains the text which the bound signature covers.
        let text = format!("rye-signed-file:v1\n{binding}\n{time}\n{hash}\n");
        let unbound = SignatureLine {
            hash: Hash::digest(text),
            binding: None,
            ..bound
        };
        assert!(cache.verify(key.public(), &unbound).is_err());
    }

    #[test]
    fn full_cache_is_cleared() {
        let cache = HashCache::default();
        for number in 0..=MAX_ENTRIES {
            let value = cache.get(Hash::digest(number.to_string()), || Ok::<_, ()>(number));
            assert_eq!(value, Ok(number));
        }
        assert_eq!(cache.0.lock().len(), 1);
    }
}
