//! Ed25519 keys and signatures.
//!
//! A signature covers the 64 ASCII characters of a [`Hash`](struct@Hash) in hex. Private keys
//! are PKCS#8 PEM files that only their owner may read, public keys are `SubjectPublicKeyInfo`
//! PEM files, and a [`Fingerprint`] is the short name of a public key.
//!
//! ```
//! use lillux::Hash;
//! use lillux::keys::{IfExists, PublicKey, SigningKey};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! let files = SigningKey::generate()?.write_pair(&dir.path().join("signing"), IfExists::Fail)?;
//!
//! let hash = Hash::digest(b"release 1.0");
//! let signature = SigningKey::read(&files.private)?.sign(&hash);
//!
//! let public = PublicKey::read(&files.public)?;
//! assert!(public.verify(&hash, &signature).is_ok());
//! assert!(public.verify(&Hash::digest(b"release 1.1"), &signature).is_err());
//! # Ok(())
//! # }
//! ```
//!
//! # One key, one fingerprint
//!
//! The fingerprint is computed from the canonical PEM text: `-----BEGIN PUBLIC KEY-----`, one
//! line of base64, `-----END PUBLIC KEY-----`, each line ended by a single LF. OpenSSL, Python's
//! `cryptography` and [`PublicKey::to_pem`] write exactly this text. A file with CRLF line
//! endings, without the final newline, with text around the block or with shorter base64 lines
//! contains the same key and has the same fingerprint.
//!
//! # Secrets in memory and timing
//!
//! Private keys, and all buffers for their text and DER, are zeroed when dropped. `Debug` shows
//! only fingerprints, and no error contains bytes of a file.
//!
//! Operations on secrets run in constant time: signing and deriving the public key
//! (`curve25519-dalek`) and the base64 of private key files (`base64ct`). Private keys cannot be
//! compared. Verifying uses only public values and is not constant-time.

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
/// A signature for a purpose covers `rye-signature:v1:PURPOSE:HASH`, so that it is not valid for
/// another purpose. A plain signature covers the 64 characters of a hash, which no such message
/// equals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Purpose(&'static str);

impl Purpose {
    /// Creates a purpose. Define one constant for each kind of signed data.
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }

    /// The name of the purpose.
    pub const fn name(self) -> &'static str {
        self.0
    }

    fn message(self, hash: &Hash) -> String {
        format!("rye-signature:v1:{}:{}", self.0, hash.to_hex())
    }
}

/// Parses a purpose that a user typed: lower-case letters, digits and hyphens. The name is
/// leaked.
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

/// Error of parsing a [`Purpose`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a purpose is 1 to 64 lower-case letters, digits and hyphens")]
pub struct ParsePurposeError;

/// An Ed25519 private key.
pub struct SigningKey {
    // Boxed, so that moving the key leaves no copy on the stack.
    key: Box<ed25519_dalek::SigningKey>,
    public: PublicKey,
}

impl SigningKey {
    /// Generates a key with the operating system's random number generator.
    pub fn generate() -> Result<Self, RandomnessError> {
        Ok(Self::from_secret(&*random()?))
    }

    /// Reads a private key file. Fails if group or others have any access to the file.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let text = read_private(path)?;
        Self::from_pem(&text).map_err(|source| KeyError::Unusable {
            path: path.to_owned(),
            source,
        })
    }

    /// Reads the private key of a pair. If the public key file is missing, because writing the
    /// pair was interrupted, tries to restore it.
    pub fn read_pair(files: &KeyPairFiles) -> Result<Self, KeyError> {
        let key = Self::read(&files.private)?;
        if !files.public.exists() {
            let _ = restore_public(files, || Ok(Self::read(&files.private)?.public.to_pem()));
        }
        Ok(key)
    }

    /// Parses PKCS#8 PEM text, version 1 or 2.
    pub fn from_pem(text: impl AsRef<[u8]>) -> Result<Self, KeyTextError> {
        let parsed = private_from_pem(Algorithm::Ed25519, text.as_ref())?;
        let key = Self::from_secret(&parsed.key);
        match parsed.public {
            Some(public) if public != *key.public.key.as_bytes() => Err(KeyTextError::Mismatch),
            _ => Ok(key),
        }
    }

    /// The key as PKCS#8 PEM text, version 1.
    pub fn to_pem(&self) -> Zeroizing<String> {
        private_to_pem(Algorithm::Ed25519, self.key.as_bytes())
    }

    /// Writes `private_key.pem` and `public_key.pem` into a directory, which is created if it
    /// does not exist.
    pub fn write_pair(&self, dir: &Path, existing: IfExists) -> Result<KeyPairFiles, KeyError> {
        write_pair(dir, &self.to_pem(), &self.public.to_pem(), existing)
    }

    /// The public key of the pair.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Signs the 64 hex characters of a hash.
    pub fn sign(&self, hash: &Hash) -> Signature {
        Signature::from_bytes(self.key.sign(hash.to_hex().as_bytes()).to_bytes())
    }

    /// Signs a hash for a purpose. The signature is not valid for another purpose or without
    /// one.
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

/// An Ed25519 public key.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    key: ed25519_dalek::VerifyingKey,
    fingerprint: Fingerprint,
}

impl PublicKey {
    /// Reads a public key file.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let text = read_public(path)?;
        Self::from_pem(&text).map_err(|source| KeyError::Unusable {
            path: path.to_owned(),
            source,
        })
    }

    /// Parses `SubjectPublicKeyInfo` PEM text.
    ///
    /// Rejects bytes that are not a point of the curve, and points of low order, for which
    /// anyone can forge signatures.
    pub fn from_pem(text: impl AsRef<[u8]>) -> Result<Self, KeyTextError> {
        let bytes = public_from_pem(Algorithm::Ed25519, text.as_ref())?;
        let key = ed25519_dalek::VerifyingKey::from_bytes(&bytes);
        let key = key.map_err(|_| KeyTextError::UnsafePoint)?;
        if key.is_weak() || !is_canonical(&bytes) {
            return Err(KeyTextError::UnsafePoint);
        }
        Ok(Self::new(key))
    }

    /// The key as canonical PEM text.
    pub fn to_pem(&self) -> String {
        public_to_pem(Algorithm::Ed25519, self.key.as_bytes())
    }

    /// The 32 bytes of the key.
    pub fn as_bytes(&self) -> &[u8; 32] {
        self.key.as_bytes()
    }

    /// The fingerprint of the key.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Verifies a signature over a hash.
    ///
    /// Strict: rejects signatures that only some verifiers accept (low-order R, non-canonical S).
    pub fn verify(&self, hash: &Hash, signature: &Signature) -> Result<(), BadSignature> {
        self.verify_message(&hash.to_hex(), signature)
    }

    /// Verifies a signature that was made for a purpose, as strictly as
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
        let fingerprint = Fingerprint::from_pem(&public_to_pem(Algorithm::Ed25519, key.as_bytes()));
        Self { key, fingerprint }
    }
}

/// Whether the encoded coordinate is below the field prime, 2^255 - 19. Otherwise the same key
/// would have a second fingerprint. The other non-canonical encoding, a sign bit on a zero
/// coordinate, exists only for points of low order.
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

/// Error of verifying a signature: the key did not sign this hash.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a valid signature of key {0} over this hash")]
pub struct BadSignature(pub Fingerprint);

#[cfg(test)]
mod tests;
