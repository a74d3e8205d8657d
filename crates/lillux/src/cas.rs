//! The content store: bytes and JSON objects, kept under their SHA-256.
//!
//! ```text
//! root/blobs/ab/cd/abcd…          bytes, as they came
//! root/objects/ab/cd/abcd….json   canonical JSON, hashed as written
//! root/tmp/put-…                  what is being written
//! root/lock, root/gc.lock         see below
//! ```
//!
//! A file is written once, whole, and is read-only from then on. It appears
//! under its name only after its bytes are on the disk, and a put returns only
//! after its name is, too; a crash or a `kill -9` at any moment leaves whole
//! files and perhaps a temporary one, which [`Cas::gc`] removes. What is read
//! is hashed again every time: corrupted bytes are an error, never a result,
//! and putting the same content once more heals the file.
//!
//! Any number of threads and processes may use one store at the same time. A
//! put holds `lock` shared, and a collection holds it exclusively, only for
//! the moments in which they could get into each other's way (see [`Cas::gc`]).
//! A [`Cas`] has no state but its path.
//!
//! ```
//! # let folder = tempfile::tempdir()?;
//! let cas = lillux::cas::Cas::open(folder.path().join("store"))?;
//! let note = cas.put(b"hello")?;
//! let index = cas.put_object(&serde_json::json!({ "note": note.hash }))?;
//! assert_eq!(cas.get(&note.hash)?, b"hello");
//! assert!(cas.has(&index.hash)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod folders;
mod gc;
mod read;
mod verify;
mod walk;
mod write;

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::durable::sync_dir;
use crate::error::PathContext as _;
use crate::{Hash, PathError};

pub use error::{CasError, Corrupted};
pub use gc::{DEFAULT_GRACE, GcOptions, GcReport};
pub use read::Reader;
pub use verify::VerifyReport;
pub use write::{BlobWriter, Stored};

/// Held shared by puts and exclusively by the sweep of a collection. It is
/// made last, so where it exists the store is laid out and on the disk.
const LOCK: &str = "lock";
/// Held by a collection from beginning to end: one at a time.
const GC_LOCK: &str = "gc.lock";
const TMP: &str = "tmp";

/// What a stored file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Canonical JSON; its strings may refer to other content.
    Object,
    /// Bytes; refers to nothing.
    Blob,
}

impl Kind {
    const ALL: [Self; 2] = [Self::Object, Self::Blob];

    fn folder(self) -> &'static str {
        match self {
            Self::Object => "objects",
            Self::Blob => "blobs",
        }
    }

    fn extension(self) -> &'static str {
        match self {
            Self::Object => ".json",
            Self::Blob => "",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Object => "object",
            Self::Blob => "blob",
        })
    }
}

/// A content store in a folder. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Cas {
    root: Arc<Path>,
}

impl Cas {
    /// Opens the store in `root`, making it (and the folders above) if needed.
    pub fn open(root: impl AsRef<Path>) -> Result<Self, CasError> {
        let cas = Self::at(root.as_ref())?;
        if !cas.is_laid_out()? {
            cas.lay_out()?;
        }
        Ok(cas)
    }

    /// Opens the store in `root`, which must be there. Writes nothing, so that
    /// a store on a read-only disk can be read.
    pub fn open_existing(root: impl AsRef<Path>) -> Result<Self, CasError> {
        let cas = Self::at(root.as_ref())?;
        if !cas.is_laid_out()? {
            return Err(CasError::NoStore {
                root: cas.root.to_path_buf(),
            });
        }
        Ok(cas)
    }

    /// The folder of the store, absolute.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where content of this kind and hash is kept, whether it is there or not.
    pub fn path_of(&self, kind: Kind, hash: &Hash) -> PathBuf {
        let mut name = hash.to_hex();
        let shard = self
            .root
            .join(kind.folder())
            .join(&name[..2])
            .join(&name[2..4]);
        name.push_str(kind.extension());
        shard.join(name)
    }

    /// Whether there is something under this hash. Does not read it: see [`Cas::verify`].
    pub fn has(&self, hash: &Hash) -> Result<bool, CasError> {
        Ok(self.kind_of(hash)?.is_some())
    }

    /// What is under this hash. The text of an object may also have been put
    /// as a blob; then this says object.
    pub fn kind_of(&self, hash: &Hash) -> Result<Option<Kind>, CasError> {
        for kind in Kind::ALL {
            let path = self.path_of(kind, hash);
            if path.try_exists().at("look at", &path)? {
                return Ok(Some(kind));
            }
        }
        Ok(None)
    }

    /// Absolute, so that a change of the working folder does not move the store.
    fn at(root: &Path) -> Result<Self, CasError> {
        let absolute = std::path::absolute(root).at("open the store in", root)?;
        Ok(Self {
            root: absolute.into(),
        })
    }

    fn is_laid_out(&self) -> Result<bool, CasError> {
        match fs::metadata(&self.root) {
            Ok(found) if !found.is_dir() => {
                return Err(CasError::RootNotDirectory {
                    root: self.root.to_path_buf(),
                });
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            other => other.at("open the store in", &self.root)?,
        };
        Ok(self
            .root
            .join(LOCK)
            .try_exists()
            .at("open the store in", &self.root)?)
    }

    fn lay_out(&self) -> Result<(), CasError> {
        folders::make_root(&self.root)?;
        for name in Kind::ALL.map(Kind::folder).into_iter().chain([TMP]) {
            folders::make(&self.root.join(name))?;
        }
        sync_dir(&self.root)?;
        for name in [GC_LOCK, LOCK] {
            let path = self.root.join(name);
            File::options()
                .create(true)
                .append(true)
                .open(&path)
                .at("create", &path)?;
        }
        Ok(())
    }

    /// Waits for a lock of the store; closing the file gives it back. Each
    /// call opens the file anew, so that threads exclude each other as
    /// processes do.
    fn lock(&self, name: &str, how: FlockOperation) -> Result<File, PathError> {
        let path = self.root.join(name);
        let file = File::open(&path).at("open", &path)?;
        rustix::io::retry_on_intr(|| flock(&file, how)).at("lock", &path)?;
        Ok(file)
    }
}

#[cfg(test)]
mod tests;
