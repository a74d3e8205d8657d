//! The one error shape for "this path could not be used".

use std::io;
use std::path::{Path, PathBuf};

/// An operation on a path failed: what was tried, where, and why.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub struct PathError {
    /// What was tried, as a verb phrase: `read`, `create the folder`.
    pub action: &'static str,
    /// Where.
    pub path: PathBuf,
    /// What the operating system said.
    pub source: io::Error,
}

impl PathError {
    /// Whether the operating system refused for lack of permission.
    pub fn is_permission(&self) -> bool {
        self.source.kind() == io::ErrorKind::PermissionDenied
    }
}

/// Gives an I/O result its place: `fs::read(p).at("read", p)?`.
pub trait At<T> {
    /// Adds what was tried, and where.
    fn at(self, action: &'static str, path: impl AsRef<Path>) -> Result<T, PathError>;
}

impl<T, E: Into<io::Error>> At<T> for Result<T, E> {
    fn at(self, action: &'static str, path: impl AsRef<Path>) -> Result<T, PathError> {
        self.map_err(|source| PathError {
            action,
            path: path.as_ref().to_owned(),
            source: source.into(),
        })
    }
}
