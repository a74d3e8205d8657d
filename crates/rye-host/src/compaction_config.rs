//! Loads the compaction settings: `compaction.yaml` of the most specific space.

use rye_engine::compaction::Settings;
use rye_items::trust::IgnoredFile;
use rye_items::{SpaceError, Spaces};
use serde_saphyr::Error as YamlError;

use crate::config;

/// The file with the settings, relative to a space's `.ai/`.
pub const COMPACTION_FILE: &str = "config/agent/compaction.yaml";

/// Why the compaction settings cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompactionError {
    /// A file is invalid.
    #[error("{path}: {reason}")]
    Config {
        /// The file.
        path: String,
        /// The error, with its position.
        reason: String,
    },
    /// A space cannot be read.
    #[error(transparent)]
    Space(#[from] SpaceError),
}

/// Loads the settings of the most specific file, or the defaults, and returns the files that were
/// ignored.
pub fn load_compaction(spaces: &Spaces) -> Result<(Settings, Vec<IgnoredFile>), CompactionError> {
    let (files, ignored) = config::load(spaces, COMPACTION_FILE)?.into_accepted();
    let Some((_, file)) = files.into_iter().next() else {
        return Ok((Settings::default(), ignored));
    };
    let invalid = |reason: String| CompactionError::Config {
        path: file.path.display().to_string(),
        reason,
    };
    let parsed: Result<Option<Settings>, YamlError> = serde_saphyr::from_str(&file.text);
    let parsed = parsed.map_err(|error| invalid(error.without_snippet().to_string()))?;
    let settings = parsed.unwrap_or_default();
    match settings.validation_error() {
        Some(reason) => Err(invalid(reason)),
        None => Ok((settings, ignored)),
    }
}
