//! A content-addressed store: bytes and JSON objects under their SHA-256.
//!
//! ```text
//! root/blobs/ab/cd/abcd…          bytes
//! root/objects/ab/cd/abcd….json   canonical JSON, hashed as written
//! root/tmp/put-…                  temporary files of running puts
//! root/lock, root/gc.lock         see below
//! ```
//!
//! A file is written once and is then read-only. It gets its name only after its content is on
//! disk, and a put returns only after the name is on disk too. A crash at any moment leaves
//! complete files and at most a temporary file, which [`Cas::gc`] removes. Every read verifies
//! the hash: corrupted content is an error, and putting the same content again repairs the file.
//!
//! Any number of threads and processes may use one store concurrently. A put holds `lock`
//! shared and the garbage collection holds it exclusively, both only for short critical
//! sections (see [`Cas::gc`]). A [`Cas`] has no state except its path.
//!
//! ```
//! # let dir = tempfile::tempdir()?;
//! let cas = lillux::cas::Cas::open(dir.path().join("store"))?;
//! let note = cas.put(b"hello")?;
//! let index = cas.put_object(&serde_json::json!({ "note": note.hash }))?;
//! assert_eq!(cas.get(&note.hash)?, b"hello");
//! assert!(cas.has(&index.hash)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod dirs;
mod error;
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

pub use error::{CasError, CorruptedFile};
pub use gc::{DEFAULT_GRACE, GcOptions, GcReport};
pub use read::Reader;
pub use verify::VerifyReport;
pub use write::{BlobWriter, PutResult};

/// Held shared by puts and exclusively by the sweep of a garbage collection. It is created
/// last, so where it exists the store is complete and on disk.
const LOCK: &str = "lock";
/// Held for a whole garbage collection, so that only one runs at a time.
const GC_LOCK: &str = "gc.lock";
const TMP: &str = "tmp";

/// Kind of stored content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Canonical JSON, whose strings may refer to other content by hash.
    Object,
    /// Bytes without references.
    Blob,
}

impl Kind {
    const ALL: [Self; 2] = [Self::Object, Self::Blob];

    fn dir_name(self) -> &'static str {
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

/// A content-addressed store in a directory. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Cas {
    root: Arc<Path>,
}

impl Cas {
    /// Opens the store in `root`, and creates it and its parent directories if needed.
    pub fn open(root: impl AsRef<Path>) -> Result<Self, CasError> {
        let cas = Self::with_root(root.as_ref())?;
        if !cas.exists()? {
            cas.create()?;
        }
        Ok(cas)
    }

    /// Opens an existing store in `root`. Writes nothing, so it works on a read-only disk.
    pub fn open_existing(root: impl AsRef<Path>) -> Result<Self, CasError> {
        let cas = Self::with_root(root.as_ref())?;
        if !cas.exists()? {
            return Err(CasError::NoStore {
                root: cas.root.to_path_buf(),
            });
        }
        Ok(cas)
    }

    /// The absolute path of the store's directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The path of content of this kind and hash, whether or not it exists.
    pub fn path_of(&self, kind: Kind, hash: &Hash) -> PathBuf {
        let mut name = hash.to_hex();
        let shard = self
            .root
            .join(kind.dir_name())
            .join(&name[..2])
            .join(&name[2..4]);
        name.push_str(kind.extension());
        shard.join(name)
    }

    /// Whether the store has content with this hash. Does not read it; see [`Cas::verify`].
    pub fn has(&self, hash: &Hash) -> Result<bool, CasError> {
        Ok(self.kind_of(hash)?.is_some())
    }

    /// The kind of the content with this hash. If the same bytes were put as an object and as a
    /// blob, returns [`Kind::Object`].
    pub fn kind_of(&self, hash: &Hash) -> Result<Option<Kind>, CasError> {
        for kind in Kind::ALL {
            let path = self.path_of(kind, hash);
            if path.try_exists().at("read the metadata of", &path)? {
                return Ok(Some(kind));
            }
        }
        Ok(None)
    }

    /// Makes the path absolute, so that it does not depend on the working directory.
    fn with_root(root: &Path) -> Result<Self, CasError> {
        let absolute = std::path::absolute(root).at("open the store in", root)?;
        Ok(Self {
            root: absolute.into(),
        })
    }

    fn exists(&self) -> Result<bool, CasError> {
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

    fn create(&self) -> Result<(), CasError> {
        dirs::create_root(&self.root)?;
        for name in Kind::ALL.map(Kind::dir_name).into_iter().chain([TMP]) {
            dirs::create(&self.root.join(name))?;
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

    /// Acquires a lock file of the store; closing the file releases it. Each call opens the
    /// file again, so that threads exclude each other like processes.
    fn lock(&self, name: &str, operation: FlockOperation) -> Result<File, PathError> {
        let path = self.root.join(name);
        let file = File::open(&path).at("open", &path)?;
        rustix::io::retry_on_intr(|| flock(&file, operation)).at("lock", &path)?;
        Ok(file)
    }
}

#[cfg(test)]
mod tests;
