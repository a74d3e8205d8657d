//! On-disk cache of parsed files, keyed by content hash.
//!
//! Parsing costs more than reading, and the same content always parses to the same value. The
//! key includes the version of the parsing code, so an entry can never be stale. Nothing that
//! depends on a signature is cached here.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use lillux::Hash;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::owner_only_dir::{is_owner_only_dir, write_cache_file};

/// Increase the number when the same content parses to another value.
const VERSION: &str = concat!("parsed ", env!("CARGO_PKG_VERSION"), " 5");

/// The cache directory, if there is one that only the user can write to.
#[derive(Debug)]
pub(crate) struct ParseCache {
    cache: Option<PathBuf>,
    /// Checked on first use, because a long-running process rarely needs the disk cache.
    is_owner_only: OnceLock<bool>,
}

impl ParseCache {
    pub(crate) fn new(cache: Option<&Path>) -> Self {
        Self {
            cache: cache.map(Path::to_owned),
            is_owner_only: OnceLock::new(),
        }
    }

    /// The cache directory, if only the user can write to it.
    pub(crate) fn dir(&self) -> Option<&Path> {
        let cache = self.cache.as_deref()?;
        let is_owner_only = self.is_owner_only.get_or_init(|| is_owner_only_dir(cache));
        is_owner_only.then_some(cache)
    }

    /// Returns the cached value for a content hash, or computes it and stores it as JSON. A
    /// damaged entry is computed again; failure to write is ignored.
    pub(crate) fn get<T: Serialize + DeserializeOwned, E>(
        &self,
        kind: &str,
        content: &Hash,
        compute: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let Some(path) = self.path(kind, content) else {
            return compute();
        };
        let cached = fs::read(&path).ok();
        if let Some(value) = cached.and_then(|bytes| serde_json::from_slice(&bytes).ok()) {
            return Ok(value);
        }
        let value = compute()?;
        if let Ok(bytes) = serde_json::to_vec(&value) {
            let _ = write_cache_file(&path, &bytes);
        }
        Ok(value)
    }

    fn path(&self, kind: &str, content: &Hash) -> Option<PathBuf> {
        let name = Hash::digest(format!("{VERSION}\0{kind}\0{content}")).to_hex();
        let dir = self.dir()?.join("parsed");
        Some(dir.join(&name[..2]).join(&name[2..]))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn value_is_computed_once_per_kind_and_content() {
        let dir = tempfile::tempdir().unwrap();
        let cache = ParseCache::new(Some(dir.path()));
        let computed = Cell::new(0);
        let get = |kind: &str, content: &str| {
            cache.get::<String, ()>(kind, &Hash::digest(content), || {
                computed.set(computed.get() + 1);
                Ok(format!("{kind} of {content}"))
            })
        };
        for _ in 0..3 {
            assert_eq!(get("a", "x").unwrap(), "a of x");
            assert_eq!(get("b", "x").unwrap(), "b of x");
            assert_eq!(get("a", "y").unwrap(), "a of y");
        }
        assert_eq!(computed.get(), 3);
        // A damaged entry is computed again.
        for shard in fs::read_dir(dir.path().join("parsed")).unwrap().flatten() {
            for entry in fs::read_dir(shard.path()).unwrap().flatten() {
                fs::write(entry.path(), b"\"torn").unwrap();
            }
        }
        assert_eq!(get("a", "x").unwrap(), "a of x");
        assert_eq!(computed.get(), 4);
    }

    #[test]
    fn errors_are_not_cached_and_the_directory_is_optional() {
        let dir = tempfile::tempdir().unwrap();
        let cache = ParseCache::new(Some(dir.path()));
        let content = Hash::digest("x");
        assert_eq!(cache.get::<u8, _>("a", &content, || Err("no")), Err("no"));
        assert_eq!(cache.get::<u8, &str>("a", &content, || Ok(1)), Ok(1));
        for missing in [None, Some(Path::new("/proc/none"))] {
            let cache = ParseCache::new(missing);
            assert_eq!(cache.get::<u8, ()>("a", &content, || Ok(2)), Ok(2));
        }
    }
}
