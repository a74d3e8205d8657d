//! Integrity errors: why an item failed verification.

use std::path::PathBuf;
use std::sync::Arc;

use lillux::keys::Fingerprint;
use lillux::{Hash, shell_word};

use crate::excerpt::Excerpt;
use crate::signature::{self, Binding, Part, SignatureError};
use crate::space::{Deviation, Space};
use crate::trust::{IgnoredFile, Revocation, TrustedKey};

/// A failed verification, with the item, the position in its file and a fix.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{item} cannot be trusted: {problem}")]
pub struct IntegrityError {
    /// The item's reference, or a path for a file outside all spaces.
    pub item: String,
    /// The path to display.
    pub path: PathBuf,
    /// The space; none for a file outside all spaces.
    pub space: Option<Space>,
    /// The cause.
    pub problem: IntegrityProblem,
    /// The position in the file; none for a directory.
    pub excerpt: Option<Excerpt>,
    /// The argument for `rye sign` in the hint, where it is not the item.
    sign_argument: Option<String>,
}

/// The cause of a failed verification.
#[derive(Debug, Clone, thiserror::Error)]
pub enum IntegrityProblem {
    /// The signature line is missing, malformed or misplaced.
    #[error(transparent)]
    Line(SignatureError),
    /// The content differs from the signed content.
    #[error(
        "content does not match its signature: expected {expected}{}",
        found.map(|found| format!(", found {found}")).unwrap_or_default()
    )]
    Changed {
        /// The signed hash.
        expected: Hash,
        /// The hash of the actual content. None if the search index reported the difference,
        /// which does not store that hash.
        found: Option<Hash>,
    },
    /// The signer's key is not trusted.
    #[error(
        "signed by {fingerprint}, which is not trusted; {}{}",
        format_trusted_keys(trusted),
        format_ignored(ignored)
    )]
    Untrusted {
        /// The signer's key.
        fingerprint: Fingerprint,
        /// All trusted keys.
        trusted: Vec<Arc<TrustedKey>>,
        /// Invalid trust files for this key.
        ignored: Vec<IgnoredFile>,
    },
    /// The signer's key was revoked.
    #[error("signed by a revoked key: {0}")]
    Revoked(Revocation),
    /// The signature is bound to another file.
    #[error("signed as {signed_for}, but this file is {expected}")]
    Moved {
        /// The binding in the signature.
        signed_for: Binding,
        /// The binding of this file.
        expected: Binding,
    },
    /// The signature has no binding, and the user's settings require one.
    #[error("the signature is not bound to this file, which your settings require")]
    Unbound,
    /// A directory of dependencies has no manifest. Lists its files.
    #[error("its dependencies are not signed: {}", .0.join(", "))]
    NoManifest(Vec<String>),
    /// A manifest is malformed, or was made for another directory.
    #[error("invalid manifest: {0}")]
    Manifest(String),
    /// A directory differs from its manifest. Lists the differences.
    #[error("its dependencies do not match their manifest: {}", format_deviations(.0))]
    Files(Vec<(String, Deviation)>),
    /// The signature is cryptographically invalid.
    #[error("the signature by {fingerprint} is invalid")]
    BadSignature {
        /// The key that the signature line names.
        fingerprint: Fingerprint,
    },
}

impl IntegrityProblem {
    /// A stable error code for scripts.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Line(SignatureError::Unsigned) | Self::NoManifest(_) => "unsigned",
            Self::Line(SignatureError::Malformed { .. }) | Self::Manifest(_) => {
                "malformed_signature"
            }
            Self::Line(SignatureError::Multiple { .. }) => "multiple_signatures",
            Self::Line(SignatureError::WrongComment { .. }) => "wrong_comment",
            Self::Line(SignatureError::Misplaced { .. }) => "misplaced_signature",
            Self::Changed { .. } | Self::Files(_) => "content_changed",
            Self::Untrusted { .. } => "untrusted_key",
            Self::Revoked(_) => "revoked_key",
            Self::BadSignature { .. } => "bad_signature",
            Self::Moved { .. } => "signed_for_another_file",
            Self::Unbound => "unbound_signature",
        }
    }

    /// The number of affected files.
    pub(crate) fn file_count(&self) -> usize {
        match self {
            Self::NoManifest(files) => files.len(),
            Self::Files(files) => files.len(),
            _ => 1,
        }
    }
}

/// Formats deviations: `added a.py, changed b.py`.
pub(crate) fn format_deviations(files: &[(String, Deviation)]) -> String {
    let files = files.iter();
    let files = files.map(|(path, deviation)| format!("{} {path}", deviation.as_str()));
    files.collect::<Vec<_>>().join(", ")
}

fn format_trusted_keys(trusted: &[Arc<TrustedKey>]) -> String {
    if trusted.is_empty() {
        return "no key is trusted".to_owned();
    }
    let keys = trusted.iter().map(|trusted| match &trusted.owner {
        Some(owner) => format!("{} ({owner})", trusted.key.fingerprint()),
        None => trusted.key.fingerprint().to_string(),
    });
    format!("trusted keys: {}", keys.collect::<Vec<_>>().join(", "))
}

fn format_ignored(files: &[IgnoredFile]) -> String {
    let files = files.iter();
    let files = files.map(|it| format!("; {} was ignored: {}", it.path.display(), it.reason));
    files.collect()
}

impl IntegrityError {
    /// Creates an error for a file with these bytes, or for a directory without.
    pub fn new(
        item: String,
        path: PathBuf,
        space: Option<Space>,
        problem: IntegrityProblem,
        bytes: Option<&[u8]>,
    ) -> Self {
        let at = |part| {
            bytes.map(|bytes| Excerpt::at_offset(bytes, signature::part_offset(bytes, part)))
        };
        let excerpt = match &problem {
            IntegrityProblem::Line(error) => error.excerpt().cloned().or_else(|| at(Part::Line)),
            IntegrityProblem::Changed { .. } => at(Part::Hash),
            IntegrityProblem::Untrusted { .. }
            | IntegrityProblem::Revoked(_)
            | IntegrityProblem::Unbound => at(Part::Fingerprint),
            IntegrityProblem::BadSignature { .. } => at(Part::Signature),
            IntegrityProblem::Moved { .. } => at(Part::Binding),
            IntegrityProblem::NoManifest(_)
            | IntegrityProblem::Manifest(_)
            | IntegrityProblem::Files(_) => None,
        };
        Self {
            item,
            path,
            space,
            problem,
            excerpt,
            sign_argument: None,
        }
    }

    /// Sets the argument for `rye sign` in the hint.
    #[must_use]
    pub(crate) fn with_sign_argument(mut self, argument: &str) -> Self {
        self.sign_argument = Some(argument.to_owned());
        self
    }

    /// The command that fixes it, with the condition as a shell comment.
    pub fn hint(&self) -> String {
        match (self.space, &self.problem) {
            (Some(Space::System), _) => "unset RYE_SYSTEM_SPACE # or reinstall rye".to_owned(),
            (
                _,
                IntegrityProblem::Untrusted {
                    fingerprint,
                    ignored,
                    ..
                },
            ) => {
                let file = match ignored.as_slice() {
                    [ignored] => shell_word(&ignored.path),
                    _ => "FILE".to_owned(),
                };
                format!("rye keys trust {file} # if you know whose key {fingerprint} is")
            }
            (None, IntegrityProblem::Revoked(_)) => {
                "ask for a copy signed by another key".to_owned()
            }
            (None, IntegrityProblem::Line(SignatureError::Unsigned)) => {
                "ask its author for a signed copy".to_owned()
            }
            (None, _) => "ask its author for a good copy".to_owned(),
            (Some(_), problem) => {
                let condition = match problem {
                    IntegrityProblem::NoManifest(_) => "after reading them",
                    IntegrityProblem::Files(_) => "if you want these files",
                    IntegrityProblem::Line(SignatureError::Unsigned) => "after reading it",
                    _ => "if you want this content",
                };
                format!("rye sign {} # {condition}", self.sign_argument())
            }
        }
    }

    /// Whether signing the content again would make it verify.
    pub fn is_signable(&self) -> bool {
        let is_own = matches!(self.space, Some(Space::Project | Space::User));
        is_own && !matches!(self.problem, IntegrityProblem::Untrusted { .. })
    }

    /// The argument with which `rye sign` signs exactly this file. A user item is given by its
    /// path, because a project item may have the same id.
    pub fn sign_argument(&self) -> String {
        match (&self.sign_argument, self.space) {
            (Some(argument), _) => argument.clone(),
            (None, Some(Space::User)) => shell_word(&self.path),
            (None, _) => self.item.clone(),
        }
    }
}
