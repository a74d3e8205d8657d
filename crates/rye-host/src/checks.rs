//! Loads the checks of changed files: `checks.yaml` of all spaces.

use rye_items::Spaces;
use rye_items::trust::IgnoredFile;
use rye_tools::{CheckSpec, Checks};
use serde::Deserialize;

use crate::config;
use crate::policy_file::PolicyError;

/// The file with checks, relative to a space's `.ai/`.
pub const CHECKS_FILE: &str = "config/agent/checks.yaml";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    checks: Vec<CheckSpec>,
}

/// Loads the checks of all spaces, and returns the files that were ignored.
pub fn load_checks(spaces: &Spaces) -> Result<(Vec<CheckSpec>, Vec<IgnoredFile>), PolicyError> {
    let (files, ignored) = config::load(spaces, CHECKS_FILE)?.into_accepted();
    let mut all = Vec::new();
    for (space, file) in files {
        let invalid = |reason: String| PolicyError::Config {
            path: file.path.clone(),
            space,
            reason,
        };
        let parsed: Result<File, _> = serde_saphyr::from_str(&file.text);
        let parsed = parsed.map_err(|error| invalid(error.to_string()))?;
        // The error names the file of the check.
        Checks::new(parsed.checks.clone()).map_err(invalid)?;
        all.extend(parsed.checks);
    }
    Ok((all, ignored))
}
