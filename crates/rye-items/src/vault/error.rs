//! What can be wrong with the vault. No message holds anything of a secret.

use std::path::PathBuf;

use lillux::PathError;
use lillux::durable::WriteError;
use lillux::envelope::{OpenError, ParseEnvelopeError, SealError};
use lillux::keys::KeyError;
use lillux::shell_word;

use super::name::SecretName;
use crate::space::{Space, SpaceError};

/// A secret that could not be kept, opened, listed or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VaultError {
    /// There is none of that name.
    #[error("there is no secret `{name}`{}", space.map(|s| format!(" in the {s} space")).unwrap_or_default())]
    NoSecret {
        /// What was asked for.
        name: SecretName,
        /// Where alone it was looked for.
        space: Option<Space>,
    },
    /// Both spaces have one, and which is meant would be a guess.
    #[error("the project and the user space both contain a secret `{0}`")]
    InBothSpaces(SecretName),
    /// The space has no folder, or can hold none.
    #[error("there is no {0} space to store secrets in")]
    NoSpace(Space),
    /// Nothing was given to keep.
    #[error("the value for `{0}` is empty")]
    Empty(SecretName),
    /// More than a secret is.
    #[error("the value for `{0}` is larger than 1 MiB")]
    TooLarge(SecretName),
    /// The key that opens the vault is not there, and something was sealed to it.
    #[error("the vault's private key {} is missing", path.display())]
    NoKey {
        /// Where it should be.
        path: PathBuf,
        /// The secret that it should open.
        name: Option<SecretName>,
    },
    /// The key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A file in the vault's folder that holds no secret.
    #[error("{} is not a secret: invalid name", .0.display())]
    StrayFile(PathBuf),
    /// A file of a secret that is not an envelope, or not any more.
    #[error("the secret {} cannot be read: {source}", path.display())]
    Envelope {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: ParseEnvelopeError,
    },
    /// An envelope that does not open, or that belongs elsewhere.
    #[error("the secret {} cannot be opened: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: OpenError,
    },
    /// It could not be sealed.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The folder leads elsewhere, or is none.
    #[error(transparent)]
    Space(#[from] SpaceError),
    /// It could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The operating system refused.
    #[error(transparent)]
    Path(#[from] PathError),
}

impl VaultError {
    /// Whether bytes are not what was once written.
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

    /// The next command, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoSecret { .. } => Some("rye vault list".to_owned()),
            Self::InBothSpaces(name) => Some(format!("rye vault rm {name} --space project")),
            Self::NoSpace(Space::Project) => Some("rye init".to_owned()),
            Self::Empty(name) => Some(format!("printf %s \"$VALUE\" | rye vault set {name}")),
            Self::NoKey {
                name: Some(name), ..
            } => Some(format!("rye vault set {name}")),
            // Nothing opens what was sealed to it; a new pair is made at the next `set`.
            Self::NoKey { path, name: None } => {
                let folder = path.parent()?;
                let (folder, aside) = (
                    shell_word(folder),
                    shell_word(&folder.with_extension("old")),
                );
                Some(format!("mv {folder} {aside}"))
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
