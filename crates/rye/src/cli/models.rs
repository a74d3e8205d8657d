//! The models that a call can ask.

use std::path::Path;

use lillux::shell_word;
use rye_host::{Catalogue, ModelsError, Overrides};
use rye_items::vault::Vault;

use super::context::Context;
use super::failure::{Exit, Failure};
use crate::settings::{self, SettingsError};

/// The models of all spaces. Those of the project that do not count are told of.
pub(crate) fn catalogue(context: &Context, workspace: &Path) -> Result<Catalogue, Failure> {
    let project = context.settings.project();
    let spaces = context.spaces()?;
    let vault = context.user().map(|user| Vault::new(user, Some(project)));
    let (models, ignored) = rye_host::models(workspace, &spaces, vault)?;
    context.tell_ignored(&ignored);
    Ok(models.limits(Overrides {
        context_window: tokens("RYE_CONTEXT_WINDOW")?,
        max_output: tokens("RYE_MAX_TOKENS")?,
    }))
}

/// A number of tokens that a variable says.
fn tokens(name: &'static str) -> Result<Option<u64>, SettingsError> {
    let Some(value) = settings::variable(name) else {
        return Ok(None);
    };
    let value = value.to_string_lossy().into_owned();
    match value.parse() {
        Ok(tokens) if tokens > 0 => Ok(Some(tokens)),
        _ => Err(SettingsError::Variable {
            name,
            value,
            expected: "a number of tokens, above 0",
        }),
    }
}

impl From<ModelsError> for Failure {
    fn from(error: ModelsError) -> Self {
        match error {
            ModelsError::Space(error) => error.into(),
            ModelsError::Config(error) => {
                let line = error.place.map(|(line, _)| format!("+{line} "));
                let hint = format!(
                    "${{EDITOR:-vi}} {}{}",
                    line.unwrap_or_default(),
                    shell_word(&error.path)
                );
                let place = error
                    .place
                    .map(|(line, column)| format!("{line}:{column}: "));
                let message = format!("{}{}", place.unwrap_or_default(), error.what);
                Self::new(Exit::Usage, "bad_config", message)
                    .at(&error.path)
                    .hint(hint)
            }
            other => Self::failed("models", other),
        }
    }
}
