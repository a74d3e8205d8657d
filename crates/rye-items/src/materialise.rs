//! Verified bytes as something a process can open.
//!
//! A path to the item's own file would let it be swapped between check and use,
//! and an embedded item has none. So a process gets a private copy of what was
//! verified: a file that only its owner can replace, or an anonymous one that
//! nobody can.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use lillux::{Hash, PathContext as _, PathError};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use crate::item::{Item, Verified};
use crate::owner_only_dir::ensure_owner_only_dir;

/// A copy of bytes below a folder, under a name and with a mode, that only its
/// owner can replace. One that is there already is used again if it holds
/// exactly these bytes.
pub fn write_private_copy(
    bytes: &[u8],
    name: &OsStr,
    mode: u32,
    folder: &Path,
) -> Result<PathBuf, PathError> {
    let folder = folder
        .join("materialised")
        .join(Hash::digest(bytes).to_hex());
    let path = folder.join(name);
    ensure_owner_only_dir(&folder)?;
    if fs::read(&path).is_ok_and(|there| there == bytes) {
        return Ok(path);
    }
    let mut copy = tempfile::Builder::new()
        .prefix(".copy-")
        .tempfile_in(&folder)
        .at("write to", &folder)?;
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
    /// A read-only copy below a folder, under the item's own file name. The copy
    /// of earlier calls is used again if it still holds exactly these bytes.
    pub fn materialise(&self, folder: &Path) -> Result<PathBuf, PathError> {
        let name = self.path.file_name().unwrap_or_else(|| "item".as_ref());
        write_private_copy(self.bytes(), name, 0o400, folder)
    }

    /// An anonymous file with the bytes, sealed: it can be read, and neither
    /// changed nor unsealed, by whoever gets it.
    pub fn sealed(&self) -> Result<File, PathError> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let name = self.reference.to_string();
        let short = &name[..name.len().min(200)];
        let fd = memfd_create(short, flags).at("make a copy in memory of", &self.path)?;
        let mut file = File::from(fd);
        file.write_all(self.bytes()).at("copy", &self.path)?;
        let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        fcntl_add_seals(&file, seals).at("seal the copy of", &self.path)?;
        std::io::Seek::rewind(&mut file).at("rewind the copy of", &self.path)?;
        Ok(file)
    }
}
