//! Writes verified bytes to files that a process can open.
//!
//! With the path of the item's own file, the file could be swapped between check and use, and an
//! embedded item has no path. So a process gets a private copy of the verified bytes: a file that
//! only its owner can replace, or a sealed memfd that cannot be modified at all.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use lillux::{Hash, PathContext as _, PathError};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use crate::item::{Item, Verified};
use crate::owner_only_dir::ensure_owner_only_dir;

/// Writes bytes to `{cache}/materialised/{hash}/{name}`, which only the owner can replace. An
/// existing file with exactly these bytes is reused.
pub fn write_private_copy(
    bytes: &[u8],
    name: &OsStr,
    mode: u32,
    cache: &Path,
) -> Result<PathBuf, PathError> {
    let dir = cache
        .join("materialised")
        .join(Hash::digest(bytes).to_hex());
    let path = dir.join(name);
    ensure_owner_only_dir(&dir)?;
    if fs::read(&path).is_ok_and(|existing| existing == bytes) {
        return Ok(path);
    }
    let mut copy = tempfile::Builder::new()
        .prefix(".copy-")
        .tempfile_in(&dir)
        .at("write to", &dir)?;
    copy.write_all(bytes).at("write", &path)?;
    copy.as_file()
        .set_permissions(Permissions::from_mode(mode))
        .at("set the mode of", &path)?;
    copy.persist(&path)
        .map_err(|e| e.error)
        .at("write", &path)?;
    Ok(path)
}

impl Verified<Item> {
    /// Writes a read-only copy with the item's file name to the cache. See
    /// [`write_private_copy`].
    pub fn materialise(&self, cache: &Path) -> Result<PathBuf, PathError> {
        let name = self.path.file_name().unwrap_or_else(|| "item".as_ref());
        write_private_copy(self.bytes(), name, 0o400, cache)
    }

    /// Copies the bytes to a memfd with all write seals, which no process can modify or unseal.
    pub fn to_memfd(&self) -> Result<File, PathError> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let name = self.reference.to_string();
        let short = &name[..name.len().min(200)];
        let fd = memfd_create(short, flags).at("create a memfd for", &self.path)?;
        let mut file = File::from(fd);
        file.write_all(self.bytes()).at("copy", &self.path)?;
        let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        fcntl_add_seals(&file, seals).at("seal the copy of", &self.path)?;
        std::io::Seek::rewind(&mut file).at("rewind the copy of", &self.path)?;
        Ok(file)
    }
}
