//! Going through all files of a store.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{Cas, Kind};
use crate::error::PathContext as _;
use crate::{Hash, PathError};

/// What a folder holds, in order, apart from what does not belong there.
pub(super) struct Listing<T> {
    pub(super) entries: Vec<T>,
    pub(super) strays: Vec<PathBuf>,
}

impl Cas {
    /// The folders that hold files of a kind.
    pub(super) fn shards(&self, kind: Kind) -> Result<Listing<PathBuf>, PathError> {
        let is_shard = |name: &str, path: &Path| {
            let hex = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
            (name.len() == 2 && name.bytes().all(hex)).then(|| path.to_owned())
        };
        let outer = list(&self.root.join(kind.folder()), is_shard)?;
        let mut all = Listing {
            entries: Vec::new(),
            strays: outer.strays,
        };
        for folder in &outer.entries {
            let inner = list(folder, is_shard)?;
            all.entries.extend(inner.entries);
            all.strays.extend(inner.strays);
        }
        Ok(all)
    }

    /// The files of a shard. One that is not where its hash says is a stray.
    pub(super) fn files(&self, kind: Kind, shard: &Path) -> Result<Listing<Hash>, PathError> {
        list(shard, |name, path| {
            let hash = name.strip_suffix(kind.extension())?.parse().ok()?;
            (self.path_of(kind, &hash) == path).then_some(hash)
        })
    }
}

/// What `keep` makes of the names in a folder. A folder that is not there is empty.
pub(super) fn list<T>(
    folder: &Path,
    keep: impl Fn(&str, &Path) -> Option<T>,
) -> Result<Listing<T>, PathError> {
    let paths: io::Result<Vec<PathBuf>> = match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(e),
    };
    let mut paths = paths.at("read the folder", folder)?;
    paths.sort();
    let mut listing = Listing {
        entries: Vec::new(),
        strays: Vec::new(),
    };
    for path in paths {
        let name = path.file_name().and_then(|name| name.to_str());
        match name.and_then(|name| keep(name, &path)) {
            Some(entry) => listing.entries.push(entry),
            None => listing.strays.push(path),
        }
    }
    Ok(listing)
}
