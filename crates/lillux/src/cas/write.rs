//! Stores content: write a temporary file, sync it, rename it, sync the directory.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::SystemTime;

use rustix::fs::{FlockOperation, flock};
use serde::Serialize;
use tempfile::NamedTempFile;

use super::{Cas, CasError, Kind, LOCK, TMP, dirs};
use crate::durable::sync_dir;
use crate::error::PathContext as _;
use crate::hash::Hasher;
use crate::{Hash, canonical};

/// Prefix by which the garbage collection recognises temporary files of puts.
pub(super) const TEMP_PREFIX: &str = "put-";

const CHUNK: usize = 128 * 1024;

/// Result of storing content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PutResult {
    /// Hash of the content.
    pub hash: Hash,
    /// Length of the content in bytes.
    pub size: u64,
    /// Whether it was stored as an object or as a blob.
    pub kind: Kind,
    /// Whether the store already had the content, not corrupted.
    pub existed: bool,
}

impl Cas {
    /// Stores bytes as a blob.
    pub fn put(&self, bytes: &[u8]) -> Result<PutResult, CasError> {
        self.put_bytes(Kind::Blob, bytes)
    }

    /// Stores a value as an object, in canonical JSON.
    pub fn put_object<T: Serialize + ?Sized>(&self, value: &T) -> Result<PutResult, CasError> {
        self.put_bytes(Kind::Object, &canonical::to_vec(value)?)
    }

    /// Stores JSON text as an object, in canonical JSON.
    pub fn put_json(&self, text: &[u8]) -> Result<PutResult, CasError> {
        self.put_bytes(Kind::Object, &canonical::canonicalize(text)?)
    }

    /// Reads `reader` to its end and stores it as a blob, in constant memory.
    pub fn put_reader(&self, mut reader: impl Read) -> Result<PutResult, CasError> {
        let mut writer = self.writer()?;
        let mut buffer = vec![0; CHUNK];
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => return writer.finish(),
                Ok(n) => writer
                    .write_all(&buffer[..n])
                    .at("write", writer.temp.path())?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(CasError::Source(e)),
            }
        }
    }

    /// Creates a writer for a blob that is written in pieces.
    pub fn writer(&self) -> Result<BlobWriter, CasError> {
        Ok(BlobWriter {
            cas: self.clone(),
            temp: self.temp()?,
            hasher: Hasher::default(),
            failed: None,
        })
    }

    fn put_bytes(&self, kind: Kind, bytes: &[u8]) -> Result<PutResult, CasError> {
        let hash = Hash::digest(bytes);
        let existed = self.refresh(kind, &hash)?;
        if !existed {
            let mut temp = self.temp()?;
            temp.write_all(bytes).at("write", temp.path())?;
            self.install(temp, kind, &hash)?;
        }
        Ok(PutResult {
            hash,
            size: bytes.len() as u64,
            kind,
            existed,
        })
    }

    /// Creates a temporary file, which is removed when dropped.
    ///
    /// The file is locked while it is open, so that a garbage collection does not remove it
    /// while it is written. The store's lock covers the moment between its creation and its
    /// locking.
    fn temp(&self) -> Result<NamedTempFile, CasError> {
        let dir = self.root.join(TMP);
        let _lock = self.lock(LOCK, FlockOperation::LockShared)?;
        let temp = tempfile::Builder::new()
            .prefix(TEMP_PREFIX)
            // Mode 0444 still allows the creating descriptor to write.
            .make_in(&dir, |path| {
                OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .mode(0o444)
                    .open(path)
            })
            .at("create a temporary file in", &dir)?;
        flock(temp.as_file(), FlockOperation::LockShared).at("lock", temp.path())?;
        Ok(temp)
    }

    /// Checks whether the store has the content, not corrupted. If so, makes it durable and
    /// updates its time for the garbage collection. If not, the caller writes it.
    fn refresh(&self, kind: Kind, hash: &Hash) -> Result<bool, CasError> {
        let path = self.path_of(kind, hash);
        let file = {
            // A garbage collection may be about to remove the file as too old. Under the
            // lock, it either did, and there is no file, or it will see the new time. The
            // rest needs no lock.
            let _lock = self.lock(LOCK, FlockOperation::LockShared)?;
            let file = match File::open(&path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
                other => other.at("read", &path)?,
            };
            file.set_modified(SystemTime::now())
                .at("refresh the time of", &path)?;
            file
        };
        // A file that is corrupted or cannot be read is replaced.
        if !Hash::digest_reader(&file).is_ok_and(|(found, _)| found == *hash) {
            return Ok(false);
        }
        // The new time must survive a crash, or a later garbage collection would see the old
        // one. Another writer may have renamed the file and not synced the shard yet. The
        // directories above were synced before.
        file.sync_all().at("write to disk", &path)?;
        sync_dir(shard_of(&path))?;
        Ok(true)
    }

    /// Renames a temporary file to its final path, durably. Replaces an existing file, which has
    /// the same content or is corrupted.
    fn install(&self, temp: NamedTempFile, kind: Kind, hash: &Hash) -> Result<(), CasError> {
        let path = self.path_of(kind, hash);
        // The last write may be long ago, but the grace time starts now.
        temp.as_file()
            .set_modified(SystemTime::now())
            .at("set the time of", temp.path())?;
        temp.as_file().sync_all().at("write to disk", temp.path())?;
        self.make_shard(kind, hash)?;
        {
            // Not while a garbage collection removes an old, corrupted file of this name.
            let _lock = self.lock(LOCK, FlockOperation::LockShared)?;
            temp.persist(&path)
                .map_err(|e| e.error)
                .at("move into place", &path)?;
        }
        sync_dir(shard_of(&path))?;
        Ok(())
    }

    fn make_shard(&self, kind: Kind, hash: &Hash) -> Result<(), CasError> {
        let hex = hash.to_hex();
        let top = self.root.join(kind.dir_name());
        let outer = top.join(&hex[..2]);
        let inner = outer.join(&hex[2..4]);
        // Garbage collections never remove shards.
        dirs::create_durable(&outer, &top)?;
        dirs::create_durable(&inner, &outer)?;
        Ok(())
    }
}

/// The directory of a path from [`Cas::path_of`].
fn shard_of(path: &std::path::Path) -> &std::path::Path {
    path.parent().unwrap_or(path)
}

/// Writes a blob in pieces. It does not buffer, so avoid small pieces. If dropped without
/// [`BlobWriter::finish`], nothing is stored.
#[derive(Debug)]
pub struct BlobWriter {
    cas: Cas,
    temp: NamedTempFile,
    hasher: Hasher,
    /// Set after a failed write: the content is then undefined and cannot be stored.
    failed: Option<io::ErrorKind>,
}

impl BlobWriter {
    /// Stores the blob durably.
    pub fn finish(self) -> Result<PutResult, CasError> {
        let Self {
            cas,
            temp,
            hasher,
            failed,
        } = self;
        if let Some(kind) = failed {
            return Err(io::Error::from(kind)).at("write", temp.path())?;
        }
        let (hash, size) = hasher.finish();
        let kind = Kind::Blob;
        let existed = cas.refresh(kind, &hash)?;
        if !existed {
            cas.install(temp, kind, &hash)?;
        }
        Ok(PutResult {
            hash,
            size,
            kind,
            existed,
        })
    }

    /// Number of bytes written so far.
    pub fn len(&self) -> u64 {
        self.hasher.len()
    }

    /// Whether no bytes were written so far.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Write for BlobWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.temp.as_file_mut().write(bytes) {
            Ok(n) => {
                self.hasher.update(&bytes[..n]);
                Ok(n)
            }
            Err(e) => {
                if e.kind() != io::ErrorKind::Interrupted {
                    self.failed = Some(e.kind());
                }
                Err(e)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blob_with_a_failed_write_is_not_stored() {
        let dir = tempfile::tempdir().unwrap();
        let cas = Cas::open(dir.path()).unwrap();
        let mut writer = cas.writer().unwrap();
        writer.write_all(b"good").unwrap();
        // From here on, writes fail.
        let (_, path) = writer.temp.into_parts();
        let read_only = File::open(&path).unwrap();
        writer.temp = NamedTempFile::from_parts(read_only, path);
        writer.write_all(b"lost").unwrap_err();

        let error = writer.finish().unwrap_err();
        assert!(
            matches!(&error, CasError::Path(error) if error.action == "write"),
            "{error}"
        );
        assert!(!cas.has(&Hash::digest(b"good")).unwrap());
        assert_eq!(std::fs::read_dir(dir.path().join(TMP)).unwrap().count(), 0);
    }
}
