//! Reads and writes key files, and checks their permissions.
//!
//! A key pair is two files in a directory. The private key file is created with mode 0600, and a
//! new directory with 0700. An existing directory keeps its mode, but is rejected if group or
//! others can write to it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use zeroize::Zeroizing;

use super::error::KeyError;
use super::pem;
use crate::durable::{IfExists, StagedFile, check_replaceable, create_dir, sync_dir};
use crate::error::PathContext;

/// Maximum size of a key file, far above any key.
const LIMIT: usize = 64 * 1024;

/// Paths of the files of a key pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPairFiles {
    /// `private_key.pem`, readable only by its owner.
    pub private: PathBuf,
    /// `public_key.pem`, readable by everyone.
    pub public: PathBuf,
}

impl KeyPairFiles {
    /// The paths of a key pair in a directory.
    pub fn in_dir(dir: &Path) -> Self {
        Self {
            private: dir.join("private_key.pem"),
            public: dir.join("public_key.pem"),
        }
    }
}

/// Writes a key pair into a directory.
///
/// Two files cannot be renamed atomically. To replace a pair, the old public key is removed
/// first and the new one written last. So if this is interrupted, the directory contains a
/// matching pair, or only a private key, from which [`restore_public`] derives the public key.
/// Concurrent writers of the same directory wait for each other.
pub(crate) fn write_pair(
    dir: &Path,
    private: &str,
    public: &str,
    existing: IfExists,
) -> Result<KeyPairFiles, KeyError> {
    create_dir(dir, 0o700)?;
    let _lock = lock(dir)?;
    let files = KeyPairFiles::in_dir(dir);
    if existing == IfExists::Fail {
        // Before the first rename, so that an error changes nothing.
        for path in [&files.private, &files.public] {
            if path.symlink_metadata().is_ok() {
                return Err(KeyError::Exists(path.clone()));
            }
        }
    }
    let staged_public = StagedFile::new(&files.public, public.as_bytes(), 0o644)?;
    let staged_private = StagedFile::new(&files.private, private.as_bytes(), 0o600)?;
    // Each step is synced before the next, because the disk may reorder them otherwise.
    if existing == IfExists::Replace {
        for path in [&files.private, &files.public] {
            check_replaceable(path)?;
        }
        match fs::remove_file(&files.public) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed.at("remove", &files.public)?,
        }
        sync_dir(dir)?;
    }
    staged_private.publish(existing)?;
    sync_dir(dir)?;
    staged_public.publish(existing)?;
    sync_dir(dir)?;
    Ok(files)
}

/// Writes the public key file of a private key, after an interrupted [`write_pair`]. `derive`
/// reads the private key file and returns the PEM text of the public key.
pub(crate) fn restore_public(
    files: &KeyPairFiles,
    derive: impl FnOnce() -> Result<String, KeyError>,
) -> Result<(), KeyError> {
    let dir = files.private.parent().unwrap_or(Path::new("."));
    // Another writer may be between its two files, so lock before reading the private key.
    let _lock = lock(dir)?;
    if files.public.symlink_metadata().is_ok() {
        return Ok(());
    }
    let public = derive()?;
    StagedFile::new(&files.public, public.as_bytes(), 0o644)?.publish(IfExists::Fail)?;
    Ok(sync_dir(dir)?)
}

/// Locks a directory against other writers, and checks that only its owner can write to it.
fn lock(dir: &Path) -> Result<File, KeyError> {
    let lock = File::open(dir).at("open the directory", dir)?;
    let metadata = lock.metadata().at("read the metadata of", dir)?;
    let mode = metadata.mode() & 0o7777;
    if mode & 0o022 != 0 {
        let path = dir.to_owned();
        return Err(KeyError::InsecureDirectory { path, mode });
    }
    flock(&lock, FlockOperation::LockExclusive).at("lock the directory", dir)?;
    Ok(lock)
}

/// Reads a private key file. Fails if group or others have access to it.
pub(crate) fn read_private(path: &Path) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let (text, mode) = read(path)?;
    // A public key file may be readable by others; the caller rejects it with a better error.
    if mode & 0o077 != 0 && !pem::is_public(&text) {
        let path = path.to_owned();
        return Err(KeyError::InsecureFile { path, mode });
    }
    Ok(text)
}

/// Reads a public key file.
pub(crate) fn read_public(path: &Path) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    read(path).map(|(text, _)| text)
}

/// Reads the content and the permission bits of a file through one descriptor, so that both are
/// of the same file.
fn read(path: &Path) -> Result<(Zeroizing<Vec<u8>>, u32), KeyError> {
    let mut options = OpenOptions::new();
    // Do not wait for a writer if the path is a pipe.
    options.read(true).custom_flags(libc::O_NONBLOCK);
    let mut file = match options.open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Err(KeyError::Missing(path.to_owned()));
        }
        opened => opened.at("read", path)?,
    };
    let metadata = file.metadata().at("read the metadata of", path)?;
    if metadata.is_dir() {
        return Err(KeyError::IsDirectory(path.to_owned()));
    }
    if !metadata.is_file() {
        return Err(KeyError::NotAFile(path.to_owned()));
    }
    let text = read_limited(&mut file, path)?;
    Ok((text, metadata.mode() & 0o7777))
}

/// Reads into a buffer that never grows, because growing would leave unzeroed copies.
fn read_limited(file: &mut File, path: &Path) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(LIMIT + 1));
    file.take(LIMIT as u64 + 1)
        .read_to_end(&mut bytes)
        .at("read", path)?;
    if bytes.len() > LIMIT {
        return Err(KeyError::TooLarge(path.to_owned()));
    }
    Ok(bytes)
}
