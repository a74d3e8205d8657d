//! The models that a call can ask.

use std::path::Path;

use lillux::shell_word;
use rye_engine::CallLimits;
use rye_engine::model::Models as _;
use rye_host::{Catalogue, ModelsError, Overrides, Script, ScriptCall, ScriptedAnswer, Step};
use rye_items::vault::Vault;

use serde_json::json;

use super::context::Context;
use super::failure::{Exit, Failure};
use crate::settings::{self, SettingsError};

/// The name of the model that follows a script of ours.
pub(crate) const DEMO: &str = "scripted:demo";

/// The models of all spaces. Those of the project that do not count are told of.
pub(crate) fn catalogue(context: &Context, workspace: &Path) -> Result<Catalogue, Failure> {
    let project = context.settings.project();
    let spaces = context.spaces()?;
    let vault = context.user().map(|user| Vault::new(user, Some(project)));
    let (models, ignored) = rye_host::models(workspace, &spaces, vault)?;
    context.tell_ignored(&ignored);
    let default = models.default_name();
    let models = models.with(DEMO, demo()).default_model(default);
    Ok(models.limits(Overrides {
        context_window: tokens("RYE_CONTEXT_WINDOW")?,
        max_output: tokens("RYE_MAX_TOKENS")?,
    }))
}

/// A model for people who have no key: it shows what a chat can do.
fn demo() -> rye_host::Script {
    let hello = "Hello! I am **not** a model: I follow a script, so that you can look around.\n\n\
        - Type while I talk: it waits for its turn, and `/queue` shows it.\n\
        - Ctrl-S says it at once, Esc ends what I do.\n\
        - Ctrl-O unfolds what tools give.\n\n\
        Now I call a tool:";
    let call = Step::Answer(ScriptedAnswer {
        text: hello.to_owned(),
        calls: vec![ScriptCall {
            name: "write".to_owned(),
            args: json!({ "path": "hello.txt", "content": "hello\nfrom a script\n" }),
            id: None,
        }],
        chunk_chars: Some(8),
        chunk_ms: 15,
        ..ScriptedAnswer::default()
    });
    let said = Step::text(
        "It said: `${last_tool_result}`\n\nAll of this is written down: leave with Ctrl-D, and\n\
         `rye chat --session ID` goes on. `rye models list` says which keys real models need.",
    );
    Script {
        after_last: Step::text("That is all my script has. `/model` chooses somebody who listens."),
        ..Script::new([call, said])
    }
}

/// A number of tokens that a variable says.
fn tokens(name: &'static str) -> Result<Option<u64>, SettingsError> {
    number(name, "a number of tokens, above 0")
}

/// How many tool calls of one answer are run.
pub(super) fn call_limits() -> Result<CallLimits, SettingsError> {
    let most = number("RYE_MAX_TOOL_CALLS", "a number of tool calls, above 0")?;
    let mut limits = CallLimits::default();
    if let Some(most) = most {
        limits.per_answer = usize::try_from(most).unwrap_or(usize::MAX);
    }
    Ok(limits)
}

fn number(name: &'static str, expected: &'static str) -> Result<Option<u64>, SettingsError> {
    let Some(value) = settings::variable(name) else {
        return Ok(None);
    };
    let value = value.to_string_lossy().into_owned();
    match value.parse() {
        Ok(number) if number > 0 => Ok(Some(number)),
        _ => Err(SettingsError::Variable {
            name,
            value,
            expected,
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
