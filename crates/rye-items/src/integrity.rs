//! Why an item is not what it claims to be.

use std::fmt::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use lillux::keys::Fingerprint;
use lillux::{Hash, shell_word};

use crate::excerpt::Excerpt;
use crate::signature::{self, Binding, Part, SignatureError};
use crate::space::{Deviation, Space};
use crate::trust::{IgnoredFile, Revocation, TrustedKey};

/// An item whose bytes are not vouched for: which, where, what was expected and
/// found, and what to do.
#[derive(Debug, Clone)]
pub struct IntegrityError {
    /// The item, as it is referred to; a path for a file outside the spaces.
    pub item: String,
    /// The file.
    pub path: PathBuf,
    /// Its space, if it is in one.
    pub space: Option<Space>,
    /// What is wrong.
    pub problem: IntegrityProblem,
    /// Where in the file; none for a directory.
    pub excerpt: Option<Excerpt>,
    /// What `rye sign` is to be given, where that is not the item.
    sign_with: Option<String>,
}

/// What is wrong with an item's signature.
#[derive(Debug, Clone)]
pub enum IntegrityProblem {
    /// There is no signature, or its line cannot be read.
    Line(SignatureError),
    /// The bytes are not those that were signed.
    Changed {
        /// The hash that was signed.
        expected: Hash,
        /// The hash of what is there; unknown where only that it differs was kept.
        found: Option<Hash>,
    },
    /// The key that signed does not count.
    Untrusted {
        /// The key.
        fingerprint: Fingerprint,
        /// The keys that do.
        trusted: Vec<Arc<TrustedKey>>,
        /// Files that would make it count, and do not.
        ignored: Vec<IgnoredFile>,
    },
    /// The key that signed was revoked.
    Revoked(Revocation),
    /// The signature was made for another file.
    Moved {
        /// What it was made for.
        signed_for: Binding,
        /// What this file is.
        expected: Binding,
    },
    /// The signature does not say what it was made for, and that is required.
    Unbound,
    /// A directory that a tool loads from has no manifest: all files in it.
    NoManifest(Vec<String>),
    /// A manifest cannot be read, or is one of another directory.
    Manifest(String),
    /// A directory is not as its manifest says: all differences.
    Files(Vec<(String, Deviation)>),
    /// The signature is not the key's.
    BadSignature {
        /// The key that it claims to be of.
        fingerprint: Fingerprint,
    },
}

impl IntegrityProblem {
    /// A stable word for scripts.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Line(SignatureError::Unsigned) | Self::NoManifest(_) => "unsigned",
            Self::Line(SignatureError::Malformed { .. }) | Self::Manifest(_) => {
                "malformed_signature"
            }
            Self::Line(SignatureError::Two { .. }) => "two_signatures",
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

    /// How many files it is about.
    pub(crate) fn files(&self) -> usize {
        match self {
            Self::NoManifest(files) => files.len(),
            Self::Files(files) => files.len(),
            _ => 1,
        }
    }
}

impl fmt::Display for IntegrityProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(error) => error.fmt(f),
            Self::Changed { expected, found } => {
                write!(
                    f,
                    "content does not match its signature: expected {expected}"
                )?;
                match found {
                    Some(found) => write!(f, ", found {found}"),
                    None => Ok(()),
                }
            }
            Self::Untrusted {
                fingerprint,
                trusted,
                ignored,
            } => {
                write!(f, "signed by {fingerprint}, which is not trusted; ")?;
                f.write_str(&listed(trusted))?;
                for IgnoredFile { path, reason, .. } in ignored {
                    write!(f, "; {} was ignored: {reason}", path.display())?;
                }
                Ok(())
            }
            Self::NoManifest(files) => {
                write!(f, "its dependencies are not signed: {}", files.join(", "))
            }
            Self::Manifest(why) => write!(f, "invalid manifest: {why}"),
            Self::Files(files) => write!(
                f,
                "its dependencies do not match their manifest: {}",
                list(files)
            ),
            Self::Revoked(revocation) => write!(f, "signed by a revoked key: {revocation}"),
            Self::Moved {
                signed_for,
                expected,
            } => write!(f, "signed as {signed_for}, but this file is {expected}"),
            Self::Unbound => {
                f.write_str("the signature is not bound to this file, which your settings require")
            }
            Self::BadSignature { fingerprint } => {
                write!(f, "the signature by {fingerprint} is invalid")
            }
        }
    }
}

/// `added a.py, changed b.py`.
pub(crate) fn list(files: &[(String, Deviation)]) -> String {
    let files = files.iter();
    let files = files.map(|(path, deviation)| format!("{} {path}", deviation.as_str()));
    files.collect::<Vec<_>>().join(", ")
}

fn listed(trusted: &[Arc<TrustedKey>]) -> String {
    let mut text = String::new();
    for key in trusted {
        let separator = if text.is_empty() {
            "trusted keys: "
        } else {
            ", "
        };
        let _ = write!(text, "{separator}{}", key.key.fingerprint());
        if let Some(owner) = &key.owner {
            let _ = write!(text, " ({owner})");
        }
    }
    if text.is_empty() {
        "no key is".clone_into(&mut text);
    }
    text
}

impl fmt::Display for IntegrityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cannot be trusted: {}", self.item, self.problem)
    }
}

impl std::error::Error for IntegrityError {}

impl IntegrityError {
    /// About a file of these bytes, or a directory.
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
            sign_with: None,
        }
    }

    /// The same, with what `rye sign` is to be given to put it right.
    #[must_use]
    pub(crate) fn signed_with(mut self, word: &str) -> Self {
        self.sign_with = Some(word.to_owned());
        self
    }

    /// The command that puts it right, if the content is as it should be.
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
            (Some(_), IntegrityProblem::NoManifest(_)) => {
                format!("rye sign {} # after reading them", self.signed_as())
            }
            (Some(_), IntegrityProblem::Files(_)) => {
                format!("rye sign {} # if you want these files", self.signed_as())
            }
            (Some(_), IntegrityProblem::Line(SignatureError::Unsigned)) => {
                format!("rye sign {} # after reading it", self.signed_as())
            }
            (Some(_), _) => {
                let item = self.signed_as();
                format!("rye sign {item} # if you want this content")
            }
        }
    }

    /// What to call it so that this file is meant: a project's may have the same name.
    fn signed_as(&self) -> String {
        match (&self.sign_with, self.space) {
            (Some(word), _) => word.clone(),
            (None, Some(Space::User)) => shell_word(&self.path),
            (None, _) => self.item.clone(),
        }
    }
}
