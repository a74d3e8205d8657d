//! Getting content out, hashed again every time.

use std::fs::File;
use std::io::{self, Read, Seek as _, Write};
use std::path::PathBuf;

use serde::de::DeserializeOwned;

use super::{Cas, CasError, Corrupted, Kind};
use crate::Hash;
use crate::error::PathContext as _;
use crate::hash::Hasher;

const CHUNK: usize = 128 * 1024;

impl Cas {
    /// The bytes under a hash, in memory: a blob's, or an object's JSON text.
    pub fn get(&self, hash: &Hash) -> Result<Vec<u8>, CasError> {
        let (kind, file) = self.find(hash)?;
        self.read_whole(kind, hash, file)
    }

    /// The object under a hash, as a value. A blob of this hash is not found.
    pub fn get_object<T: DeserializeOwned>(&self, hash: &Hash) -> Result<T, CasError> {
        let text = self
            .object_text(hash)?
            .ok_or_else(|| self.not_found(hash))?;
        serde_json::from_slice(&text).map_err(|source| CasError::Decode {
            hash: *hash,
            source,
        })
    }

    /// The content under a hash as a stream, for what is too large for memory.
    /// All of it is checked before this returns.
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

    /// Writes the content under a hash to `sink` and gives its length. Nothing
    /// is written unless all of it was found whole.
    pub fn copy_to(&self, hash: &Hash, sink: impl Write) -> Result<u64, CasError> {
        self.reader(hash)?.copy_to(sink)
    }

    /// The text of the object under a hash; none where there is no such object.
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
            return Err(Corrupted {
                path,
                expected: *hash,
                found,
            }
            .into());
        }
        Ok(bytes)
    }
}

/// Content as a stream. It was found whole when the stream was opened, and is
/// hashed again on its way: should it change in between, the last read is an
/// [`InvalidData`](io::ErrorKind::InvalidData) error that holds [`Corrupted`],
/// and never a normal end.
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
    /// What the content is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The length of the content.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Writes what was not read yet to `sink` and gives the length of that.
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

    fn compare(&self, found: Hash) -> Result<(), Corrupted> {
        if found == self.hash {
            return Ok(());
        }
        Err(Corrupted {
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
