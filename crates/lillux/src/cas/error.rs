//! What can go wrong with a store.

use std::io;
use std::path::PathBuf;

use crate::canonical::CanonicalError;
use crate::{Hash, PathError};

/// A store could not do what was asked of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CasError {
    /// A file or folder of the store could not be used.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The root is a file.
    #[error("the root of a store must be a folder, {} is none", root.display())]
    RootNotDirectory {
        /// The path given.
        root: PathBuf,
    },
    /// The folder is missing or holds no store.
    #[error("there is no store in {}", root.display())]
    NoStore {
        /// The path given.
        root: PathBuf,
    },
    /// Nothing is kept under the hash.
    #[error("{hash} is not in the store {}", root.display())]
    NotFound {
        /// The hash asked for.
        hash: Hash,
        /// The store that was looked in.
        root: PathBuf,
    },
    /// A file's bytes are not those that were put.
    #[error(transparent)]
    Corrupted(#[from] Corrupted),
    /// A value or text that cannot be an object.
    #[error("cannot be stored as an object: {0}")]
    NotAnObject(#[from] CanonicalError),
    /// A whole object that is not of the type it was to be read as.
    #[error("the object {hash} is not what was expected: {source}")]
    Decode {
        /// The object.
        hash: Hash,
        /// What does not fit.
        source: serde_json::Error,
    },
    /// What was to be stored could not be read to its end.
    #[error("cannot read what is to be stored: {0}")]
    Source(#[source] io::Error),
    /// The copy that was asked for could not be written.
    #[error("cannot write the copy: {0}")]
    Sink(#[source] io::Error),
    /// A collection stopped before it removed anything.
    #[error("nothing was removed: {0}")]
    GcAborted(#[source] Box<CasError>),
}

/// A file whose bytes are not those that were put.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} is corrupted: its content should hash to {expected}, it hashes to {found}", path.display())]
pub struct Corrupted {
    /// The file.
    pub path: PathBuf,
    /// The hash it was put under.
    pub expected: Hash,
    /// The hash of what is there now.
    pub found: Hash,
}
