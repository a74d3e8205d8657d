//! The cryptography of an envelope: a random content key, wrapped for each recipient with HPKE,
//! encrypts the payload.

use chacha20poly1305::{AeadInOut, ChaCha20Poly1305, KeyInit, Nonce};
use hpke::aead::ChaCha20Poly1305 as HpkeAead;
use hpke::kdf::HkdfSha256;
use hpke::{Deserializable, OpModeR, OpModeS, Serializable};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::keys::{OpeningKey, SealingKey};
use crate::keys::{RandomnessError, SecretBytes, random};

/// RFC 9180's DHKEM(X25519, HKDF-SHA256).
pub(super) type Kem = hpke::kem::X25519HkdfSha256;

/// HPKE info string, which separates envelopes from other uses of the same keys.
const INFO: &[u8] = b"lillux envelope v1";

const COMMITMENT: &[u8] = b"lillux envelope v1 commitment";

/// Length of the authentication tag in bytes.
pub(super) const TAG: usize = 16;

/// Encryption or decryption failed: wrong key, or the data was changed.
pub(super) struct CipherError;

/// The key that encrypts the payload of one envelope. Used only once.
pub(super) struct ContentKey(SecretBytes);

/// A content key that is encrypted for one recipient.
pub(super) struct WrappedKey {
    pub(super) encapsulated: [u8; 32],
    pub(super) key: [u8; 48],
}

impl ContentKey {
    pub(super) fn generate() -> Result<Self, RandomnessError> {
        Ok(Self(random()?))
    }

    /// Encrypts the key for a recipient with HPKE in base mode.
    pub(super) fn wrap(&self, recipient: &SealingKey) -> Result<WrappedKey, CipherError> {
        let (encapsulated, wrapped) = hpke::single_shot_seal::<HpkeAead, HkdfSha256, Kem>(
            &OpModeS::Base,
            &recipient.key,
            INFO,
            self.0.as_slice(),
            b"",
        )
        .map_err(|_| CipherError)?;
        Ok(WrappedKey {
            encapsulated: encapsulated.to_bytes().into(),
            key: wrapped.try_into().map_err(|_| CipherError)?,
        })
    }

    pub(super) fn unwrap(wrapped: &WrappedKey, key: &OpeningKey) -> Result<Self, CipherError> {
        let encapsulated =
            Deserializable::from_bytes(&wrapped.encapsulated).map_err(|_| CipherError)?;
        let opened = hpke::single_shot_open::<HpkeAead, HkdfSha256, Kem>(
            &OpModeR::Base,
            &key.key,
            &encapsulated,
            INFO,
            &wrapped.key,
            b"",
        );
        let opened = Zeroizing::new(opened.map_err(|_| CipherError)?);
        let mut content_key = SecretBytes::default();
        if opened.len() != content_key.len() {
            return Err(CipherError);
        }
        content_key.copy_from_slice(&opened);
        Ok(Self(content_key))
    }

    /// A commitment to the key that does not reveal it. `ChaCha20-Poly1305` is not
    /// key-committing: a sender could construct a ciphertext that decrypts to different secrets
    /// under different content keys, and give each recipient another key.
    pub(super) fn commitment(&self) -> [u8; 32] {
        let sha = Sha256::new().chain_update(COMMITMENT);
        sha.chain_update(self.0.as_slice()).finalize().into()
    }

    /// Encrypts the payload. The nonce is zero, because the key is random and used only once.
    pub(super) fn encrypt(self, payload: &[u8], associated: &[u8]) -> Result<Vec<u8>, CipherError> {
        let mut buffer = Zeroizing::new(Vec::with_capacity(payload.len() + TAG));
        buffer.extend_from_slice(payload);
        self.cipher()
            .encrypt_in_place(&Nonce::default(), associated, &mut *buffer)
            .map_err(|_| CipherError)?;
        Ok(std::mem::take(&mut *buffer))
    }

    pub(super) fn decrypt(
        self,
        ciphertext: &[u8],
        associated: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, CipherError> {
        let mut buffer = Zeroizing::new(ciphertext.to_vec());
        self.cipher()
            .decrypt_in_place(&Nonce::default(), associated, &mut *buffer)
            .map_err(|_| CipherError)?;
        Ok(buffer)
    }

    fn cipher(&self) -> ChaCha20Poly1305 {
        ChaCha20Poly1305::new((&**self.0).into())
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use hpke::Kem as _;
    use hpke::rand_core::{TryCryptoRng, TryRng};

    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits = |i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(digits).collect()
    }

    /// Returns the bytes of a test vector as random bytes.
    struct FixedRng(Vec<u8>);

    impl TryRng for FixedRng {
        type Error = Infallible;

        fn try_next_u32(&mut self) -> Result<u32, Infallible> {
            panic!("only try_fill_bytes is used")
        }

        fn try_next_u64(&mut self) -> Result<u64, Infallible> {
            panic!("only try_fill_bytes is used")
        }

        fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Infallible> {
            out.copy_from_slice(&std::mem::take(&mut self.0));
            Ok(())
        }
    }

    impl TryCryptoRng for FixedRng {}

    /// RFC 9180, appendix A.2.1: base mode, this suite, sequence number 0.
    #[test]
    fn suite_agrees_with_the_rfc_9180_vector() {
        let info = bytes("4f6465206f6e2061204772656369616e2055726e");
        let payload = bytes("4265617574792069732074727574682c20747275746820626561757479");
        let associated = bytes("436f756e742d30");
        let expected = bytes(
            "1c5250d8034ec2b784ba2cfd69dbdb8af406cfe3ff938e131f0def8c8b60b4db21993c62ce81883d2dd1b51a28",
        );
        let recipient = bytes("1ac01f181fdf9f352797655161c58b75c656a6cc2716dcb66372da835542e1df");
        let (private, public) = Kem::derive_keypair(&recipient);
        assert_eq!(
            public.to_bytes().to_vec(),
            bytes("4310ee97d88cc1f088a5576c77ab0cf5c3ac797f3d95139c6c84b5429c59662a")
        );

        let ephemeral = "909a9b35d3dc4713a5e72a4da274b55d3d3821a37e5d099e74a647db583a904b";
        let (encapsulated, sealed) = hpke::single_shot_seal_with_rng::<HpkeAead, HkdfSha256, Kem>(
            &OpModeS::Base,
            &public,
            &info,
            &payload,
            &associated,
            &mut FixedRng(bytes(ephemeral)),
        )
        .unwrap();
        assert_eq!(
            encapsulated.to_bytes().to_vec(),
            bytes("1afa08d3dec047a643885163f1180476fa7ddb54c6a8029ea33f95796bf2ac4a")
        );
        assert_eq!(sealed, expected);

        let opened = hpke::single_shot_open::<HpkeAead, HkdfSha256, Kem>(
            &OpModeR::Base,
            &private,
            &encapsulated,
            &info,
            &expected,
            &associated,
        );
        assert_eq!(opened.unwrap(), payload);
    }
}
