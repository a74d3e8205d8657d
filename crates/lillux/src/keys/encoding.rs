//! Curve25519 keys as PEM text: PKCS#8 for private keys, `SubjectPublicKeyInfo` for public keys
//! (RFC 8410).
//!
//! Private keys are written as PKCS#8 version 1, 48 bytes of DER, which every tool reads.
//! Version 2, which also contains the public key, is read but not written, because OpenSSL 3.0
//! rejects it.

use pkcs8::der::Decode;
use pkcs8::spki::{AlgorithmIdentifierRef, SubjectPublicKeyInfoRef};
use pkcs8::{ObjectIdentifier, PrivateKeyInfoRef};
use zeroize::Zeroizing;

use super::error::{Algorithm, KeyTextError};
use super::pem::{self, Block, Label};
use super::random::SecretBytes;

/// Names of algorithms for error messages.
const ALGORITHM_NAMES: [(ObjectIdentifier, &str); 9] = [
    (ObjectIdentifier::new_unwrap("1.3.101.110"), "X25519"),
    (ObjectIdentifier::new_unwrap("1.3.101.111"), "X448"),
    (ObjectIdentifier::new_unwrap("1.3.101.112"), "Ed25519"),
    (ObjectIdentifier::new_unwrap("1.3.101.113"), "Ed448"),
    (ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1"), "RSA"),
    (
        ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.10"),
        "RSA-PSS",
    ),
    (ObjectIdentifier::new_unwrap("1.2.840.10045.2.1"), "EC"),
    (ObjectIdentifier::new_unwrap("1.2.840.10040.4.1"), "DSA"),
    (ObjectIdentifier::new_unwrap("1.2.840.113549.1.3.1"), "DH"),
];

impl Algorithm {
    /// The last arc of the object identifier, 1.3.101.*.
    const fn arc(self) -> u8 {
        match self {
            Self::X25519 => 110,
            Self::Ed25519 => 112,
        }
    }

    const fn oid(self) -> ObjectIdentifier {
        match self {
            Self::X25519 => ObjectIdentifier::new_unwrap("1.3.101.110"),
            Self::Ed25519 => ObjectIdentifier::new_unwrap("1.3.101.112"),
        }
    }
}

/// Writes a private key as PEM text.
pub(crate) fn private_to_pem(algorithm: Algorithm, key: &[u8; 32]) -> Zeroizing<String> {
    let mut der = Zeroizing::new([0; 48]);
    let arc = algorithm.arc();
    let head = [
        0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, arc, 4, 0x22, 4, 0x20,
    ];
    der[..16].copy_from_slice(&head);
    der[16..].copy_from_slice(key);
    pem::write("PRIVATE KEY", der.as_slice())
}

/// Writes a public key as canonical PEM text, from which the fingerprint is computed.
pub(crate) fn public_to_pem(algorithm: Algorithm, key: &[u8; 32]) -> String {
    let mut der = [0; 44];
    let arc = algorithm.arc();
    der[..12].copy_from_slice(&[0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, arc, 3, 0x21, 0]);
    der[12..].copy_from_slice(key);
    // A public key need not be zeroed.
    pem::write("PUBLIC KEY", &der).as_str().to_owned()
}

/// A parsed private key.
pub(crate) struct ParsedPrivateKey {
    pub(crate) key: SecretBytes,
    /// Present in PKCS#8 version 2.
    pub(crate) public: Option<[u8; 32]>,
}

/// Parses a private key from PEM text.
pub(crate) fn private_from_pem(
    needed: Algorithm,
    text: &[u8],
) -> Result<ParsedPrivateKey, KeyTextError> {
    let block = Block::find(text)?;
    match block.label {
        Label::Private => {}
        Label::Public => return Err(KeyTextError::PublicForPrivate),
        other => return Err(wrong_label(other, needed)),
    }
    let der = block.decode()?;
    let info = PrivateKeyInfoRef::try_from(der.as_slice()).map_err(|_| KeyTextError::Structure)?;
    check_algorithm(&info.algorithm, needed)?;
    // RFC 8410 wraps the 32 bytes in an OCTET STRING: tag 4, length 32.
    let [4, 32, inner @ ..] = info.private_key.as_bytes() else {
        return Err(KeyTextError::Structure);
    };
    let mut key = SecretBytes::default();
    if inner.len() != key.len() {
        return Err(KeyTextError::Structure);
    }
    key.copy_from_slice(inner);
    let public = info
        .public_key
        .map(|bits| point(bits.as_bytes()))
        .transpose()?;
    Ok(ParsedPrivateKey { key, public })
}

/// Parses a public key from PEM text.
pub(crate) fn public_from_pem(needed: Algorithm, text: &[u8]) -> Result<[u8; 32], KeyTextError> {
    let block = Block::find(text)?;
    match block.label {
        Label::Public => {}
        Label::Private | Label::Encrypted => return Err(KeyTextError::PrivateForPublic),
        other => return Err(wrong_label(other, needed)),
    }
    let der = block.decode()?;
    let info = SubjectPublicKeyInfoRef::from_der(&der).map_err(|_| KeyTextError::Structure)?;
    check_algorithm(&info.algorithm, needed)?;
    point(info.subject_public_key.as_bytes())
}

fn wrong_label(label: Label, needed: Algorithm) -> KeyTextError {
    match label {
        Label::Algorithm(found) => KeyTextError::OtherAlgorithm { found, needed },
        Label::Other(block) => KeyTextError::OtherBlock(block),
        Label::Encrypted => KeyTextError::Encrypted,
        Label::Private => KeyTextError::PrivateForPublic,
        Label::Public => KeyTextError::PublicForPrivate,
    }
}

/// The algorithm must be the needed one, without parameters: otherwise a key would have several
/// encodings.
fn check_algorithm(
    algorithm: &AlgorithmIdentifierRef<'_>,
    needed: Algorithm,
) -> Result<(), KeyTextError> {
    if algorithm.oid != needed.oid() {
        let known = ALGORITHM_NAMES
            .iter()
            .find(|(oid, _)| *oid == algorithm.oid);
        let found = known.map_or("another algorithm", |(_, name)| name);
        return Err(KeyTextError::OtherAlgorithm { found, needed });
    }
    match algorithm.parameters {
        None => Ok(()),
        Some(_) => Err(KeyTextError::Structure),
    }
}

fn point(bytes: Option<&[u8]>) -> Result<[u8; 32], KeyTextError> {
    bytes
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or(KeyTextError::Structure)
}
