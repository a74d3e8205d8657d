//! Signing items where they are.

use std::path::PathBuf;

use lillux::Hash;
use lillux::durable::{self, WriteError};
use lillux::keys::SigningKey;

use super::verify_batch::parallel;
use super::{ItemError, Library, read};
use crate::acceptance::Acceptance;
use crate::integrity::list;
use crate::lookup::ItemFile;
use crate::metadata;
use crate::signature::{self, Binding, ITEM};
use crate::space::{Deviation, Space, SpaceError};
use crate::trust;
use crate::user_keys::{UserKeyError, UserKeys};
use crate::verify::{self, SignatureFormat};

/// How often signing is begun again of a file that changed meanwhile.
const ATTEMPTS: usize = 8;

/// What signing did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignOutcome {
    /// The file has a new signature line.
    Signed,
    /// This key had signed exactly this content; nothing was written.
    Unchanged,
}

/// An item that cannot be signed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SignError {
    /// The system space is signed when it is built.
    #[error("{0} is in the system space, which is read-only")]
    SystemSpace(String),
    /// It speaks of a key: signing it would be to trust or to revoke that key, wherever
    /// the file stands now.
    #[error("{file} is a trust or revocation file; signing it would trust or revoke its key")]
    KeyFile {
        /// The item, or the file of one.
        file: String,
        /// The file.
        path: PathBuf,
    },
    /// It records a decision, which only that decision signs.
    #[error("{} records a decision and is signed when the decision is made", .0.display())]
    Decision(PathBuf),
    /// It was signed, and that it is accepted for this project cannot be recorded.
    #[error("{} is signed but not accepted: {source}", path.display())]
    Accept {
        /// The file.
        path: PathBuf,
        /// Why.
        source: UserKeyError,
    },
    /// It cannot be found, read or understood.
    #[error(transparent)]
    Item(#[from] ItemError),
    /// `provider@user` is malformed.
    #[error("{0}")]
    Provenance(String),
    /// A directory is not there.
    #[error("there is no directory {}", .0.display())]
    NoDirectory(PathBuf),
    /// A directory is in no project, or holds a space.
    #[error("{} cannot be signed: the directory is outside the project, or contains a space", .0.display())]
    NotSignable(PathBuf),
    /// A directory holds what no manifest can list.
    #[error("cannot sign {}: {}", directory.display(), list(refused))]
    Unlistable {
        /// The directory.
        directory: PathBuf,
        /// What cannot be listed, and why.
        refused: Vec<(String, Deviation)>,
    },
    /// It is not what somebody was shown who wanted it signed.
    #[error("{} is not what was approved: it has changed since", .0.display())]
    ChangedSinceApproval(PathBuf),
    /// It cannot be written.
    #[error("cannot sign {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: WriteError,
    },
}

impl From<SpaceError> for SignError {
    fn from(error: SpaceError) -> Self {
        Self::Item(error.into())
    }
}

impl Library {
    /// Signs many items, in parallel; the outcomes are in the order of the items.
    pub fn sign_batch(
        &self,
        items: &[ItemFile<'_>],
        key: &SigningKey,
        provenance: Option<&str>,
        progress: &(dyn Fn(usize) + Sync),
    ) -> Vec<Result<SignOutcome, SignError>> {
        parallel(items, progress, |found| self.sign(found, key, provenance))
    }

    /// Signs an item: its file is replaced in one step, with its mode kept. An
    /// item whose metadata cannot be read is not signed, and neither is a file
    /// about a key: by its name, or by what it says, since links lead to files by
    /// other names.
    pub fn sign(
        &self,
        found: &ItemFile<'_>,
        key: &SigningKey,
        provenance: Option<&str>,
    ) -> Result<SignOutcome, SignError> {
        self.sign_what(found, key, provenance, None)
    }

    /// Signs an item if what would be signed is what somebody was shown, and has this hash.
    pub fn sign_approved(
        &self,
        found: &ItemFile<'_>,
        key: &SigningKey,
        shown: Hash,
    ) -> Result<SignOutcome, SignError> {
        self.sign_what(found, key, None, Some(shown))
    }

    /// What signing an item would sign, if there is anything to sign.
    pub fn unsigned_content(
        &self,
        found: &ItemFile<'_>,
        key: &SigningKey,
    ) -> Result<Option<Vec<u8>>, SignError> {
        let raw = read(found)?;
        Ok(self
            .to_sign(found, &raw.bytes, key, None)?
            .map(|(content, _)| content))
    }

    fn sign_what(
        &self,
        found: &ItemFile<'_>,
        key: &SigningKey,
        provenance: Option<&str>,
        shown: Option<Hash>,
    ) -> Result<SignOutcome, SignError> {
        // Somebody else may be signing it, or saving it in an editor.
        for _ in 0..ATTEMPTS {
            if let Some(outcome) = self.try_sign(found, key, provenance, shown)? {
                self.accept(found, key)?;
                return Ok(outcome);
            }
        }
        Err(SpaceError::ChangedWhileReading(found.path()))?
    }

    /// Accepts configuration that this key has just signed for the project that it is in.
    fn accept(&self, found: &ItemFile<'_>, key: &SigningKey) -> Result<(), SignError> {
        if !Acceptance::is_needed(found.root, &found.relative) {
            return Ok(());
        }
        let claim = verify::claim(&read(found)?.bytes, &self.format_of(found));
        let claim = claim.ok().filter(|it| it.line.verify(key.public()).is_ok());
        let user = self.spaces.roots_in(Space::User).next();
        let user = user.and_then(|root| root.as_dir()?.parent());
        let (Some(claim), Some(user)) = (claim, user) else {
            return Ok(());
        };
        let Some(acceptance) = Acceptance::new(found.root, &found.relative, claim.line.hash) else {
            return Ok(());
        };
        let recorded = acceptance.record(&UserKeys::new(user), key);
        recorded.map(drop).map_err(|source| SignError::Accept {
            path: found.path(),
            source,
        })
    }

    /// Signs what is there, unless it is no longer what was read: then none.
    fn try_sign(
        &self,
        found: &ItemFile<'_>,
        key: &SigningKey,
        provenance: Option<&str>,
        shown: Option<Hash>,
    ) -> Result<Option<SignOutcome>, SignError> {
        let raw = read(found)?;
        let Some((content, format)) = self.to_sign(found, &raw.bytes, key, provenance)? else {
            return Ok(Some(SignOutcome::Unchanged));
        };
        if shown.is_some_and(|shown| shown != Hash::digest(&content)) {
            return Err(SignError::ChangedSinceApproval(found.path()));
        }
        let time = lillux::time::now_rfc3339();
        let binding = Binding::item(&found.relative);
        let signed = signature::sign(&content, &format.comment, &binding, key, &time, provenance)
            .map_err(|e| SignError::Provenance(e.what))?;
        // Links are followed, as reading did, and stay links.
        let Some(path) = found.root.real_path(&found.relative)? else {
            return Ok(None);
        };
        if found.root.stat(&found.relative)? != Some(raw.identity) {
            return Ok(None);
        }
        durable::rewrite(&path, &signed).map_err(|source| SignError::Write { path, source })?;
        Ok(Some(SignOutcome::Signed))
    }

    /// What of a file is to be signed, and as which comment the signature is written; none
    /// if this key has signed exactly that for this file.
    fn to_sign(
        &self,
        found: &ItemFile<'_>,
        bytes: &[u8],
        key: &SigningKey,
        provenance: Option<&str>,
    ) -> Result<Option<(Vec<u8>, SignatureFormat)>, SignError> {
        if found.root.space() == Space::System {
            return Err(SignError::SystemSpace(found.reference.to_string()));
        }
        let content = signature::strip_signature(bytes);
        if found.reference.is_key_file() || trust::is_key_file(&content) {
            return Err(SignError::KeyFile {
                file: found.reference.to_string(),
                path: found.path(),
            });
        }
        let format = self.format_of(found);
        if format
            .binding
            .as_ref()
            .is_some_and(|it| it.purpose() != ITEM)
        {
            return Err(SignError::Decision(found.path()));
        }
        let kind = found.reference.kind;
        let readable = signature::normalize_comments(bytes, &format.comment);
        metadata::extract(&readable, &found.extension, kind, &self.extractors).map_err(
            |source| ItemError::Metadata {
                path: found.path(),
                source: Box::new(source),
            },
        )?;
        let present = verify::claim(bytes, &format).ok();
        let is_signed = present.is_some_and(|claim| {
            claim.coverage == crate::item::Coverage::Whole
                && (provenance.is_none() || claim.line.provenance.as_deref() == provenance)
                && claim.line.fingerprint == key.public().fingerprint()
                && claim.line.binding == format.binding
                && claim.line.verify(key.public()).is_ok()
        });
        Ok((!is_signed).then_some((content, format)))
    }
}
