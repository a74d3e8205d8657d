//! Keys that no longer count.
//!
//! A revocation is a signed file `config/keys/revoked/{fingerprint}.toml`. It
//! counts when it is signed by the key it revokes or by one that the user or
//! the system trusts, even if that one was revoked itself meanwhile. In the
//! user's and the system's space it also counts when its signature does not
//! hold: whoever could tamper with it could as well have removed it, and a
//! damaged file must not bring a bad key back.

use std::fmt;
use std::path::PathBuf;

use lillux::keys::{Fingerprint, PublicKey};
use serde::{Deserialize, Serialize};

use super::{REVOKED, Revoked, Trust, read};
use crate::comment::CommentStyle;
use crate::signature::{self, Binding, REVOCATION};
use crate::space::{Root, Space};
use crate::verify;

/// That a key was revoked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Revocation {
    /// The key.
    pub fingerprint: Fingerprint,
    /// Since when, `2026-04-10T03:28:17Z`; unknown where the file is damaged.
    pub since: Option<String>,
    /// Why.
    pub reason: Option<String>,
    /// The file that says so.
    pub path: PathBuf,
}

impl fmt::Display for Revocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(since) = &self.since else {
            let (key, path) = (self.fingerprint, self.path.display());
            return write!(
                f,
                "{key} counts as revoked: {path} is damaged or cannot be read"
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
    /// The text of a revocation, to be signed. With the key in it, it can be
    /// signed by that key.
    pub fn text(
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

    /// Whether a text is that of a revocation, signed or not.
    pub(super) fn is_text(bytes: &[u8]) -> bool {
        read_text(bytes).is_some()
    }
}

/// Where the revocation of a key is, relative to `.ai/`.
fn path_of(fingerprint: Fingerprint) -> String {
    format!("{REVOKED}/{fingerprint}.toml")
}

fn read_text(bytes: &[u8]) -> Option<Text> {
    toml::from_str(std::str::from_utf8(bytes).ok()?).ok()
}

impl Trust<'_> {
    /// The revocation of a key, if there is one that counts.
    pub(super) fn revocation(&self, fingerprint: Fingerprint) -> Option<Revocation> {
        let mut roots = self.spaces.roots();
        roots.find_map(|root| self.revoked_by(root, fingerprint))
    }

    fn revoked_by(&self, root: &Root, fingerprint: Fingerprint) -> Option<Revocation> {
        let relative = path_of(fingerprint);
        let raw = read(root, &relative).transpose()?;
        let text = raw.ok().and_then(|raw| self.checked(fingerprint, &raw));
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

    /// The text of a revocation whose signature counts.
    fn checked(&self, fingerprint: Fingerprint, raw: &[u8]) -> Option<Text> {
        let text = read_text(raw)?;
        let signed = signature::split(raw, &CommentStyle::HASH).ok()?;
        let signer = signed.line.fingerprint;
        let own = text.public_key.as_ref();
        let own = own.and_then(|key| PublicKey::from_pem(&key.pem).ok());
        let key = match own.filter(|key| key.fingerprint() == signer && signer == fingerprint) {
            Some(own) => own,
            None => self.voucher(signer, &mut Vec::new(), Revoked::Count).ok()?,
        };
        let binding = Binding::new(REVOCATION, path_of(fingerprint));
        let holds = text.fingerprint == fingerprint.to_string()
            && signed.hash() == signed.line.hash
            && verify::check_binding(&signed.line, Some(&binding)).is_ok()
            && signed.line.verify(&key).is_ok();
        holds.then_some(text)
    }
}
