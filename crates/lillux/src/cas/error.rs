//! Errors of the content-addressed store.

use std::io;
use std::path::PathBuf;

use crate::canonical::CanonicalError;
use crate::{Hash, PathError};

/// Error of an operation on a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CasError {
    /// A file or directory of the store could not be used.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The root is not a directory.
    #[error("the root of the store is not a directory: {}", root.display())]
    RootNotDirectory {
        /// The path given.
        root: PathBuf,
    },
    /// The directory is missing or does not contain a store.
    #[error("there is no store in {}", root.display())]
    NoStore {
        /// The path given.
        root: PathBuf,
    },
    /// The store has no content with the hash.
    #[error("{hash} is not in the store {}", root.display())]
    NotFound {
        /// The requested hash.
        hash: Hash,
        /// The root of the store.
        root: PathBuf,
    },
    /// The content of a file does not match its hash.
    #[error(transparent)]
    Corrupted(#[from] CorruptedFile),
    /// A value or text has no canonical JSON.
    #[error("cannot store as an object: {0}")]
    NotAnObject(#[from] CanonicalError),
    /// An object cannot be deserialised into the requested type.
    #[error("cannot decode the object {hash}: {source}")]
    Decode {
        /// The hash of the object.
        hash: Hash,
        /// The error of the deserialisation.
        source: serde_json::Error,
    },
    /// Reading the content to store failed.
    #[error("cannot read the content to store: {0}")]
    Source(#[source] io::Error),
    /// Writing a copy of the content failed.
    #[error("cannot write the copy: {0}")]
    Sink(#[source] io::Error),
    /// A garbage collection was aborted before it removed anything.
    #[error("garbage collection aborted, nothing was removed: {0}")]
    GcAborted(#[source] Box<CasError>),
}

/// A file whose content does not match its hash.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} is corrupted: expected the hash {expected}, found {found}", path.display())]
pub struct CorruptedFile {
    /// The corrupted file.
    pub path: PathBuf,
    /// The hash in the file's name.
    pub expected: Hash,
    /// The hash of the file's content.
    pub found: Hash,
}
