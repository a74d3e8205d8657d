//! Signatures of webhooks and hooks, as Standard Webhooks defines them, and their secrets.

use std::sync::Arc;

use base64ct::{Base64, Encoding as _};
use hmac::{Hmac, KeyInit as _, Mac as _};
use lillux::envelope::{Envelope, OpeningKey, Secret, seal};
use rye_engine::store::StoreError;
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::error::AutomationError;

/// Prefix of a secret, by which scanners of repositories recognise it.
const PREFIX: &str = "whsec_";

/// Random bytes of a secret.
const BYTES: usize = 32;

/// Sizes of secrets that the specification permits.
const SIZES: std::ops::RangeInclusive<usize> = 24..=64;

/// Returns the key that encrypts and decrypts secrets. With `true`, creates a missing key.
pub type KeySource = Arc<dyn Fn(bool) -> Result<Option<OpeningKey>, String> + Send + Sync>;

/// A shared secret that signs messages.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningSecret(Zeroizing<Vec<u8>>);

impl SigningSecret {
    /// Generates a secret.
    pub fn generate() -> Result<Self, AutomationError> {
        let mut bytes = Zeroizing::new(vec![0; BYTES]);
        getrandom::fill(&mut bytes).map_err(|error| AutomationError::Secret(error.to_string()))?;
        Ok(Self(bytes))
    }

    /// Parses a secret, `whsec_` and base64.
    pub fn parse(text: &str) -> Result<Self, AutomationError> {
        let invalid = || AutomationError::Invalid {
            field: "secret",
            reason: "expected `whsec_` and the base64 of 24 to 64 bytes".to_owned(),
        };
        let encoded = text.strip_prefix(PREFIX).ok_or_else(invalid)?;
        let bytes = Base64::decode_vec(encoded).map_err(|_| invalid())?;
        if SIZES.contains(&bytes.len()) {
            Ok(Self(Zeroizing::new(bytes)))
        } else {
            Err(invalid())
        }
    }

    /// The secret as text.
    pub fn to_text(&self) -> Zeroizing<String> {
        let encoded = Zeroizing::new(Base64::encode_string(&self.0));
        Zeroizing::new(format!("{PREFIX}{}", *encoded))
    }

    fn mac(&self, id: &str, timestamp: &str, body: &[u8]) -> Option<Hmac<Sha256>> {
        // HMAC accepts keys of any length.
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).ok()?;
        for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
            mac.update(part);
        }
        Some(mac)
    }

    /// The header `webhook-signature` of a message.
    pub fn sign(&self, id: &str, timestamp: &str, body: &[u8]) -> String {
        let mac = self.mac(id, timestamp, body);
        let mac = mac.map(|mac| Base64::encode_string(&mac.finalize().into_bytes()));
        format!("v1,{}", mac.unwrap_or_default())
    }

    /// Whether one of the signatures of a header is that of the message.
    pub fn verify(&self, id: &str, timestamp: &str, body: &[u8], header: &str) -> bool {
        let signatures = header.split(' ');
        let mut signatures = signatures.filter_map(|it| it.strip_prefix("v1,"));
        signatures.any(|signature| {
            let Ok(signature) = Base64::decode_vec(signature) else {
                return false;
            };
            let mac = self.mac(id, timestamp, body);
            mac.is_some_and(|mac| mac.verify_slice(&signature).is_ok())
        })
    }
}

/// Encrypts secrets for the store.
#[derive(Clone)]
pub struct Sealer(KeySource);

impl Sealer {
    /// Encrypts with a key.
    pub fn new(key: KeySource) -> Self {
        Self(key)
    }

    /// Encrypts a secret. The label binds it to what it is for.
    pub(crate) fn seal(
        &self,
        secret: &SigningSecret,
        label: &str,
    ) -> Result<String, AutomationError> {
        let unusable = AutomationError::Secret;
        let key = (self.0)(true).map_err(unusable)?;
        let key = key.ok_or_else(|| unusable("there is no vault".to_owned()))?;
        let secret = Secret::new(secret.to_text().as_bytes().to_vec());
        let sealed = seal(&secret, &[key.public().clone()], label);
        let sealed = sealed.map_err(|error| unusable(error.to_string()))?;
        String::from_utf8(sealed.to_bytes()).map_err(|error| unusable(error.to_string()))
    }

    /// Decrypts a secret.
    pub(crate) fn open(&self, sealed: &str, label: &str) -> Result<SigningSecret, AutomationError> {
        let unusable = AutomationError::Secret;
        let key = (self.0)(false).map_err(unusable)?;
        let key = key.ok_or_else(|| unusable("the vault's private key is missing".to_owned()))?;
        let envelope = Envelope::parse(sealed.as_bytes());
        let envelope = envelope.map_err(|error| unusable(error.to_string()))?;
        let opened = envelope.open(&key, Some(label));
        let opened = opened.map_err(|error| unusable(error.to_string()))?;
        let text = std::str::from_utf8(opened.expose());
        let text = text.map_err(|_| StoreError::Unreadable("a secret is not text".to_owned()))?;
        SigningSecret::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification's reference implementations.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    #[test]
    fn signature_is_that_of_the_specification() {
        let secret = SigningSecret::parse(SECRET).unwrap();
        let (id, time, body) = (
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "1614265330",
            br#"{"test": 2432232314}"#,
        );
        let expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(secret.sign(id, time, body), expected);
        assert!(secret.verify(id, time, body, expected));
        assert!(secret.verify(id, time, body, &format!("v1a,x v1,AAAA {expected}")));
        assert!(!secret.verify("other", time, body, expected));
        assert!(!secret.verify(id, "1614265331", body, expected));
        assert!(!secret.verify(id, time, b"{}", expected));
        for header in [
            "",
            "v1,",
            "v1",
            "v2,g0hM",
            "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        ] {
            assert!(!secret.verify(id, time, body, header), "{header}");
        }
    }

    #[test]
    fn secret_is_sealed_for_one_purpose() {
        let key = OpeningKey::generate().unwrap().to_pem();
        let source: KeySource = Arc::new(move |_| {
            let key = OpeningKey::from_pem(key.as_bytes());
            key.map(Some).map_err(|error| error.to_string())
        });
        let sealer = Sealer::new(source);
        let secret = SigningSecret::generate().unwrap();
        let sealed = sealer.seal(&secret, "webhook a").unwrap();
        assert!(!sealed.contains(&secret.to_text()[PREFIX.len()..]));
        let opened = sealer.open(&sealed, "webhook a").unwrap();
        assert_eq!(*opened.to_text(), *secret.to_text());
        assert!(sealer.open(&sealed, "webhook b").is_err());
    }

    #[test]
    fn malformed_secrets_are_refused() {
        for text in [
            "",
            "whsec_",
            "whsec_AAAA",
            "whsec_!!!!",
            "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        ] {
            assert!(SigningSecret::parse(text).is_err(), "{text}");
        }
    }
}
