//! How a file is, for people: looked at, and left as it is.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rye_engine::store::StoreError;

use super::damage::{self, Soundness, check};
use super::error::Outcome;
use super::{file, reading};

/// How a file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Its format.
    pub version: u32,
    /// The format that this program writes.
    pub newest: u32,
    /// How long it is, in bytes.
    pub size: u64,
    /// Whether anything in it is damaged.
    pub soundness: Soundness,
    /// Why nothing can be written to it, if that is so.
    pub read_only: Option<String>,
}

/// Looks at a file for as long as one would wait; none where there is none. It is left as it
/// is, and so is the log beside it.
pub fn examine(path: &Path, patience: Duration) -> Result<Option<Condition>, StoreError> {
    damage::is_missing(path).map_err(|failure| failure.explain(path))?;
    let Ok(there) = fs::metadata(path) else {
        return Ok(None);
    };
    let look = || -> Outcome<Condition> {
        damage::look(path)?;
        let db = reading::connect(path)?;
        let version = file::version(&db)?;
        // One of another version of Rye is as good as any other.
        if [0, file::VERSION].contains(&version) {
            file::check(&db, path)?;
        }
        Ok(Condition {
            version,
            newest: file::VERSION,
            size: there.len(),
            soundness: check(&db, patience)?,
            read_only: reading::is_read_only(path),
        })
    };
    look().map(Some).map_err(|failure| failure.explain(path))
}
