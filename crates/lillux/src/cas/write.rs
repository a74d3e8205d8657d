//! Putting content in: temporary file, sync, rename, sync.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::SystemTime;

use rustix::fs::{FlockOperation, flock};
use serde::Serialize;
use tempfile::NamedTempFile;

use super::{Cas, CasError, Kind, LOCK, TMP, folders};
use crate::durable::sync_dir;
use crate::error::PathContext as _;
use crate::hash::Hasher;
use crate::{Hash, canonical};

/// By this a collection knows our temporary files from what else may lie there.
pub(super) const TEMP_PREFIX: &str = "put-";

const CHUNK: usize = 128 * 1024;

/// What a put did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Stored {
    /// Under which the content can be had back.
    pub hash: Hash,
    /// Its length in bytes.
    pub size: u64,
    /// As what it was put.
    pub kind: Kind,
    /// Whether it was there already, whole.
    pub existed: bool,
}

impl Cas {
    /// Stores bytes as a blob.
    pub fn put(&self, bytes: &[u8]) -> Result<Stored, CasError> {
        self.put_bytes(Kind::Blob, bytes)
    }

    /// Stores a value as an object: its canonical JSON.
    pub fn put_object<T: Serialize + ?Sized>(&self, value: &T) -> Result<Stored, CasError> {
        self.put_bytes(Kind::Object, &canonical::to_vec(value)?)
    }

    /// Stores a JSON text as an object: the canonical form of the text.
    pub fn put_json(&self, text: &[u8]) -> Result<Stored, CasError> {
        self.put_bytes(Kind::Object, &canonical::canonicalize(text)?)
    }

    /// Stores all that a reader gives as a blob, of any size, in constant memory.
    pub fn put_reader(&self, mut reader: impl Read) -> Result<Stored, CasError> {
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

    /// Begins a blob that is written piece by piece.
    pub fn writer(&self) -> Result<BlobWriter, CasError> {
        Ok(BlobWriter {
            cas: self.clone(),
            temp: self.temp()?,
            hasher: Hasher::default(),
            failed: None,
        })
    }

    fn put_bytes(&self, kind: Kind, bytes: &[u8]) -> Result<Stored, CasError> {
        let hash = Hash::digest(bytes);
        let existed = self.refresh(kind, &hash)?;
        if !existed {
            let mut temp = self.temp()?;
            temp.write_all(bytes).at("write", temp.path())?;
            self.install(temp, kind, &hash)?;
        }
        Ok(Stored {
            hash,
            size: bytes.len() as u64,
            kind,
            existed,
        })
    }

    /// A new temporary file, which is removed when dropped.
    ///
    /// A collection must not take it for a leftover, however long the writing
    /// lasts: it is locked as long as it is open. The store's lock covers the
    /// moment in which it exists and is not locked yet.
    fn temp(&self) -> Result<NamedTempFile, CasError> {
        let folder = self.root.join(TMP);
        let _lock = self.lock(LOCK, FlockOperation::LockShared)?;
        let temp = tempfile::Builder::new()
            .prefix(TEMP_PREFIX)
            // Read-only for all others from the start; who creates it may write.
            .make_in(&folder, |path| {
                OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .mode(0o444)
                    .open(path)
            })
            .at("create a temporary file in", &folder)?;
        flock(temp.as_file(), FlockOperation::LockShared).at("lock", temp.path())?;
        Ok(temp)
    }

    /// Whether the content is there, whole. If so it is on the disk and new to
    /// collections when this returns; if not, it is to be written.
    fn refresh(&self, kind: Kind, hash: &Hash) -> Result<bool, CasError> {
        let path = self.path_of(kind, hash);
        let file = {
            // A collection may be about to remove the file as too old. Under
            // the lock it either did, and there is nothing to open, or it
            // will find the new time. What follows needs no lock.
            let _lock = self.lock(LOCK, FlockOperation::LockShared)?;
            let file = match File::open(&path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
                other => other.at("read", &path)?,
            };
            file.set_modified(SystemTime::now())
                .at("refresh the time of", &path)?;
            file
        };
        // What cannot be read is as bad as what reads wrong: it is replaced.
        if !Hash::digest_reader(&file).is_ok_and(|(found, _)| found == *hash) {
            return Ok(false);
        }
        // The new time must outlive a crash, or a collection after it would
        // see the old one. The name may be another writer's, who renamed and
        // has not synced yet. The folders above were synced before that.
        file.sync_all().at("write to disk", &path)?;
        sync_dir(shard_of(&path))?;
        Ok(true)
    }

    /// Moves a written temporary file to its name, for good. Whatever is there
    /// is replaced: the same content by another writer, or a corrupted file.
    fn install(&self, temp: NamedTempFile, kind: Kind, hash: &Hash) -> Result<(), CasError> {
        let path = self.path_of(kind, hash);
        // The last write may be long ago; the content is new from now on.
        temp.as_file()
            .set_modified(SystemTime::now())
            .at("set the time of", temp.path())?;
        temp.as_file().sync_all().at("write to disk", temp.path())?;
        self.make_shard(kind, hash)?;
        {
            // Not between a collection's look at an old, corrupted file of
            // this name and its removal.
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
        let top = self.root.join(kind.folder());
        let outer = top.join(&hex[..2]);
        let inner = outer.join(&hex[2..4]);
        // Collections leave empty shards alone, so they stay once made.
        folders::make_durable(&outer, &top)?;
        folders::make_durable(&inner, &outer)?;
        Ok(())
    }
}

/// The folder of a path that was made by [`Cas::path_of`].
fn shard_of(path: &std::path::Path) -> &std::path::Path {
    path.parent().unwrap_or(path)
}

/// A blob in the making. Writes go straight to the disk's cache: give it
/// pieces of some size. Dropped without [`BlobWriter::finish`] it leaves nothing.
#[derive(Debug)]
pub struct BlobWriter {
    cas: Cas,
    temp: NamedTempFile,
    hasher: Hasher,
    /// After a failed write nobody knows what the blob holds: it cannot be finished.
    failed: Option<io::ErrorKind>,
}

impl BlobWriter {
    /// Stores what was written. When this returns it is on the disk.
    pub fn finish(self) -> Result<Stored, CasError> {
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
        Ok(Stored {
            hash,
            size,
            kind,
            existed,
        })
    }

    /// How many bytes were written so far.
    pub fn len(&self) -> u64 {
        self.hasher.len()
    }

    /// Whether nothing was written so far.
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
    fn a_blob_with_a_failed_write_cannot_be_finished() {
        let folder = tempfile::tempdir().unwrap();
        let cas = Cas::open(folder.path()).unwrap();
        let mut writer = cas.writer().unwrap();
        writer.write_all(b"good").unwrap();
        // From here on the file refuses writes.
        let (_, path) = writer.temp.into_parts();
        let read_only = File::open(&path).unwrap();
        writer.temp = NamedTempFile::from_parts(read_only, path);
        writer.write_all(b"lost").unwrap_err();

        let error = writer.finish().unwrap_err().to_string();
        assert!(error.starts_with("cannot write "), "{error}");
        assert!(!cas.has(&Hash::digest(b"good")).unwrap());
        assert_eq!(
            std::fs::read_dir(folder.path().join(TMP)).unwrap().count(),
            0
        );
    }
}
