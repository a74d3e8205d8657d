//! Which keys count, and reason.
//!
//! A key is trusted by a file `config/keys/trusted/{fingerprint}.toml` in one of
//! the spaces. The file is signed, by the key itself or by another trusted one:
//!
//! - In the user's and the system's space a self-signed file is a root of trust.
//! - A **project** cannot add trust on its own: its files count only when they
//!   are signed by a key that the user or the system trusts. Else a cloned
//!   repository could trust itself.
//! - A revoked key counts nowhere, and neither does what only it vouched for.
//!
//! A [`Trust`] is made for one call and remembers what it found out; the next
//! call makes a new one and so sees what has changed.

mod file;
mod revocation;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use lillux::Hash;
use lillux::keys::{Fingerprint, PublicKey};
use serde::Serialize;

use crate::comment::CommentStyle;
use crate::process_cache::ProcessCache;
use crate::signature::{self, Binding, TRUST};
use crate::space::{Root, Space, SpaceError, Spaces};
use crate::verify;

pub use file::TrustFile;
pub use revocation::Revocation;

/// Relative to `.ai/`.
pub(crate) const TRUSTED: &str = "config/keys/trusted";
pub(crate) const REVOKED: &str = "config/keys/revoked";
/// How many keys may vouch for each other in a row.
const LONGEST_CHAIN: usize = 8;

/// A key that counts.
#[derive(Debug, Clone)]
pub struct TrustedKey {
    /// The key.
    pub key: PublicKey,
    /// Whose it is, in the words of its file.
    pub owner: Option<String>,
    /// The space that trusts it.
    pub space: Space,
    /// The file that says so.
    pub path: PathBuf,
    /// The key that signed the file.
    pub vouched_by: Fingerprint,
}

/// A file about a key that does not count, and reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IgnoredFile {
    /// The file.
    pub path: PathBuf,
    /// The reason, as a sentence.
    pub reason: String,
    /// The command that makes it count, where that is not to sign it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl IgnoredFile {
    /// A file that would count if it were signed as it should be.
    pub fn new(path: PathBuf, reason: String) -> Self {
        let hint = None;
        Self { path, reason, hint }
    }
}

/// Why a key does not count.
#[derive(Debug, Clone)]
pub enum DistrustReason {
    /// No file that counts speaks for it.
    Unknown {
        /// Files that would, and do not count.
        ignored: Vec<IgnoredFile>,
    },
    /// It was revoked.
    Revoked(Revocation),
}

/// What the spaces say about a key.
pub type KeyStatus = Result<Arc<TrustedKey>, DistrustReason>;

/// The keys of the spaces, looked up when asked for.
#[derive(Debug)]
pub struct Trust<'a> {
    spaces: &'a Spaces,
    cache: Arc<ProcessCache>,
    known: Mutex<HashMap<Fingerprint, KeyStatus>>,
    /// Each of a thousand files with an untrusted key names the trusted ones.
    trusted: OnceLock<Vec<Arc<TrustedKey>>>,
}

impl<'a> Trust<'a> {
    /// Nothing is read yet.
    pub fn new(spaces: &'a Spaces) -> Self {
        Self::with_cache(spaces, Arc::default())
    }

    /// The same, with what a process has found out before.
    pub fn with_cache(spaces: &'a Spaces, cache: Arc<ProcessCache>) -> Self {
        Self {
            spaces,
            cache,
            known: Mutex::default(),
            trusted: OnceLock::new(),
        }
    }

    /// The same, with what was found out about keys a moment ago.
    pub(crate) fn with_known_keys(self, known: HashMap<Fingerprint, KeyStatus>) -> Self {
        Self {
            known: Mutex::new(known),
            ..self
        }
    }

    /// What was found out about keys.
    pub fn into_key_statuses(self) -> HashMap<Fingerprint, KeyStatus> {
        let known = self.known.into_inner();
        known.unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn cache(&self) -> &ProcessCache {
        &self.cache
    }

    /// Whether a key counts.
    pub fn key_status(&self, fingerprint: Fingerprint) -> KeyStatus {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(status) = known().get(&fingerprint) {
            return status.clone();
        }
        let status = self.resolve_status(fingerprint);
        known().insert(fingerprint, status.clone());
        status
    }

    /// Every key that some file speaks about, trusted or not, in the order of
    /// the fingerprints.
    pub fn list(&self) -> Vec<(Fingerprint, KeyStatus)> {
        let mut fingerprints: Vec<Fingerprint> = self
            .spaces
            .roots()
            .flat_map(|root| [TRUSTED, REVOKED].map(|folder| root.walk(folder)))
            .flatten()
            .filter_map(|entry| entry.ok()?.name().strip_suffix(".toml")?.parse().ok())
            .collect();
        fingerprints.sort_unstable();
        fingerprints.dedup();
        let judged = fingerprints.into_iter();
        judged.map(|key| (key, self.key_status(key))).collect()
    }

    /// The keys that count.
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
            match self.read_trust_file(root, fingerprint, &mut vec![fingerprint], Revoked::Fail) {
                Ok(None) => {}
                Ok(Some(key)) => return Ok(Arc::new(key)),
                Err(reason) => ignored.push(reason),
            }
        }
        Err(DistrustReason::Unknown { ignored })
    }

    /// The key that a root's file speaks for; none where it has no such file.
    fn read_trust_file(
        &self,
        root: &Root,
        fingerprint: Fingerprint,
        chain: &mut Vec<Fingerprint>,
        revoked: Revoked,
    ) -> Result<Option<TrustedKey>, IgnoredFile> {
        let relative = format!("{TRUSTED}/{fingerprint}.toml");
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
            return Err(ignored(format!("it holds another key, {found}")));
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
        }))
    }

    /// A key whose signature under another key's file counts: one that the user
    /// or the system trusts.
    fn voucher(
        &self,
        fingerprint: Fingerprint,
        chain: &mut Vec<Fingerprint>,
        revoked: Revoked,
    ) -> Result<PublicKey, String> {
        if chain.contains(&fingerprint) {
            return Err(format!("{fingerprint} vouches for itself through others"));
        }
        if chain.len() >= LONGEST_CHAIN {
            return Err(format!(
                "more than {LONGEST_CHAIN} keys vouch for each other"
            ));
        }
        if revoked == Revoked::Fail
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
            "it is signed by {fingerprint}, which neither the user nor the system trusts{reason}"
        ))
    }
}

/// Whether a text would trust or revoke a key, if it were signed and in its place.
pub(crate) fn is_key_file(text: &[u8]) -> bool {
    TrustFile::parse(text).is_ok() || Revocation::is_text(text)
}

/// Whether a revoked key still counts: only where the question is whether its
/// own revocations do, which must not end in a circle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Revoked {
    Fail,
    Count,
}

fn read(root: &Root, relative: &str) -> Result<Option<Vec<u8>>, SpaceError> {
    Ok(root.read(relative)?.map(|file| file.bytes))
}

#[cfg(test)]
mod tests;
