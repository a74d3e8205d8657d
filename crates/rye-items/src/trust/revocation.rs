//! Revoked keys.
//!
//! A revocation is a signed file `config/keys/revoked/{fingerprint}.toml`. It is valid if it is
//! signed by the revoked key, or by a key that the user or the system trusts, even if that key was
//! revoked since. In the user and system space a revocation takes effect even if its signature is
//! invalid: an attacker who can modify the file could also delete it, and a damaged file must not
//! make a revoked key trusted again.

use std::fmt;
use std::path::PathBuf;

use lillux::keys::{Fingerprint, PublicKey};
use serde::{Deserialize, Serialize};

use super::{REVOKED, RevokedVoucher, Trust, read};
use crate::comment::CommentStyle;
use crate::signature::{self, Binding, REVOCATION};
use crate::space::{Root, Space};
use crate::verify;

/// The revocation of a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Revocation {
    /// The revoked key.
    pub fingerprint: Fingerprint,
    /// The time of the revocation, `2026-04-10T03:28:17Z`; none if the file is damaged.
    pub since: Option<String>,
    /// The reason that the user gave.
    pub reason: Option<String>,
    /// The path of the revocation file.
    pub path: PathBuf,
}

impl fmt::Display for Revocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(since) = &self.since else {
            let (key, path) = (self.fingerprint, self.path.display());
            return write!(
                f,
                "{key} is treated as revoked: {path} is damaged or unreadable"
            );
        };
        write!(f, "{} was revoked on {since}", self.fingerprint)?;
        match &self.reason {
            Some(reason) => write!(f, " ({reason})"),
            None => Ok(()),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Text {
    fingerprint: String,
    revoked_at: String,
    reason: Option<String>,
    public_key: Option<KeyText>,
}

#[derive(Serialize, Deserialize)]
struct KeyText {
    pem: String,
}

impl Revocation {
    /// Formats a revocation for signing. A revocation that contains the key can be signed by that
    /// key.
    pub fn to_text(
        fingerprint: Fingerprint,
        since: &str,
        reason: Option<&str>,
        key: Option<&PublicKey>,
    ) -> String {
        let text = Text {
            fingerprint: fingerprint.to_string(),
            revoked_at: since.to_owned(),
            reason: reason.map(str::to_owned),
            public_key: key.map(|key| KeyText { pem: key.to_pem() }),
        };
        toml::to_string(&text).unwrap_or_default()
    }

    /// Whether a text is a revocation, signed or not.
    pub(super) fn is_text(bytes: &[u8]) -> bool {
        read_text(bytes).is_some()
    }
}

/// The path of the revocation file of a key, relative to `.ai/`.
pub(crate) fn revocation_path(fingerprint: Fingerprint) -> String {
    format!("{REVOKED}/{fingerprint}.toml")
}

fn read_text(bytes: &[u8]) -> Option<Text> {
    toml::from_str(std::str::from_utf8(bytes).ok()?).ok()
}

impl Trust<'_> {
    /// The valid revocation of a key, if there is one.
    pub(super) fn revocation(&self, fingerprint: Fingerprint) -> Option<Revocation> {
        let mut roots = self.spaces.roots();
        roots.find_map(|root| self.revocation_in(root, fingerprint))
    }

    fn revocation_in(&self, root: &Root, fingerprint: Fingerprint) -> Option<Revocation> {
        let relative = revocation_path(fingerprint);
        let raw = read(root, &relative).transpose()?;
        let text = raw
            .ok()
            .and_then(|raw| self.verified_text(fingerprint, &raw));
        if text.is_none() && root.space() == Space::Project {
            return None;
        }
        Some(Revocation {
            fingerprint,
            since: text.as_ref().map(|text| text.revoked_at.clone()),
            reason: text.and_then(|text| text.reason),
            path: root.path_to(&relative),
        })
    }

    /// Parses and verifies a revocation.
    fn verified_text(&self, fingerprint: Fingerprint, raw: &[u8]) -> Option<Text> {
        let text = read_text(raw)?;
        let signed = signature::split(raw, &CommentStyle::HASH).ok()?;
        let signer = signed.line.fingerprint;
        let own = text.public_key.as_ref();
        let own = own.and_then(|key| PublicKey::from_pem(&key.pem).ok());
        let key = match own.filter(|key| key.fingerprint() == signer && signer == fingerprint) {
            Some(own) => own,
            None => self
                .voucher(signer, &mut Vec::new(), RevokedVoucher::Allow)
                .ok()?,
        };
        let binding = Binding::new(REVOCATION, revocation_path(fingerprint));
        let is_valid = text.fingerprint == fingerprint.to_string()
            && signed.hash() == signed.line.hash
            && verify::check_binding(&signed.line, Some(&binding)).is_ok()
            && signed.line.verify(&key).is_ok();
        is_valid.then_some(text)
    }
}
