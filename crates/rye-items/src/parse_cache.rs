//! What was derived from a file, kept by the hash of the file's content.
//!
//! Parsing costs more than reading. The same content parses to the same, so
//! what it gave is kept in the cache folder under the hash of the content and
//! of the code's version, and can never be out of date. Nothing that a
//! signature decides is kept here.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use lillux::Hash;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::owner_only_dir::{create_owner_only_dir, is_owner_only_dir};

/// Goes up when the same content gives something else.
const VERSION: &str = concat!("derived ", env!("CARGO_PKG_VERSION"), " 2");
/// How many entries a folder may have before old ones go.
const CROWDED: usize = 256;
/// How long an entry stays in a crowded folder.
const OLD: Duration = Duration::from_hours(24 * 30);

/// A folder of derived values, if there is one and nobody else can write to it.
#[derive(Debug)]
pub(crate) struct ParseCache {
    cache: Option<PathBuf>,
    /// Looked at when it is needed: a process that has run for a while needs nothing of it.
    is_own: OnceLock<bool>,
}

impl ParseCache {
    pub(crate) fn new(cache: Option<&Path>) -> Self {
        Self {
            cache: cache.map(Path::to_owned),
            is_own: OnceLock::new(),
        }
    }

    /// The folder around it, which may hold more that is believed.
    pub(crate) fn cache(&self) -> Option<&Path> {
        let cache = self.cache.as_deref()?;
        let is_own = self.is_own.get_or_init(|| is_owner_only_dir(cache));
        is_own.then_some(cache)
    }

    /// What content of this hash gave before, or gives now. Neither a damaged
    /// entry nor a folder that cannot be written is a failure.
    pub(crate) fn get<T: Serialize + DeserializeOwned, E>(
        &self,
        what: &str,
        content: &Hash,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let read = |bytes: &[u8]| serde_json::from_slice(bytes).ok();
        let write = |made: &T| serde_json::to_vec(made).ok();
        self.get_as(what, content, read, write, make)
    }

    /// The same of what has a form of its own.
    pub(crate) fn get_as<T, E>(
        &self,
        what: &str,
        content: &Hash,
        read: impl FnOnce(&[u8]) -> Option<T>,
        write: impl FnOnce(&T) -> Option<Vec<u8>>,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let Some(path) = self.path(what, content) else {
            return make();
        };
        let kept = fs::read(&path).ok();
        if let Some(kept) = kept.and_then(|bytes| read(&bytes)) {
            return Ok(kept);
        }
        let made = make()?;
        if let Some(bytes) = write(&made) {
            let _ = keep(&path, &bytes);
        }
        Ok(made)
    }

    fn path(&self, what: &str, content: &Hash) -> Option<PathBuf> {
        let name = Hash::digest(format!("{VERSION}\0{what}\0{content}")).to_hex();
        let folder = self.cache()?.join("derived");
        Some(folder.join(&name[..2]).join(&name[2..]))
    }
}

fn keep(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(path);
    create_owner_only_dir(folder)?;
    let mut temporary = tempfile::Builder::new()
        .prefix(".new-")
        .tempfile_in(folder)?;
    temporary.write_all(bytes)?;
    temporary.persist(path)?;
    let entries: Vec<_> = fs::read_dir(folder)?.flatten().collect();
    if entries.len() > CROWDED {
        let now = SystemTime::now();
        for entry in entries {
            let written = entry.metadata().and_then(|about| about.modified());
            let age = written
                .ok()
                .and_then(|written| now.duration_since(written).ok());
            if age.is_some_and(|age| age > OLD) {
                fs::remove_file(entry.path())?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn what_was_made_once_is_not_made_again_until_the_content_differs() {
        let folder = tempfile::tempdir().unwrap();
        let derived = ParseCache::new(Some(folder.path()));
        let made = Cell::new(0);
        let get = |what: &str, content: &str| {
            derived.get::<String, ()>(what, &Hash::digest(content), || {
                made.set(made.get() + 1);
                Ok(format!("{what} of {content}"))
            })
        };
        for _ in 0..3 {
            assert_eq!(get("a", "x").unwrap(), "a of x");
            assert_eq!(get("b", "x").unwrap(), "b of x");
            assert_eq!(get("a", "y").unwrap(), "a of y");
        }
        assert_eq!(made.get(), 3);
        // A damaged entry is made anew.
        for shard in fs::read_dir(folder.path().join("derived"))
            .unwrap()
            .flatten()
        {
            for entry in fs::read_dir(shard.path()).unwrap().flatten() {
                fs::write(entry.path(), b"\"torn").unwrap();
            }
        }
        assert_eq!(get("a", "x").unwrap(), "a of x");
        assert_eq!(made.get(), 4);
    }

    #[test]
    fn a_failure_is_not_kept_and_without_a_folder_all_works() {
        let folder = tempfile::tempdir().unwrap();
        let derived = ParseCache::new(Some(folder.path()));
        let content = Hash::digest("x");
        assert_eq!(derived.get::<u8, _>("a", &content, || Err("no")), Err("no"));
        assert_eq!(derived.get::<u8, &str>("a", &content, || Ok(1)), Ok(1));
        for nowhere in [None, Some(Path::new("/proc/none"))] {
            let derived = ParseCache::new(nowhere);
            assert_eq!(derived.get::<u8, ()>("a", &content, || Ok(2)), Ok(2));
        }
    }
}
