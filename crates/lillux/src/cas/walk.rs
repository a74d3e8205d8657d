//! Lists the files of a store.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{Cas, Kind};
use crate::error::PathContext as _;
use crate::{Hash, PathError};

/// The sorted entries of a directory, separated from entries that do not belong there.
pub(super) struct Listing<T> {
    pub(super) entries: Vec<T>,
    pub(super) strays: Vec<PathBuf>,
}

impl Cas {
    /// The directories that contain the files of a kind.
    pub(super) fn shards(&self, kind: Kind) -> Result<Listing<PathBuf>, PathError> {
        let is_shard = |name: &str, path: &Path| {
            let hex = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
            (name.len() == 2 && name.bytes().all(hex)).then(|| path.to_owned())
        };
        let outer = list(&self.root.join(kind.dir_name()), is_shard)?;
        let mut all = Listing {
            entries: Vec::new(),
            strays: outer.strays,
        };
        for dir in &outer.entries {
            let inner = list(dir, is_shard)?;
            all.entries.extend(inner.entries);
            all.strays.extend(inner.strays);
        }
        Ok(all)
    }

    /// The files of a shard. A file in a directory that does not match its hash is a stray.
    pub(super) fn files(&self, kind: Kind, shard: &Path) -> Result<Listing<Hash>, PathError> {
        list(shard, |name, path| {
            let hash = name.strip_suffix(kind.extension())?.parse().ok()?;
            (self.path_of(kind, &hash) == path).then_some(hash)
        })
    }
}

/// Lists a directory. Entries for which `parse` returns `None` are strays. A missing directory
/// is empty.
pub(super) fn list<T>(
    dir: &Path,
    parse: impl Fn(&str, &Path) -> Option<T>,
) -> Result<Listing<T>, PathError> {
    let paths: io::Result<Vec<PathBuf>> = match fs::read_dir(dir) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(e),
    };
    let mut paths = paths.at("read the directory", dir)?;
    paths.sort();
    let mut listing = Listing {
        entries: Vec::new(),
        strays: Vec::new(),
    };
    for path in paths {
        let name = path.file_name().and_then(|name| name.to_str());
        match name.and_then(|name| parse(name, &path)) {
            Some(entry) => listing.entries.push(entry),
            None => listing.strays.push(path),
        }
    }
    Ok(listing)
}
