//! Ed25519 keys and signatures.
//!
//! What is signed is a [`Hash`](struct@Hash): the signature is over the 64 ASCII
//! characters of its hex form. Private keys are PKCS#8 PEM files that only their owner may
//! read, public keys `SubjectPublicKeyInfo` PEM, and a public key's short name is
//! its [`Fingerprint`].
//!
//! ```
//! use lillux::Hash;
//! use lillux::keys::{IfExists, PublicKey, SigningKey};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! let files = SigningKey::generate()?.write_pair(&folder.path().join("signing"), IfExists::Fail)?;
//!
//! let hash = Hash::digest(b"what is to be signed");
//! let signature = SigningKey::read(&files.private)?.sign(&hash);
//!
//! let public = PublicKey::read(&files.public)?;
//! assert!(public.verify(&hash, &signature).is_ok());
//! assert!(public.verify(&Hash::digest(b"something else"), &signature).is_err());
//! # Ok(())
//! # }
//! ```
//!
//! # One key, one fingerprint
//!
//! The fingerprint is taken over the canonical PEM text: `-----BEGIN PUBLIC
//! KEY-----`, one line of base64, `-----END PUBLIC KEY-----`, each line ended by a
//! single LF. That is byte for byte what OpenSSL, Python's `cryptography` and
//! [`PublicKey::to_pem`] write. A file with CRLF line ends, without the final newline, with
//! a comment before the block or with its base64 in shorter lines is read as the
//! same key and has the same fingerprint; a file's other text is not part of it.
//!
//! # Secrets in memory and in time
//!
//! Private keys, and every buffer their text or DER passes through, are zeroed
//! when dropped. `Debug` shows fingerprints only, and no error holds bytes of a file.
//!
//! Time must not depend on the secret in three places: signing and the
//! derivation of the public half (`curve25519-dalek` provides it) and the base64 of
//! a private key's text (`base64ct`). Private keys cannot be compared at all.
//! Verifying works on public values only and takes what time it takes.

mod encoding;
mod error;
mod file;
mod fingerprint;
mod pem;
mod random;
mod signature;

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use ed25519_dalek::Signer;
use zeroize::Zeroizing;

use crate::Hash;

pub use crate::durable::IfExists;
pub use error::{Algorithm, KeyError, KeyTextError};
pub use file::KeyPairFiles;
pub use fingerprint::{Fingerprint, ParseFingerprintError};
pub use random::RandomnessError;
pub use signature::{ParseSignatureError, Signature};

pub(crate) use encoding::{private_from_pem, private_to_pem, public_from_pem, public_to_pem};
pub(crate) use file::{read_private, read_public, restore_public, write_pair};
pub(crate) use random::{SecretBytes, random};

/// What a signature is for, such as `decision` or `export`.
///
/// A signature made for a purpose covers `rye-signature:v1:PURPOSE:HASH`, so that a
/// signature under one kind of thing cannot be presented as one under another. A plain
/// signature covers the 64 characters of a hash, which no such message equals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Purpose(&'static str);

impl Purpose {
    /// A purpose by its name. Each kind of signed thing has one constant.
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }

    /// The name.
    pub const fn name(self) -> &'static str {
        self.0
    }

    fn message(self, hash: &Hash) -> String {
        format!("rye-signature:v1:{}:{}", self.0, hash.to_hex())
    }
}

/// Reads a purpose that a user typed: lower-case letters, digits and hyphens. The name
/// stays in memory until the process ends.
impl FromStr for Purpose {
    type Err = ParsePurposeError;

    fn from_str(text: &str) -> Result<Self, ParsePurposeError> {
        let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if text.is_empty() || text.len() > 64 || !text.bytes().all(allowed) {
            return Err(ParsePurposeError);
        }
        Ok(Self(text.to_owned().leak()))
    }
}

/// A text that is not the name of a purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a purpose is 1 to 64 lower-case letters, digits and hyphens")]
pub struct ParsePurposeError;

/// The private half of a pair: it signs.
pub struct SigningKey {
    // On the heap, so that moving the key leaves no copy of it behind.
    key: Box<ed25519_dalek::SigningKey>,
    public: PublicKey,
}

impl SigningKey {
    /// A new key from the operating system's randomness.
    pub fn generate() -> Result<Self, RandomnessError> {
        Ok(Self::from_secret(&*random()?))
    }

    /// Reads a private key's file.
    ///
    /// Refused where group or others have any access to the file.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let text = read_private(path)?;
        Self::from_pem(&text).map_err(|source| KeyError::Unusable {
            path: path.to_owned(),
            source,
        })
    }

    /// Reads the private key of a pair. Where the public half is missing, because writing
    /// the pair was interrupted, it is written if the folder permits it.
    pub fn read_pair(files: &KeyPairFiles) -> Result<Self, KeyError> {
        let key = Self::read(&files.private)?;
        if !files.public.exists() {
            let _ = restore_public(files, || Ok(Self::read(&files.private)?.public.to_pem()));
        }
        Ok(key)
    }

    /// Reads PKCS#8 PEM text, version 1 or 2.
    pub fn from_pem(text: impl AsRef<[u8]>) -> Result<Self, KeyTextError> {
        let half = private_from_pem(Algorithm::Ed25519, text.as_ref())?;
        let key = Self::from_secret(&half.key);
        match half.public {
            Some(public) if public != *key.public.key.as_bytes() => Err(KeyTextError::Mismatch),
            _ => Ok(key),
        }
    }

    /// PKCS#8 PEM text, version 1.
    pub fn to_pem(&self) -> Zeroizing<String> {
        private_to_pem(Algorithm::Ed25519, self.key.as_bytes())
    }

    /// Writes `private_key.pem` and `public_key.pem` into a folder, which is made
    /// if it is not there. Both are there afterwards, or the error says why not.
    pub fn write_pair(&self, folder: &Path, existing: IfExists) -> Result<KeyPairFiles, KeyError> {
        write_pair(folder, &self.to_pem(), &self.public.to_pem(), existing)
    }

    /// The public half.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Signs a hash: the 64 characters of its hex form.
    pub fn sign(&self, hash: &Hash) -> Signature {
        Signature::from_bytes(self.key.sign(hash.to_hex().as_bytes()).to_bytes())
    }

    /// Signs a hash for one purpose: the signature does not verify for any other purpose,
    /// nor as a plain signature.
    pub fn sign_for(&self, purpose: Purpose, hash: &Hash) -> Signature {
        Signature::from_bytes(self.key.sign(purpose.message(hash).as_bytes()).to_bytes())
    }

    fn from_secret(secret: &[u8; 32]) -> Self {
        let key = Box::new(ed25519_dalek::SigningKey::from_bytes(secret));
        let public = PublicKey::new(key.verifying_key());
        Self { key, public }
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.public.fingerprint)
    }
}

/// The public half of a pair: it verifies.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    key: ed25519_dalek::VerifyingKey,
    fingerprint: Fingerprint,
}

impl PublicKey {
    /// Reads a public key's file.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let text = read_public(path)?;
        Self::from_pem(&text).map_err(|source| KeyError::Unusable {
            path: path.to_owned(),
            source,
        })
    }

    /// Reads `SubjectPublicKeyInfo` PEM text.
    ///
    /// Bytes that are no point of the curve are refused, and so are the points of
    /// low order, with which anyone can sign anything.
    pub fn from_pem(text: impl AsRef<[u8]>) -> Result<Self, KeyTextError> {
        let bytes = public_from_pem(Algorithm::Ed25519, text.as_ref())?;
        let key = ed25519_dalek::VerifyingKey::from_bytes(&bytes);
        let key = key.map_err(|_| KeyTextError::UnsafePoint)?;
        if key.is_weak() || !is_canonical(&bytes) {
            return Err(KeyTextError::UnsafePoint);
        }
        Ok(Self::new(key))
    }

    /// The canonical PEM text.
    pub fn to_pem(&self) -> String {
        public_to_pem(Algorithm::Ed25519, self.key.as_bytes())
    }

    /// The raw 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        self.key.as_bytes()
    }

    /// The key's short name.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Checks a signature over a hash.
    ///
    /// Strict: a signature that some verifiers accept and others do not (a low-order
    /// R, a non-canonical S) is refused.
    pub fn verify(&self, hash: &Hash, signature: &Signature) -> Result<(), BadSignature> {
        self.verify_message(&hash.to_hex(), signature)
    }

    /// Checks a signature over a hash that was made for a purpose, as strictly as
    /// [`verify`](Self::verify).
    pub fn verify_for(
        &self,
        purpose: Purpose,
        hash: &Hash,
        signature: &Signature,
    ) -> Result<(), BadSignature> {
        self.verify_message(&purpose.message(hash), signature)
    }

    fn verify_message(&self, message: &str, signature: &Signature) -> Result<(), BadSignature> {
        let signature = ed25519_dalek::Signature::from_bytes(signature.as_bytes());
        self.key
            .verify_strict(message.as_bytes(), &signature)
            .map_err(|_| BadSignature(self.fingerprint))
    }

    fn new(key: ed25519_dalek::VerifyingKey) -> Self {
        let fingerprint = Fingerprint::of_pem(&public_to_pem(Algorithm::Ed25519, key.as_bytes()));
        Self { key, fingerprint }
    }
}

/// Whether a point's coordinate is below 2^255 - 19. Spelled with one beyond the
/// field it would be the same key under another fingerprint. The other spelling
/// that a point can have, a sign where there is nothing to sign, is only of points
/// of low order.
fn is_canonical(point: &[u8; 32]) -> bool {
    let [lowest, middle @ .., highest] = point;
    let is_beyond =
        highest & 0x7f == 0x7f && middle.iter().all(|byte| *byte == 0xff) && *lowest >= 0xed;
    !is_beyond
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.fingerprint)
    }
}

/// A signature that is not this key's over this hash.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the signature is not one of key {0} over this hash")]
pub struct BadSignature(pub Fingerprint);

#[cfg(test)]
mod tests;
