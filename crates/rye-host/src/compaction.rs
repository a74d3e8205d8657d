//! When and how histories are summed up: `compaction.yaml` of the spaces.

use rye_engine::compaction::Settings;
use rye_items::trust::IgnoredFile;
use rye_items::{SpaceError, Spaces};
use serde_saphyr::Error as YamlError;

use crate::config;

/// The file that says so, relative to a space's `.ai/`.
pub const COMPACTION: &str = "config/agent/compaction.yaml";

/// Why nobody knows how histories are summed up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompactionError {
    /// A file says what cannot be.
    #[error("{path}: {why}")]
    Config {
        /// Which.
        path: String,
        /// What is wrong with it, and where.
        why: String,
    },
    /// A file cannot be read.
    #[error(transparent)]
    Space(#[from] SpaceError),
}

/// What the most specific file says, or the defaults; and the files that do not count.
pub fn compaction(spaces: &Spaces) -> Result<(Settings, Vec<IgnoredFile>), CompactionError> {
    let (files, ignored) = config::files(spaces, COMPACTION)?.accepted();
    let Some((_, file)) = files.into_iter().next() else {
        return Ok((Settings::default(), ignored));
    };
    let wrong = |why: String| CompactionError::Config {
        path: file.path.display().to_string(),
        why,
    };
    let read: Result<Option<Settings>, YamlError> = serde_saphyr::from_str(&file.text);
    let read = read.map_err(|error| wrong(error.without_snippet().to_string()))?;
    let settings = read.unwrap_or_default();
    match settings.wrong() {
        Some(why) => Err(wrong(why)),
        None => Ok((settings, ignored)),
    }
}
