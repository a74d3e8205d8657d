//! Key files: who may read them, how they are read and written.
//!
//! A pair is two files in a folder of their own. The private one is mode 0600
//! from its first moment; the folder, if made here, 0700. A folder that exists
//! keeps its mode, but is refused when group or others could replace its files.

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

/// Far above any key; what is larger was named by mistake.
const LIMIT: usize = 64 * 1024;

/// Where the two halves of a pair are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPairFiles {
    /// `private_key.pem`, for its owner alone.
    pub private: PathBuf,
    /// `public_key.pem`, for everyone.
    pub public: PathBuf,
}

impl KeyPairFiles {
    /// The names of a pair's files inside its folder.
    pub fn in_dir(folder: &Path) -> Self {
        Self {
            private: folder.join("private_key.pem"),
            public: folder.join("public_key.pem"),
        }
    }
}

/// Writes a pair into its folder.
///
/// Two files cannot be renamed in one step. To replace a pair, the old public half is
/// removed first and the new one written last: whenever this is interrupted, the folder
/// holds a pair that matches, or a private key alone, from which
/// [`restore_public`] derives the other half. Writers of the same folder wait for each
/// other.
pub(crate) fn write_pair(
    folder: &Path,
    private: &str,
    public: &str,
    existing: IfExists,
) -> Result<KeyPairFiles, KeyError> {
    create_dir(folder, 0o700)?;
    let _lock = lock(folder)?;
    let files = KeyPairFiles::in_dir(folder);
    if existing == IfExists::Fail {
        // Before the first rename, so that a refusal changes nothing.
        for path in [&files.private, &files.public] {
            if path.symlink_metadata().is_ok() {
                return Err(KeyError::Exists(path.clone()));
            }
        }
    }
    let staged_public = StagedFile::new(&files.public, public.as_bytes(), 0o644)?;
    let staged_private = StagedFile::new(&files.private, private.as_bytes(), 0o600)?;
    // The disk may otherwise do one of these before the one above it.
    if existing == IfExists::Replace {
        for path in [&files.private, &files.public] {
            check_replaceable(path)?;
        }
        match fs::remove_file(&files.public) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed.at("remove", &files.public)?,
        }
        sync_dir(folder)?;
    }
    staged_private.publish(existing)?;
    sync_dir(folder)?;
    staged_public.publish(existing)?;
    sync_dir(folder)?;
    Ok(files)
}

/// Writes the public half of a private key that stands alone, as an interrupted
/// [`write_pair`] leaves it. `derive` reads the private key's file and returns the public
/// half's text.
pub(crate) fn restore_public(
    files: &KeyPairFiles,
    derive: impl FnOnce() -> Result<String, KeyError>,
) -> Result<(), KeyError> {
    let folder = files.private.parent().unwrap_or(Path::new("."));
    // A writer may be between its two files: the private key is read once it has finished.
    let _lock = lock(folder)?;
    if files.public.symlink_metadata().is_ok() {
        return Ok(());
    }
    let public = derive()?;
    StagedFile::new(&files.public, public.as_bytes(), 0o644)?.publish(IfExists::Fail)?;
    Ok(sync_dir(folder)?)
}

/// Waits for the other writers of a folder that nobody else may write to.
fn lock(folder: &Path) -> Result<File, KeyError> {
    let lock = File::open(folder).at("open the folder", folder)?;
    let mode = lock.metadata().at("look at", folder)?.mode() & 0o7777;
    if mode & 0o022 != 0 {
        let path = folder.to_owned();
        return Err(KeyError::InsecureDirectory { path, mode });
    }
    flock(&lock, FlockOperation::LockExclusive).at("lock the folder", folder)?;
    Ok(lock)
}

/// Reads a private key's file, which nobody but its owner may have access to.
pub(crate) fn read_private(path: &Path) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let (text, mode) = read(path)?;
    // A public key named by mistake is rightly open, and refused for what it is.
    if mode & 0o077 != 0 && !pem::is_public(&text) {
        let path = path.to_owned();
        return Err(KeyError::InsecureFile { path, mode });
    }
    Ok(text)
}

/// Reads a public key's file.
pub(crate) fn read_public(path: &Path) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    read(path).map(|(text, _)| text)
}

/// The text and the permission bits of a file. Both are of one open file:
/// renaming another into its place in between changes nothing.
fn read(path: &Path) -> Result<(Zeroizing<Vec<u8>>, u32), KeyError> {
    let mut options = OpenOptions::new();
    // Not to wait for a writer where the path is a pipe.
    options.read(true).custom_flags(libc::O_NONBLOCK);
    let mut file = match options.open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Err(KeyError::Missing(path.to_owned()));
        }
        opened => opened.at("read", path)?,
    };
    let about = file.metadata().at("look at", path)?;
    if about.is_dir() {
        return Err(KeyError::IsDirectory(path.to_owned()));
    }
    if !about.is_file() {
        return Err(KeyError::NotAFile(path.to_owned()));
    }
    let text = read_limited(&mut file, path)?;
    Ok((text, about.mode() & 0o7777))
}

/// Into one buffer that never grows, since growing leaves unzeroed copies behind.
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
