//! Settings that cannot be used.

use lillux::PathError;
use rye_items::space::SpaceError;

use super::file::FileError;

/// Why there are no settings for a call.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    /// A variable of the environment that means nothing.
    #[error("{name}={value:?} means nothing; it must be {expected}")]
    Variable {
        name: &'static str,
        value: String,
        expected: &'static str,
    },
    /// There is nowhere for keys and trust.
    #[error("there is no user space: neither USER_SPACE nor HOME is set")]
    NoUserSpace,
    /// A configuration file says something that nobody knows.
    #[error(transparent)]
    File(#[from] Box<FileError>),
    /// The spaces cannot be opened.
    #[error(transparent)]
    Space(#[from] SpaceError),
    /// The current folder is gone, for example.
    #[error(transparent)]
    Path(#[from] PathError),
}
