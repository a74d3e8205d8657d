//! The error of a failed operation on a path, and the text of an error with its causes.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

/// An I/O error with the path and the action that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub struct PathError {
    /// The action that failed, as a verb phrase: `read`, `create the directory`.
    pub action: &'static str,
    /// The path that the action was applied to.
    pub path: PathBuf,
    /// The operating system's error.
    pub source: io::Error,
}

impl PathError {
    /// Whether the operating system denied permission.
    pub fn is_permission(&self) -> bool {
        self.source.kind() == io::ErrorKind::PermissionDenied
    }
}

/// Adds a path to an I/O error: `fs::read(p).at("read", p)?`.
pub trait PathContext<T> {
    /// Turns the error into a [`PathError`] with this action and path.
    fn at(self, action: &'static str, path: impl AsRef<Path>) -> Result<T, PathError>;
}

impl<T, E: Into<io::Error>> PathContext<T> for Result<T, E> {
    fn at(self, action: &'static str, path: impl AsRef<Path>) -> Result<T, PathError> {
        self.map_err(|source| PathError {
            action,
            path: path.as_ref().to_owned(),
            source: source.into(),
        })
    }
}

/// Formats an error with its causes, leaving out repetitions.
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}
