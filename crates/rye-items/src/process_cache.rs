//! What a process that keeps running need not find out twice.
//!
//! Everything here is a pure function of bytes, and is kept by their hash: that
//! a signature is a key's, what a trust file says, what a table or a file's
//! metadata parses to. Whether a key counts, and which file an id means, is
//! asked anew in every call, or everything that told is looked at again
//! ([`Library::is_fresh`](crate::Library::is_fresh)). The
//! files inside the program cannot change while it runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use lillux::Hash;
use lillux::keys::{BadSignature, PublicKey};

use crate::integrity::IntegrityProblem;
use crate::metadata::{Extractors, Metadata};
use crate::signature::{self, SignatureLine};
use crate::space::EmbeddedFile;
use crate::system;
use crate::trust::{Trust, TrustFile, TrustedKey};
use crate::verify::{self, Claim, SignatureFormat};

/// How many entries of a kind are kept; when there are more, all go.
const MOST: usize = 20_000;

/// The memory of a process, shared by its calls. One that was just made is empty.
#[derive(Debug, Default)]
pub struct ProcessCache {
    signatures: Kept<()>,
    pub(crate) trust_files: Kept<Arc<TrustFile>>,
    pub(crate) extractors: Kept<Arc<Extractors>>,
    pub(crate) metadata: Kept<Arc<Metadata>>,
    pub(crate) embedded: EmbeddedFiles,
}

impl ProcessCache {
    /// Checks a signature, or knows that it is good: from before, or from when
    /// this program was built, if it is one of the files inside it.
    pub(crate) fn verify(&self, key: &PublicKey, line: &SignatureLine) -> Result<(), BadSignature> {
        let name = signature::cache_key(key, line);
        if system::SIGNATURES.binary_search(name.as_bytes()).is_ok() {
            return Ok(());
        }
        self.signatures.get(name, || line.verify(key))
    }
}

/// Values by the hash of what they were made from.
#[derive(Debug)]
pub(crate) struct Kept<T>(Mutex<HashMap<Hash, T>>);

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Kept<T> {
    /// The value of a hash, made if it is not there. A failure is not kept.
    pub(crate) fn get<E>(&self, hash: Hash, make: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let kept = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = kept().get(&hash) {
            return Ok(value.clone());
        }
        let value = make()?;
        let mut kept = kept();
        if kept.len() >= MOST {
            kept.clear();
        }
        kept.insert(hash, value.clone());
        Ok(value)
    }
}

/// A file inside the program whose hash is that of its signature line.
#[derive(Debug)]
pub(crate) struct CachedEmbeddedFile {
    form: SignatureFormat,
    pub(crate) claim: Claim,
    pub(crate) bytes: Arc<[u8]>,
    /// The bytes without the signature line.
    pub(crate) content: Arc<[u8]>,
    /// The key whose signature it was found to have.
    signed_by: OnceLock<[u8; 32]>,
}

impl CachedEmbeddedFile {
    /// Whether its key counts now, and the signature is that key's.
    pub(crate) fn verify(&self, trust: &Trust<'_>) -> Result<Arc<TrustedKey>, IntegrityProblem> {
        let line = &self.claim.line;
        let key = verify::trusted_key(line, trust)?;
        if self.signed_by.get() != Some(key.key.as_bytes()) {
            verify::verify_line(line, trust)?;
            let _ = self.signed_by.set(*key.key.as_bytes());
        }
        Ok(key)
    }
}

/// What was found out about the files inside the program, by where they are.
#[derive(Debug, Default)]
pub(crate) struct EmbeddedFiles(Mutex<HashMap<usize, Arc<CachedEmbeddedFile>>>);

impl EmbeddedFiles {
    /// What a file claims, if its hash is right. Whether the key counts is asked elsewhere.
    pub(crate) fn get(
        &self,
        file: &'static EmbeddedFile,
        form: &SignatureFormat,
    ) -> Result<Arc<CachedEmbeddedFile>, IntegrityProblem> {
        let kept = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = std::ptr::from_ref(file).addr();
        if let Some(known) = kept().get(&place).filter(|known| known.form == *form) {
            return Ok(Arc::clone(known));
        }
        let claim = verify::claim(file.bytes, form)?;
        verify::check_binding(&claim.line, form.binding.as_ref())?;
        let (bytes, content): (Arc<[u8]>, Arc<[u8]>) = match claim.element.clone() {
            None => (
                file.bytes.into(),
                signature::strip_signature(file.bytes).into(),
            ),
            Some(range) => {
                let element: Arc<[u8]> = file.bytes[range].into();
                (Arc::clone(&element), element)
            }
        };
        let known = Arc::new(CachedEmbeddedFile {
            form: form.clone(),
            claim,
            bytes,
            content,
            signed_by: OnceLock::new(),
        });
        kept().insert(place, Arc::clone(&known));
        Ok(known)
    }
}

#[cfg(test)]
mod tests {
    use lillux::keys::SigningKey;

    use super::*;
    use crate::signature::Binding;

    #[test]
    fn only_good_signatures_are_remembered_and_only_for_their_own_key_and_hash() {
        let memory = ProcessCache::default();
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
            assert!(memory.verify(one.public(), &good).is_ok());
            assert!(memory.verify(other.public(), &good).is_err());
            for line in &wrong {
                assert!(memory.verify(one.public(), line).is_err(), "{line}");
            }
        }
    }

    #[test]
    fn remembered_bound_signature_is_no_unbound_one_over_the_text_it_covers() {
        let memory = ProcessCache::default();
        let key = SigningKey::generate().unwrap();
        let time = "2026-04-10T03:28:17Z";
        let binding = Binding::item("tools/a.py");
        let hash = Hash::digest("x");
        let bound = SignatureLine::sign(hash, binding.clone(), &key, time, None);
        assert!(memory.verify(key.public(), &bound).is_ok());
        // A file whose bytes are the text that the bound signature's hash was taken of.
        let text = format!("rye-signed-file:v1\n{binding}\n{time}\n{hash}\n");
        let unbound = SignatureLine {
            hash: Hash::digest(text),
            binding: None,
            ..bound
        };
        assert!(memory.verify(key.public(), &unbound).is_err());
    }

    #[test]
    fn what_is_kept_has_an_end() {
        let kept = Kept::default();
        for number in 0..=MOST {
            let made = kept.get(Hash::digest(number.to_string()), || Ok::<_, ()>(number));
            assert_eq!(made, Ok(number));
        }
        assert_eq!(kept.0.lock().unwrap().len(), 1);
    }
}
