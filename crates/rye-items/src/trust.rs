//! The trust store: which keys are trusted, and which are revoked.
//!
//! A trust file `config/keys/trusted/{fingerprint}.toml` in one of the spaces makes a key trusted.
//! The file is signed, either by the key itself or by another trusted key:
//!
//! - In the user and system space, a self-signed file is a root of trust.
//! - A **project** cannot add trust on its own: its trust files must be signed by a key that the
//!   user or the system trusts. Otherwise a cloned repository could trust itself.
//! - A revoked key is not trusted, and neither are keys that only it vouched for.
//!
//! A [`Trust`] caches the status of keys and is meant for one call, so that the next call sees
//! changes on disk.

mod file;
mod revocation;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use lillux::Hash;
use lillux::keys::{Fingerprint, PublicKey};
use parking_lot::Mutex;
use serde::Serialize;

use crate::comment::CommentStyle;
use crate::process_cache::ProcessCache;
use crate::signature::{self, Binding, TRUST};
use crate::space::{Root, Space, SpaceError, Spaces};
use crate::verify;

pub use file::TrustFile;
pub use revocation::Revocation;
pub(crate) use revocation::revocation_path;

/// Directories of trust and revocation files, relative to `.ai/`.
const TRUSTED: &str = "config/keys/trusted";
const REVOKED: &str = "config/keys/revoked";
/// The maximum number of keys that vouch for each other in a chain.
const MAX_CHAIN: usize = 8;

/// A trusted key.
#[derive(Debug, Clone)]
pub struct TrustedKey {
    /// The public key.
    pub key: PublicKey,
    /// The owner's name in the trust file.
    pub owner: Option<String>,
    /// The space that contains the trust file.
    pub space: Space,
    /// The path of the trust file.
    pub path: PathBuf,
    /// The key that signed the trust file.
    pub vouched_by: Fingerprint,
    /// Whether the key may sign decisions only: no items, and no trust in other keys.
    pub decisions_only: bool,
}

/// A trust or configuration file that is ignored because it is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IgnoredFile {
    /// The path of the file.
    pub path: PathBuf,
    /// The cause, as a fragment.
    pub reason: String,
    /// A command that fixes it, if that is not `rye sign`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl IgnoredFile {
    /// An ignored file without its own hint.
    pub fn new(path: PathBuf, reason: String) -> Self {
        let hint = None;
        Self { path, reason, hint }
    }
}

/// Why a key is not trusted.
#[derive(Debug, Clone)]
pub enum DistrustReason {
    /// The key has no valid trust file.
    Unknown {
        /// Invalid trust files for this key.
        ignored: Vec<IgnoredFile>,
    },
    /// The key was revoked.
    Revoked(Revocation),
}

/// Whether a key is trusted.
pub type KeyStatus = Result<Arc<TrustedKey>, DistrustReason>;

/// The trust store of all spaces. Keys are looked up on demand.
#[derive(Debug)]
pub struct Trust<'a> {
    spaces: &'a Spaces,
    cache: Arc<ProcessCache>,
    statuses: Mutex<HashMap<Fingerprint, KeyStatus>>,
    /// All trusted keys; listed once, because every error about an untrusted key contains them.
    trusted: OnceLock<Vec<Arc<TrustedKey>>>,
}

impl<'a> Trust<'a> {
    /// Creates a trust store without reading any file.
    pub fn new(spaces: &'a Spaces) -> Self {
        Self::with_cache(spaces, Arc::default())
    }

    /// Creates a trust store that uses the process cache.
    pub fn with_cache(spaces: &'a Spaces, cache: Arc<ProcessCache>) -> Self {
        Self {
            spaces,
            cache,
            statuses: Mutex::default(),
            trusted: OnceLock::new(),
        }
    }

    pub(crate) fn cache(&self) -> &ProcessCache {
        &self.cache
    }

    /// The status of a key.
    pub fn key_status(&self, fingerprint: Fingerprint) -> KeyStatus {
        if let Some(status) = self.statuses.lock().get(&fingerprint) {
            return status.clone();
        }
        let status = self.resolve_status(fingerprint);
        self.statuses.lock().insert(fingerprint, status.clone());
        status
    }

    /// All keys with a trust or revocation file, sorted by fingerprint.
    pub fn list(&self) -> Vec<(Fingerprint, KeyStatus)> {
        let mut fingerprints: Vec<Fingerprint> = self
            .spaces
            .roots()
            .flat_map(|root| [TRUSTED, REVOKED].map(|dir| root.walk(dir)))
            .flatten()
            .filter_map(|entry| entry.ok()?.name().strip_suffix(".toml")?.parse().ok())
            .collect();
        fingerprints.sort_unstable();
        fingerprints.dedup();
        let fingerprints = fingerprints.into_iter();
        fingerprints
            .map(|key| (key, self.key_status(key)))
            .collect()
    }

    /// All trusted keys.
    pub fn trusted(&self) -> Vec<Arc<TrustedKey>> {
        let all = || self.list().into_iter();
        let trusted = || all().filter_map(|(_, status)| status.ok()).collect();
        self.trusted.get_or_init(trusted).clone()
    }

    fn resolve_status(&self, fingerprint: Fingerprint) -> KeyStatus {
        if let Some(revocation) = self.revocation(fingerprint) {
            return Err(DistrustReason::Revoked(revocation));
        }
        let mut ignored = Vec::new();
        for root in self.spaces.roots() {
            match self.read_trust_file(
                root,
                fingerprint,
                &mut vec![fingerprint],
                RevokedVoucher::Refuse,
            ) {
                Ok(None) => {}
                Ok(Some(key)) => return Ok(Arc::new(key)),
                Err(reason) => ignored.push(reason),
            }
        }
        Err(DistrustReason::Unknown { ignored })
    }

    /// Reads and verifies the trust file for a key in one root; none if it does not exist.
    fn read_trust_file(
        &self,
        root: &Root,
        fingerprint: Fingerprint,
        chain: &mut Vec<Fingerprint>,
        revoked: RevokedVoucher,
    ) -> Result<Option<TrustedKey>, IgnoredFile> {
        let relative = trust_path(fingerprint);
        let path = || root.path_to(&relative);
        let ignored = |reason: String| IgnoredFile::new(path(), reason);
        let Some(raw) = read(root, &relative).map_err(|e| ignored(e.to_string()))? else {
            return Ok(None);
        };
        let parsed = || TrustFile::parse(&raw).map(Arc::new);
        let file = self
            .cache
            .trust_files
            .get(Hash::digest(&raw), parsed)
            .map_err(&ignored)?;
        if file.key.fingerprint() != fingerprint {
            let found = file.key.fingerprint();
            return Err(ignored(format!("it contains another key, {found}")));
        }
        let signed =
            signature::split(&raw, &CommentStyle::HASH).map_err(|e| ignored(e.to_string()))?;
        if signed.hash() != signed.line.hash {
            return Err(ignored("content does not match its signature".to_owned()));
        }
        let signer = signed.line.fingerprint;
        let signing_key = if signer == fingerprint {
            if root.space() == Space::Project {
                let reason = "a project cannot trust a key on its own";
                return Err(ignored(reason.to_owned()));
            }
            file.key.clone()
        } else {
            self.voucher(signer, chain, revoked).map_err(ignored)?
        };
        let binding = Binding::new(TRUST, relative.clone());
        verify::check_binding(&signed.line, Some(&binding)).map_err(|e| ignored(e.to_string()))?;
        self.cache
            .verify(&signing_key, &signed.line)
            .map_err(|e| ignored(e.to_string()))?;
        Ok(Some(TrustedKey {
            key: file.key.clone(),
            owner: file.owner.clone(),
            space: root.space(),
            path: path(),
            vouched_by: signer,
            decisions_only: file.decisions_only,
        }))
    }

    /// The key that signed another key's trust or revocation file. The user or the system must
    /// trust it.
    fn voucher(
        &self,
        fingerprint: Fingerprint,
        chain: &mut Vec<Fingerprint>,
        revoked: RevokedVoucher,
    ) -> Result<PublicKey, String> {
        if chain.contains(&fingerprint) {
            return Err(format!("{fingerprint} vouches for itself through others"));
        }
        if chain.len() >= MAX_CHAIN {
            return Err(format!("more than {MAX_CHAIN} keys vouch for each other"));
        }
        if revoked == RevokedVoucher::Refuse
            && let Some(revocation) = self.revocation(fingerprint)
        {
            return Err(format!("signed by a revoked key: {revocation}"));
        }
        chain.push(fingerprint);
        let own = self
            .spaces
            .roots()
            .filter(|root| root.space() != Space::Project);
        let mut reason = None;
        for root in own {
            match self.read_trust_file(root, fingerprint, chain, revoked) {
                Ok(None) => {}
                Ok(Some(trusted)) if trusted.decisions_only => {
                    reason = Some("the key may sign decisions only".to_owned());
                }
                Ok(Some(trusted)) => {
                    chain.pop();
                    return Ok(trusted.key);
                }
                Err(ignored) => reason = Some(ignored.reason),
            }
        }
        chain.pop();
        let reason = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
        Err(format!(
            "signed by {fingerprint}, which neither the user nor the system trusts{reason}"
        ))
    }
}

/// The path of the trust file of a key, relative to `.ai/`.
pub(crate) fn trust_path(fingerprint: Fingerprint) -> String {
    format!("{TRUSTED}/{fingerprint}.toml")
}

/// Whether a text is a trust or revocation file, signed or not.
pub(crate) fn is_key_file(text: &[u8]) -> bool {
    TrustFile::parse(text).is_ok() || Revocation::is_text(text)
}

/// Whether a revoked key may vouch. Allowed only to verify revocations, which would otherwise
/// recurse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RevokedVoucher {
    Refuse,
    Allow,
}

fn read(root: &Root, relative: &str) -> Result<Option<Vec<u8>>, SpaceError> {
    Ok(root.read(relative)?.map(|file| file.bytes))
}

#[cfg(test)]
mod tests;
