//! Errors of the vault. No message contains any part of a secret.

use std::path::PathBuf;

use lillux::PathError;
use lillux::durable::WriteError;
use lillux::envelope::{OpenError, ParseEnvelopeError, SealError};
use lillux::keys::KeyError;
use lillux::shell_word;

use super::name::SecretName;
use crate::space::{Space, SpaceError};

/// A secret cannot be stored, decrypted, listed or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VaultError {
    /// No secret has this name.
    #[error("there is no secret `{name}`{}", space.map(|s| format!(" in the {s} space")).unwrap_or_default())]
    NoSecret {
        /// The name that was looked up.
        name: SecretName,
        /// The only space that was searched; none for all spaces.
        space: Option<Space>,
    },
    /// Both spaces contain a secret with this name.
    #[error("the project and the user space both contain a secret `{0}`")]
    InBothSpaces(SecretName),
    /// The space does not exist, or cannot contain secrets.
    #[error("there is no {0} space to store secrets in")]
    NoSpace(Space),
    /// The value is empty.
    #[error("the value for `{0}` is empty")]
    Empty(SecretName),
    /// The value exceeds the size limit.
    #[error("the value for `{0}` is larger than 1 MiB")]
    TooLarge(SecretName),
    /// The vault's private key does not exist, although there are secrets or a public key.
    #[error("the vault's private key {} is missing", path.display())]
    NoKey {
        /// The expected path of the key.
        path: PathBuf,
        /// The secret to decrypt; none when storing one.
        name: Option<SecretName>,
    },
    /// The key file is invalid or has the wrong permissions.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A file in the vault whose name is not that of a secret.
    #[error("{} is not a secret: invalid name", .0.display())]
    StrayFile(PathBuf),
    /// The file of a secret is not a valid envelope.
    #[error("the secret {} cannot be read: {source}", path.display())]
    Envelope {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        source: ParseEnvelopeError,
    },
    /// The envelope cannot be decrypted, or was made for another name or space.
    #[error("the secret {} cannot be opened: {source}", path.display())]
    Open {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        source: OpenError,
    },
    /// Encryption failed.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The space or the vault directory cannot be used.
    #[error(transparent)]
    Space(#[from] SpaceError),
    /// The file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A file operation failed.
    #[error(transparent)]
    Path(#[from] PathError),
}

impl VaultError {
    /// Whether a file was modified or damaged.
    pub fn is_integrity(&self) -> bool {
        match self {
            Self::Envelope { source, .. } => !matches!(
                source,
                ParseEnvelopeError::UnknownVersion(_) | ParseEnvelopeError::UnknownSuite
            ),
            Self::Open { .. } => true,
            Self::Space(error) => matches!(error, SpaceError::LeavesSpace(_)),
            _ => false,
        }
    }

    /// A command that helps to fix it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoSecret { .. } => Some("rye vault list".to_owned()),
            Self::InBothSpaces(name) => Some(format!("rye vault rm {name} --space project")),
            Self::NoSpace(Space::Project) => Some("rye init".to_owned()),
            Self::Empty(name) => Some(format!("printf %s \"$VALUE\" | rye vault set {name}")),
            Self::NoKey {
                name: Some(name), ..
            } => Some(format!("rye vault set {name}")),
            // The old secrets are lost; the next `set` generates a new key pair.
            Self::NoKey { path, name: None } => {
                let dir = path.parent()?;
                let backup = shell_word(&dir.with_extension("old"));
                Some(format!("mv {} {backup}", shell_word(dir)))
            }
            Self::Open { path, .. } | Self::Envelope { path, .. } => {
                let name = path.file_stem()?.to_str()?;
                Some(format!("rye vault set {name}"))
            }
            Self::Key(error) => error.hint(),
            Self::Space(error) => error.hint(),
            _ => None,
        }
    }
}
