//! Programs that an agent may call: `commands.yaml` of the spaces.

use std::collections::BTreeMap;

use rye_engine::meta_tools::{CommandEntry, CommandSpec, CommandTools};
use rye_items::Spaces;
use rye_items::trust::IgnoredFile;
use serde::Deserialize;

use crate::approvals::ApprovalsError;
use crate::config;

/// The file that names them, relative to a space's `.ai/`.
pub const COMMANDS: &str = "config/agent/commands.yaml";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    commands: BTreeMap<String, CommandSpec>,
}

/// The programs of all spaces, project over user over system, and the files that do not
/// count, since nobody who is trusted has signed them.
pub fn commands(spaces: &Spaces) -> Result<(CommandTools, Vec<IgnoredFile>), ApprovalsError> {
    let (files, ignored) = config::files(spaces, COMMANDS)?.accepted();
    let mut all = BTreeMap::new();
    // The most specific first.
    for (space, file) in files {
        let read: Result<File, _> = serde_saphyr::from_str(&file.text);
        let read = read.map_err(|error| ApprovalsError::Config {
            path: file.path.clone(),
            space,
            why: error.to_string(),
        })?;
        for (name, tool) in read.commands {
            all.entry(name).or_insert_with(|| CommandEntry {
                spec: tool,
                space: Some(space.as_str().to_owned()),
                signed_by: Some(file.path.display().to_string()),
            });
        }
    }
    Ok((CommandTools::new(all), ignored))
}
