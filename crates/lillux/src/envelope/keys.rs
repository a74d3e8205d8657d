//! The X25519 pair of someone to whom secrets are sealed.

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

/// The private half of a pair: it opens what was sealed to the public half.
///
/// Its file is PKCS#8 PEM under the same rules as a
/// [`SigningKey`](crate::keys::SigningKey)'s.
pub struct OpeningKey {
    // On the heap, so that moving the key leaves no copy of it behind.
    pub(super) key: Box<<Kem as hpke::Kem>::PrivateKey>,
    public: SealingKey,
}

impl OpeningKey {
    /// A new key from the operating system's randomness.
    pub fn generate() -> Result<Self, RandomnessError> {
        let (key, _) = Kem::derive_keypair(random()?.as_slice());
        Ok(Self::new(key))
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
        let half = private_from_pem(Algorithm::X25519, text.as_ref())?;
        let key =
            Deserializable::from_bytes(half.key.as_slice()).map_err(|_| KeyTextError::Structure)?;
        let key = Self::new(key);
        match half.public {
            Some(public) if public != key.public.bytes => Err(KeyTextError::Mismatch),
            _ => Ok(key),
        }
    }

    /// PKCS#8 PEM text, version 1.
    pub fn to_pem(&self) -> Zeroizing<String> {
        let mut bytes = Zeroizing::new([0; 32]);
        self.key.write_exact(bytes.as_mut_slice());
        private_to_pem(Algorithm::X25519, &bytes)
    }

    /// Writes `private_key.pem` and `public_key.pem` into a folder, which is made
    /// if it is not there. Both are there afterwards, or the error says why not.
    pub fn write_pair(&self, folder: &Path, existing: IfExists) -> Result<KeyPairFiles, KeyError> {
        write_pair(folder, &self.to_pem(), &self.public.to_pem(), existing)
    }

    /// The public half.
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

/// The public half of a pair: secrets are sealed to it.
#[derive(Clone, PartialEq, Eq)]
pub struct SealingKey {
    pub(super) key: <Kem as hpke::Kem>::PublicKey,
    bytes: [u8; 32],
    fingerprint: Fingerprint,
}

impl SealingKey {
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
    /// The points of low order are refused: what is sealed to them anyone opens.
    pub fn from_pem(text: impl AsRef<[u8]>) -> Result<Self, KeyTextError> {
        let bytes = public_from_pem(Algorithm::X25519, text.as_ref())?;
        if is_low_order(bytes) || !is_canonical(&bytes) {
            return Err(KeyTextError::UnsafePoint);
        }
        let key = Deserializable::from_bytes(&bytes).map_err(|_| KeyTextError::Structure)?;
        Ok(Self::new(key))
    }

    /// The canonical PEM text.
    pub fn to_pem(&self) -> String {
        public_to_pem(Algorithm::X25519, &self.bytes)
    }

    /// The key's short name.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    fn new(key: <Kem as hpke::Kem>::PublicKey) -> Self {
        let bytes = key.to_bytes().into();
        let fingerprint = Fingerprint::of_pem(&public_to_pem(Algorithm::X25519, &bytes));
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

/// X25519 multiplies by a multiple of 8, which takes exactly the points of low
/// order to zero, whatever the scalar.
fn is_low_order(point: [u8; 32]) -> bool {
    x25519_dalek::x25519([1; 32], point) == [0; 32]
}

/// Below the field's prime, 2^255 - 19. A private key leads to no other spelling,
/// so what is sealed to one could not be opened by anyone.
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

    /// The seven spellings below 2^255 that RFC 7748 implementations take to zero, and
    /// the same with the ignored highest bit set.
    #[test]
    fn every_point_of_low_order_is_refused() {
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
    fn a_point_spelled_beyond_the_field_is_refused() {
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
    fn keys_are_zeroed_when_dropped_and_debug_shows_the_fingerprint_only() {
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
