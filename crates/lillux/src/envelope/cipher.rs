//! The two layers of an envelope, without its form: a random content key wrapped
//! for each recipient by HPKE, and the payload under the content key.

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

/// Keeps what is wrapped here apart from every other use of the same keys.
const INFO: &[u8] = b"lillux envelope v1";

const COMMITMENT: &[u8] = b"lillux envelope v1 commitment";

/// What the authentication tag adds to a payload.
pub(super) const TAG: usize = 16;

/// The ciphers refused: not made with this key, or changed since.
pub(super) struct Refused;

/// The key of one envelope's payload. Used for one payload and then dropped.
pub(super) struct ContentKey(SecretBytes);

/// A content key as one recipient gets it.
pub(super) struct Wrapped {
    pub(super) encapsulated: [u8; 32],
    pub(super) key: [u8; 48],
}

impl ContentKey {
    pub(super) fn generate() -> Result<Self, RandomnessError> {
        Ok(Self(random()?))
    }

    /// HPKE in base mode, one message.
    pub(super) fn wrap(&self, recipient: &SealingKey) -> Result<Wrapped, Refused> {
        let (encapsulated, wrapped) = hpke::single_shot_seal::<HpkeAead, HkdfSha256, Kem>(
            &OpModeS::Base,
            &recipient.key,
            INFO,
            self.0.as_slice(),
            b"",
        )
        .map_err(|_| Refused)?;
        Ok(Wrapped {
            encapsulated: encapsulated.to_bytes().into(),
            key: wrapped.try_into().map_err(|_| Refused)?,
        })
    }

    pub(super) fn unwrap(wrapped: &Wrapped, key: &OpeningKey) -> Result<Self, Refused> {
        let encapsulated =
            Deserializable::from_bytes(&wrapped.encapsulated).map_err(|_| Refused)?;
        let opened = hpke::single_shot_open::<HpkeAead, HkdfSha256, Kem>(
            &OpModeR::Base,
            &key.key,
            &encapsulated,
            INFO,
            &wrapped.key,
            b"",
        );
        let opened = Zeroizing::new(opened.map_err(|_| Refused)?);
        let mut content_key = SecretBytes::default();
        if opened.len() != content_key.len() {
            return Err(Refused);
        }
        content_key.copy_from_slice(&opened);
        Ok(Self(content_key))
    }

    /// Names the key without telling it. `ChaCha20-Poly1305` alone does not: one
    /// could make a ciphertext that opens to different secrets under different
    /// content keys, and give each recipient another.
    pub(super) fn commitment(&self) -> [u8; 32] {
        let sha = Sha256::new().chain_update(COMMITMENT);
        sha.chain_update(self.0.as_slice()).finalize().into()
    }

    /// Encrypts the payload. The nonce is zero: the key is random and never used again.
    pub(super) fn encrypt(self, payload: &[u8], associated: &[u8]) -> Result<Vec<u8>, Refused> {
        let mut buffer = Zeroizing::new(Vec::with_capacity(payload.len() + TAG));
        buffer.extend_from_slice(payload);
        self.cipher()
            .encrypt_in_place(&Nonce::default(), associated, &mut *buffer)
            .map_err(|_| Refused)?;
        Ok(std::mem::take(&mut *buffer))
    }

    pub(super) fn decrypt(
        self,
        ciphertext: &[u8],
        associated: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, Refused> {
        let mut buffer = Zeroizing::new(ciphertext.to_vec());
        self.cipher()
            .decrypt_in_place(&Nonce::default(), associated, &mut *buffer)
            .map_err(|_| Refused)?;
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

    /// Gives the bytes of a test vector as if they were random.
    struct Given(Vec<u8>);

    impl TryRng for Given {
        type Error = Infallible;

        fn try_next_u32(&mut self) -> Result<u32, Infallible> {
            panic!("bytes are asked for as such")
        }

        fn try_next_u64(&mut self) -> Result<u64, Infallible> {
            panic!("bytes are asked for as such")
        }

        fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Infallible> {
            out.copy_from_slice(&std::mem::take(&mut self.0));
            Ok(())
        }
    }

    impl TryCryptoRng for Given {}

    /// RFC 9180, appendix A.2.1: base mode, this suite, sequence number 0.
    #[test]
    fn the_suite_agrees_with_the_vector_of_rfc_9180() {
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
            &mut Given(bytes(ephemeral)),
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
