//! Reads content and verifies its hash.

use std::fs::File;
use std::io::{self, Read, Seek as _, Write};
use std::path::PathBuf;

use serde::de::DeserializeOwned;

use super::{Cas, CasError, CorruptedFile, Kind};
use crate::Hash;
use crate::error::PathContext as _;
use crate::hash::Hasher;

const CHUNK: usize = 128 * 1024;

impl Cas {
    /// Reads the bytes of a blob, or the JSON text of an object, into memory.
    pub fn get(&self, hash: &Hash) -> Result<Vec<u8>, CasError> {
        let (kind, file) = self.find(hash)?;
        self.read_whole(kind, hash, file)
    }

    /// Reads and deserialises an object. Fails with [`CasError::NotFound`] if the hash is that of
    /// a blob.
    pub fn get_object<T: DeserializeOwned>(&self, hash: &Hash) -> Result<T, CasError> {
        let text = self
            .object_text(hash)?
            .ok_or_else(|| self.not_found(hash))?;
        serde_json::from_slice(&text).map_err(|source| CasError::Decode {
            hash: *hash,
            source,
        })
    }

    /// Opens content as a stream. Verifies all of it before returning.
    pub fn reader(&self, hash: &Hash) -> Result<Reader, CasError> {
        let (kind, file) = self.find(hash)?;
        let path = self.path_of(kind, hash);
        let mut reader = Reader {
            file,
            path,
            kind,
            hash: *hash,
            size: 0,
            hasher: Hasher::default(),
        };
        reader.check()?;
        Ok(reader)
    }

    /// Verifies content, writes it to `sink` and returns its length. Writes nothing if it is
    /// corrupted.
    pub fn copy_to(&self, hash: &Hash, sink: impl Write) -> Result<u64, CasError> {
        self.reader(hash)?.copy_to(sink)
    }

    /// The JSON text of an object, or `None` if there is no such object.
    pub(super) fn object_text(&self, hash: &Hash) -> Result<Option<Vec<u8>>, CasError> {
        match self.open_file(Kind::Object, hash)? {
            Some(file) => Ok(Some(self.read_whole(Kind::Object, hash, file)?)),
            None => Ok(None),
        }
    }

    pub(super) fn not_found(&self, hash: &Hash) -> CasError {
        CasError::NotFound {
            hash: *hash,
            root: self.root.to_path_buf(),
        }
    }

    fn find(&self, hash: &Hash) -> Result<(Kind, File), CasError> {
        for kind in Kind::ALL {
            if let Some(file) = self.open_file(kind, hash)? {
                return Ok((kind, file));
            }
        }
        Err(self.not_found(hash))
    }

    fn open_file(&self, kind: Kind, hash: &Hash) -> Result<Option<File>, CasError> {
        let path = self.path_of(kind, hash);
        match File::open(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            other => Ok(Some(other.at("read", &path)?)),
        }
    }

    fn read_whole(&self, kind: Kind, hash: &Hash, mut file: File) -> Result<Vec<u8>, CasError> {
        let path = self.path_of(kind, hash);
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).at("read", &path)?;
        let found = Hash::digest(&bytes);
        if found != *hash {
            return Err(CorruptedFile {
                path,
                expected: *hash,
                found,
            }
            .into());
        }
        Ok(bytes)
    }
}

/// A stream of verified content. It is hashed again while it is read: if it changes in between,
/// the last read fails with an [`InvalidData`](io::ErrorKind::InvalidData) error that contains
/// a [`CorruptedFile`].
#[derive(Debug)]
pub struct Reader {
    file: File,
    path: PathBuf,
    kind: Kind,
    hash: Hash,
    size: u64,
    hasher: Hasher,
}

impl Reader {
    /// The kind of the content.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The length of the content in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Writes the rest of the stream to `sink` and returns its length.
    pub fn copy_to(&mut self, mut sink: impl Write) -> Result<u64, CasError> {
        let mut buffer = vec![0; CHUNK];
        let mut copied = 0;
        loop {
            let n = self.read_checked(&mut buffer)?;
            if n == 0 {
                break;
            }
            sink.write_all(&buffer[..n]).map_err(CasError::Sink)?;
            copied += n as u64;
        }
        sink.flush().map_err(CasError::Sink)?;
        Ok(copied)
    }

    fn check(&mut self) -> Result<(), CasError> {
        let (found, size) = Hash::digest_reader(&self.file).at("read", &self.path)?;
        self.compare(found)?;
        self.file.rewind().at("read", &self.path)?;
        self.size = size;
        Ok(())
    }

    fn read_checked(&mut self, buffer: &mut [u8]) -> Result<usize, CasError> {
        let n = loop {
            match self.file.read(buffer) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => break other.at("read", &self.path)?,
            }
        };
        self.hasher.update(&buffer[..n]);
        if n == 0 && !buffer.is_empty() {
            let (found, _) = self.hasher.clone().finish();
            self.compare(found)?;
        }
        Ok(n)
    }

    fn compare(&self, found: Hash) -> Result<(), CorruptedFile> {
        if found == self.hash {
            return Ok(());
        }
        Err(CorruptedFile {
            path: self.path.clone(),
            expected: self.hash,
            found,
        })
    }
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_checked(buffer).map_err(|error| match error {
            CasError::Path(e) => e.source,
            CasError::Corrupted(e) => io::Error::new(io::ErrorKind::InvalidData, e),
            other => io::Error::other(other),
        })
    }
}
