//! X25519 key pairs for envelopes.

use std::fmt;
use std::path::Path;

use hpke::{Deserializable, Kem as _, Serializable};
use zeroize::Zeroizing;

use super::cipher::Kem;
use crate::keys::{
    Algorithm, Fingerprint, IfExists, KeyError, KeyPairFiles, KeyTextError, RandomnessError,
    private_from_pem, private_to_pem, public_from_pem, public_to_pem, random, read_private,
    read_public, restore_public, write_pair,
};

/// An X25519 private key, which opens envelopes sealed to its [`SealingKey`].
///
/// Its file is PKCS#8 PEM with the same rules as for a [`SigningKey`](crate::keys::SigningKey).
pub struct OpeningKey {
    // Boxed, so that moving the key leaves no copy on the stack.
    pub(super) key: Box<<Kem as hpke::Kem>::PrivateKey>,
    public: SealingKey,
}

impl OpeningKey {
    /// Generates a key with the operating system's random number generator.
    pub fn generate() -> Result<Self, RandomnessError> {
        let (key, _) = Kem::derive_keypair(random()?.as_slice());
        Ok(Self::new(key))
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
        let parsed = private_from_pem(Algorithm::X25519, text.as_ref())?;
        let key = Deserializable::from_bytes(parsed.key.as_slice())
            .map_err(|_| KeyTextError::Structure)?;
        let key = Self::new(key);
        match parsed.public {
            Some(public) if public != key.public.bytes => Err(KeyTextError::Mismatch),
            _ => Ok(key),
        }
    }

    /// The key as PKCS#8 PEM text, version 1.
    pub fn to_pem(&self) -> Zeroizing<String> {
        let mut bytes = Zeroizing::new([0; 32]);
        self.key.write_exact(bytes.as_mut_slice());
        private_to_pem(Algorithm::X25519, &bytes)
    }

    /// Writes `private_key.pem` and `public_key.pem` into a directory, which is created if it
    /// does not exist.
    pub fn write_pair(&self, dir: &Path, existing: IfExists) -> Result<KeyPairFiles, KeyError> {
        write_pair(dir, &self.to_pem(), &self.public.to_pem(), existing)
    }

    /// The public key of the pair.
    pub fn public(&self) -> &SealingKey {
        &self.public
    }

    fn new(key: <Kem as hpke::Kem>::PrivateKey) -> Self {
        let public = SealingKey::new(Kem::sk_to_pk(&key));
        let key = Box::new(key);
        Self { key, public }
    }
}

impl fmt::Debug for OpeningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpeningKey({})", self.public.fingerprint)
    }
}

/// An X25519 public key, to which secrets are sealed.
#[derive(Clone, PartialEq, Eq)]
pub struct SealingKey {
    pub(super) key: <Kem as hpke::Kem>::PublicKey,
    bytes: [u8; 32],
    fingerprint: Fingerprint,
}

impl SealingKey {
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
    /// Rejects points of low order, because anyone could open envelopes sealed to them.
    pub fn from_pem(text: impl AsRef<[u8]>) -> Result<Self, KeyTextError> {
        let bytes = public_from_pem(Algorithm::X25519, text.as_ref())?;
        if is_low_order(bytes) || !is_canonical(&bytes) {
            return Err(KeyTextError::UnsafePoint);
        }
        let key = Deserializable::from_bytes(&bytes).map_err(|_| KeyTextError::Structure)?;
        Ok(Self::new(key))
    }

    /// The key as canonical PEM text.
    pub fn to_pem(&self) -> String {
        public_to_pem(Algorithm::X25519, &self.bytes)
    }

    /// The fingerprint of the key.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    fn new(key: <Kem as hpke::Kem>::PublicKey) -> Self {
        let bytes = key.to_bytes().into();
        let fingerprint = Fingerprint::from_pem(&public_to_pem(Algorithm::X25519, &bytes));
        Self {
            key,
            bytes,
            fingerprint,
        }
    }
}

impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealingKey({})", self.fingerprint)
    }
}

/// X25519 multiplies by a multiple of 8, which maps exactly the points of low order to zero, for
/// any scalar.
fn is_low_order(point: [u8; 32]) -> bool {
    x25519_dalek::x25519([1; 32], point) == [0; 32]
}

/// Whether the encoded coordinate is below the field prime, 2^255 - 19. A private key yields only
/// canonical encodings, so no key could open an envelope sealed to another one.
fn is_canonical(point: &[u8; 32]) -> bool {
    let [low, middle @ .., high] = point;
    *high < 0x7f || (*high == 0x7f && (middle.iter().any(|b| *b != 0xff) || *low < 0xed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use zeroize::ZeroizeOnDrop;

    fn pem(point: [u8; 32]) -> String {
        public_to_pem(Algorithm::X25519, &point)
    }

    /// The seven encodings below 2^255 that RFC 7748 implementations map to zero, and the same
    /// with the ignored highest bit set.
    #[test]
    fn points_of_low_order_are_rejected() {
        let number = |low: u8, rest: u8, high: u8| {
            let mut point = [rest; 32];
            (point[0], point[31]) = (low, high);
            point
        };
        let order_8 = [
            "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
            "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
        ]
        .map(|hex| {
            std::array::from_fn(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap())
        });
        let mut points = vec![
            number(0, 0, 0),
            number(1, 0, 0),
            number(0xec, 0xff, 0x7f),
            number(0xed, 0xff, 0x7f),
            number(0xee, 0xff, 0x7f),
        ];
        points.extend(order_8);
        for mut point in points {
            assert!(is_low_order(point), "{point:x?}");
            assert_eq!(
                SealingKey::from_pem(pem(point)),
                Err(KeyTextError::UnsafePoint)
            );
            point[31] |= 0x80;
            assert_eq!(
                SealingKey::from_pem(pem(point)),
                Err(KeyTextError::UnsafePoint)
            );
        }
    }

    #[test]
    fn non_canonical_points_are_rejected() {
        let good = OpeningKey::generate().unwrap().public.bytes;
        assert!(SealingKey::from_pem(pem(good)).is_ok());
        let mut beyond = good;
        beyond[31] |= 0x80;
        assert_eq!(
            SealingKey::from_pem(pem(beyond)),
            Err(KeyTextError::UnsafePoint)
        );
        let mut last = [0xff; 32];
        (last[0], last[31]) = (0xeb, 0x7f);
        assert!(is_canonical(&last));
        last[0] = 0xed;
        assert!(!is_canonical(&last));
    }

    #[test]
    fn keys_are_zeroed_when_dropped_and_debug_shows_only_the_fingerprint() {
        fn zeroed<T: ZeroizeOnDrop>(_: &T) {}
        let key = OpeningKey::generate().unwrap();
        zeroed(&key.to_pem());
        let fingerprint = key.public().fingerprint();
        assert_eq!(format!("{key:?}"), format!("OpeningKey({fingerprint})"));
        assert_eq!(
            format!("{:?}", key.public()),
            format!("SealingKey({fingerprint})")
        );
    }
}
