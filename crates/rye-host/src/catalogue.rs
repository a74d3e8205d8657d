//! The model catalogue of a call, and the scripted demo model.

use std::path::Path;

use rye_engine::CallLimits;
use rye_engine::model::Models as _;
use serde_json::json;

use crate::context::Context;
use crate::engine::start_failure;
use crate::failure::Failure;
use crate::models::load_models;
use crate::settings::{self, SettingsError};
use crate::{Catalogue, ModelSummary, Overrides, Script, ScriptCall, ScriptedAnswer, Step};

/// Name of the built-in scripted model.
pub const DEMO_MODEL: &str = "scripted:demo";

/// The models of all spaces. Warns about ignored files.
pub fn catalogue(context: &Context, workspace: &Path) -> Result<Catalogue, Failure> {
    let (models, ignored) = load_models(workspace, context.spaces(), context.vault())?;
    context.warn_ignored(&ignored);
    let default = models.default_name();
    let models = models
        .with(DEMO_MODEL, demo_script())
        .default_model(default);
    Ok(models.limits(Overrides {
        context_window: tokens("RYE_CONTEXT_WINDOW")?,
        max_output: tokens("RYE_MAX_TOKENS")?,
    }))
}

/// The configured models, of which those without a key are ready only if their server answers.
pub fn list_reachable(models: &Catalogue) -> Result<Vec<ModelSummary>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(start_failure)?;
    Ok(runtime.block_on(models.list_reachable()))
}

/// A script that shows what a chat can do, for users without an API key.
fn demo_script() -> Script {
    let hello = "Hello! I am **not** a model. I follow a script, so that you can look around.\n\n\
        - Type while I talk: your message is queued, and `/queue` shows it.\n\
        - Ctrl-S sends a message at once, Esc interrupts me.\n\
        - Ctrl-O shows the full output of tools.\n\n\
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
    let result = Step::text(
        "The tool returned: `${last_tool_result}`\n\nAll of this is stored: leave with Ctrl-D and \
         continue with `rye chat --session ID`. `rye models list` shows which keys real models need.",
    );
    Script {
        after_last: Step::text("This is the end of my script. Choose a real model with `/model`."),
        ..Script::new([call, result])
    }
}

/// A number of tokens from an environment variable.
fn tokens(name: &'static str) -> Result<Option<u64>, SettingsError> {
    number(name, "a number of tokens above 0")
}

/// Limits of tool calls per model answer.
pub(crate) fn call_limits() -> Result<CallLimits, SettingsError> {
    let max = number("RYE_MAX_TOOL_CALLS", "a number of tool calls above 0")?;
    let mut limits = CallLimits::default();
    if let Some(max) = max {
        limits.per_answer = usize::try_from(max).unwrap_or(usize::MAX);
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
