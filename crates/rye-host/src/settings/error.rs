//! Errors in settings.

use lillux::PathError;
use rye_items::space::SpaceError;

use super::file::FileError;

/// The settings could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// An environment variable has an invalid value.
    #[error("invalid {name}={value:?}: expected {expected}")]
    Variable {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it may be.
        expected: &'static str,
    },
    /// No directory for keys and trust.
    #[error("no user space: neither USER_SPACE nor HOME is set")]
    NoUserSpace,
    /// A configuration file is invalid.
    #[error(transparent)]
    File(#[from] Box<FileError>),
    /// A space could not be opened.
    #[error(transparent)]
    Space(#[from] SpaceError),
    /// A path could not be used, such as a deleted current directory.
    #[error(transparent)]
    Path(#[from] PathError),
}
