//! Signs items in place.

use std::path::PathBuf;

use lillux::Hash;
use lillux::durable::{self, WriteError};
use lillux::keys::SigningKey;

use super::verify_batch::parallel;
use super::{ItemError, Library, read};
use crate::acceptance::Acceptance;
use crate::integrity::format_deviations;
use crate::lookup::ItemFile;
use crate::metadata;
use crate::signature::{self, Binding, ITEM};
use crate::space::{Deviation, Space, SpaceError};
use crate::trust;
use crate::user_keys::{UserKeyError, UserKeys};
use crate::verify::{self, SignatureFormat};

/// How often signing is retried if the file changes meanwhile.
const ATTEMPTS: usize = 8;

/// The result of signing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignOutcome {
    /// A new signature was written.
    Signed,
    /// The same key had already signed this content; nothing was written.
    Unchanged,
}

/// Why an item cannot be signed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SignError {
    /// The item is in the system space, which is signed at build time.
    #[error("{0} is in the system space, which is read-only")]
    SystemSpace(String),
    /// The file is a trust or revocation file, by its path or by its content.
    #[error("{file} is a trust or revocation file; signing it would trust or revoke its key")]
    KeyFile {
        /// The item's reference.
        file: String,
        /// The path to display.
        path: PathBuf,
    },
    /// The file records a decision and is signed only when the decision is made.
    #[error("{} records a decision and is signed when the decision is made", .0.display())]
    Decision(PathBuf),
    /// The file was signed, but its acceptance for this project could not be written.
    #[error("{} is signed but not accepted: {source}", path.display())]
    Accept {
        /// The signed file.
        path: PathBuf,
        /// The cause.
        source: UserKeyError,
    },
    /// The item cannot be found or read, or its metadata is invalid.
    #[error(transparent)]
    Item(#[from] ItemError),
    /// The provenance is not of the form `provider@user`.
    #[error("{0}")]
    Provenance(String),
    /// The path is not a directory.
    #[error("{} is not a directory", .0.display())]
    NoDirectory(PathBuf),
    /// The directory is in no project or space.
    #[error("cannot sign {}: it is outside the project and all spaces", .0.display())]
    OutsideProject(PathBuf),
    /// The directory is the `.ai/` of a space.
    #[error("cannot sign {}: it is the directory of a space", .0.display())]
    IsSpace(PathBuf),
    /// The directory contains the `.ai/` of a space.
    #[error("cannot sign {}: it contains the space {}", directory.display(), space.display())]
    ContainsSpace {
        /// The directory to sign.
        directory: PathBuf,
        /// The directory of the space.
        space: PathBuf,
    },
    /// The directory contains files that a manifest cannot list.
    #[error("cannot sign {}: {}", directory.display(), format_deviations(refused))]
    Unlistable {
        /// The directory to sign.
        directory: PathBuf,
        /// The files that cannot be listed, with the reason.
        refused: Vec<(String, Deviation)>,
    },
    /// The content is not the content that the user approved.
    #[error("{} changed after it was approved", .0.display())]
    ChangedSinceApproval(PathBuf),
    /// The signed file cannot be written.
    #[error("cannot sign {}: {source}", path.display())]
    Write {
        /// The file to sign.
        path: PathBuf,
        /// The cause.
        source: WriteError,
    },
}

impl From<SpaceError> for SignError {
    fn from(error: SpaceError) -> Self {
        Self::Item(error.into())
    }
}

impl Library {
    /// Signs items in parallel. Returns the results in the order of the items.
    pub fn sign_batch(
        &self,
        items: &[ItemFile<'_>],
        key: &SigningKey,
        provenance: Option<&str>,
        progress: &(dyn Fn(usize) + Sync),
    ) -> Vec<Result<SignOutcome, SignError>> {
        parallel(items, progress, |item_file| {
            self.sign(item_file, key, provenance)
        })
    }

    /// Signs an item. Its file is replaced atomically and keeps its mode.
    ///
    /// Refuses items with invalid metadata, and trust and revocation files. The latter are
    /// recognised by path and by content, because a link can give them another path.
    pub fn sign(
        &self,
        item_file: &ItemFile<'_>,
        key: &SigningKey,
        provenance: Option<&str>,
    ) -> Result<SignOutcome, SignError> {
        self.sign_with_retry(item_file, key, provenance, None)
    }

    /// Signs an item if its content has the hash that the user approved.
    pub fn sign_approved(
        &self,
        item_file: &ItemFile<'_>,
        key: &SigningKey,
        approved: Hash,
    ) -> Result<SignOutcome, SignError> {
        self.sign_with_retry(item_file, key, None, Some(approved))
    }

    /// The content that signing would cover; none if this key has already signed it.
    pub fn unsigned_content(
        &self,
        item_file: &ItemFile<'_>,
        key: &SigningKey,
    ) -> Result<Option<Vec<u8>>, SignError> {
        let raw = read(item_file)?;
        Ok(self
            .unsigned_parts(item_file, &raw.bytes, key, None)?
            .map(|(content, _)| content))
    }

    fn sign_with_retry(
        &self,
        item_file: &ItemFile<'_>,
        key: &SigningKey,
        provenance: Option<&str>,
        approved: Option<Hash>,
    ) -> Result<SignOutcome, SignError> {
        // Another process may sign the file or save it in an editor.
        for _ in 0..ATTEMPTS {
            if let Some(outcome) = self.try_sign(item_file, key, provenance, approved)? {
                self.accept(item_file, key)?;
                return Ok(outcome);
            }
        }
        Err(SpaceError::ChangedWhileReading(item_file.path()))?
    }

    /// Records the user's acceptance of project configuration that this key has just signed.
    fn accept(&self, item_file: &ItemFile<'_>, key: &SigningKey) -> Result<(), SignError> {
        if !Acceptance::is_needed(item_file.root, &item_file.relative) {
            return Ok(());
        }
        let claim = verify::claim(&read(item_file)?.bytes, &self.format_of(item_file));
        let claim = claim.ok().filter(|it| it.line.verify(key.public()).is_ok());
        let user = self.spaces.roots_in(Space::User).next();
        let user = user.and_then(|root| root.as_dir()?.parent());
        let (Some(claim), Some(user)) = (claim, user) else {
            return Ok(());
        };
        let Some(acceptance) =
            Acceptance::new(item_file.root, &item_file.relative, claim.line.hash)
        else {
            return Ok(());
        };
        let recorded = acceptance.record(&UserKeys::new(user), key);
        recorded.map(drop).map_err(|source| SignError::Accept {
            path: item_file.path(),
            source,
        })
    }

    /// Signs the file once. None if it changed between reading and writing.
    fn try_sign(
        &self,
        item_file: &ItemFile<'_>,
        key: &SigningKey,
        provenance: Option<&str>,
        approved: Option<Hash>,
    ) -> Result<Option<SignOutcome>, SignError> {
        let raw = read(item_file)?;
        let Some((content, format)) =
            self.unsigned_parts(item_file, &raw.bytes, key, provenance)?
        else {
            return Ok(Some(SignOutcome::Unchanged));
        };
        if approved.is_some_and(|approved| approved != Hash::digest(&content)) {
            return Err(SignError::ChangedSinceApproval(item_file.path()));
        }
        let time = lillux::time::now_rfc3339();
        let binding = Binding::item(&item_file.relative);
        let signed = signature::sign(&content, &format.comment, &binding, key, &time, provenance)
            .map_err(|e| SignError::Provenance(e.what))?;
        // Writes to the target of a link, as reading did, so that the link remains.
        let Some(path) = item_file.root.real_path(&item_file.relative)? else {
            return Ok(None);
        };
        if item_file.root.stat(&item_file.relative)? != Some(raw.identity) {
            return Ok(None);
        }
        durable::rewrite(&path, &signed).map_err(|source| SignError::Write { path, source })?;
        Ok(Some(SignOutcome::Signed))
    }

    /// The content to sign and the signature format; none if this key has already signed exactly
    /// this content for this file.
    fn unsigned_parts(
        &self,
        item_file: &ItemFile<'_>,
        bytes: &[u8],
        key: &SigningKey,
        provenance: Option<&str>,
    ) -> Result<Option<(Vec<u8>, SignatureFormat)>, SignError> {
        if item_file.root.space() == Space::System {
            return Err(SignError::SystemSpace(item_file.reference.to_string()));
        }
        let content = signature::strip_signature(bytes);
        if item_file.reference.is_key_file() || trust::is_key_file(&content) {
            return Err(SignError::KeyFile {
                file: item_file.reference.to_string(),
                path: item_file.path(),
            });
        }
        let format = self.format_of(item_file);
        if format
            .binding
            .as_ref()
            .is_some_and(|it| it.purpose() != ITEM)
        {
            return Err(SignError::Decision(item_file.path()));
        }
        let kind = item_file.reference.kind;
        let text = signature::normalize_comments(bytes, &format.comment);
        metadata::extract(&text, &item_file.extension, kind, &self.extractors).map_err(
            |source| ItemError::Metadata {
                path: item_file.path(),
                source: Box::new(source),
            },
        )?;
        let existing = verify::claim(bytes, &format).ok();
        let is_signed = existing.is_some_and(|claim| {
            claim.coverage == crate::item::Coverage::Whole
                && (provenance.is_none() || claim.line.provenance.as_deref() == provenance)
                && claim.line.fingerprint == key.public().fingerprint()
                && claim.line.binding == format.binding
                && claim.line.verify(key.public()).is_ok()
        });
        Ok((!is_signed).then_some((content, format)))
    }
}
