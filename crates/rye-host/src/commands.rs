//! Loads the commands that an agent can call: `commands.yaml` of all spaces.

use std::collections::BTreeMap;

use rye_items::Spaces;
use rye_items::trust::IgnoredFile;
use rye_tools::meta_tools::{CommandEntry, CommandSpec, CommandTools};
use serde::Deserialize;

use crate::config;
use crate::policy_file::PolicyError;

/// The file with commands, relative to a space's `.ai/`.
pub const COMMANDS_FILE: &str = "config/agent/commands.yaml";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    commands: BTreeMap<String, CommandSpec>,
}

/// Loads the commands of all spaces, and returns the files that were ignored. Commands of the
/// project precede those of the user and the system.
pub fn load_commands(spaces: &Spaces) -> Result<(CommandTools, Vec<IgnoredFile>), PolicyError> {
    let (files, ignored) = config::load(spaces, COMMANDS_FILE)?.into_accepted();
    let mut all = BTreeMap::new();
    // Most specific first, so the first one wins.
    for (space, file) in files {
        let parsed: Result<File, _> = serde_saphyr::from_str(&file.text);
        let parsed = parsed.map_err(|error| PolicyError::Config {
            path: file.path.clone(),
            space,
            reason: error.to_string(),
        })?;
        for (name, spec) in parsed.commands {
            all.entry(name).or_insert_with(|| CommandEntry {
                spec,
                space: Some(space.as_str().to_owned()),
                signed_by: Some(file.path.display().to_string()),
            });
        }
    }
    Ok((CommandTools::new(all), ignored))
}
