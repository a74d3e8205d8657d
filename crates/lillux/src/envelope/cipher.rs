//! The two layers of an envelope, without its form: a random content key wrapped
//! for each recipient by HPKE, and the payload under the content key.

use chacha20poly1305::{AeadInOut, ChaCha20Poly1305, KeyInit};
use hpke::aead::ChaCha20Poly1305 as HpkeAead;
use hpke::kdf::HkdfSha256;
use hpke::{Deserializable, OpModeR, OpModeS, Serializable};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::keys::{OpeningKey, SealingKey};
use crate::keys::{NoRandomness, random};

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
pub(super) struct ContentKey(Zeroizing<[u8; 32]>);

/// A content key as one recipient gets it.
pub(super) struct Wrapped {
    pub(super) encapsulated: [u8; 32],
    pub(super) key: [u8; 48],
}

impl ContentKey {
    pub(super) fn generate() -> Result<Self, NoRandomness> {
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
        let mut content_key = Zeroizing::new([0; 32]);
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
            .encrypt_in_place(&Default::default(), associated, &mut *buffer)
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
            .decrypt_in_place(&Default::default(), associated, &mut *buffer)
            .map_err(|_| Refused)?;
        Ok(buffer)
    }

    fn cipher(&self) -> ChaCha20Poly1305 {
        ChaCha20Poly1305::new((&*self.0).into())
    }
}
