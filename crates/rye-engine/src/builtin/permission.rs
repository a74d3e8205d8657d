//! What a built-in tool may do where nothing confines it.
//!
//! A command can do anything, so it is asked about. A file of the workspace is what an agent
//! is there to change; what is outside of it, or says what programs do (`.git`, `.ai`), is
//! asked about. The [policy](crate::bridge::Policy) says otherwise by the names
//! `builtin:bash`, `builtin:write` and `builtin:edit`; what is outside is never allowed
//! without asking.

use serde_json::{Value, json};

use crate::bridge::{Mode, Risk};
use crate::proof;
use crate::text::without_middle;
use crate::tool::{DecisionRequest, ToolContext, ToolError, decided};

/// The kind of sandbox that confines nothing.
const UNCONFINED: &str = "local";
/// Folders whose files say what programs do.
const BEHAVIOUR: [&str; 2] = [".git", ".ai"];
/// How much of what would be written a person is shown.
const SHOWN: usize = 4000;

/// Waits until a person agrees to a change of a file, where they must.
pub(super) async fn to_change(
    tool: &str,
    path: &str,
    args: &Value,
    context: &ToolContext,
) -> Result<(), ToolError> {
    if context.sandbox.kind() != UNCONFINED {
        return Ok(());
    }
    let outside = context.sandbox.is_outside(path).await;
    let mut names = path.split('/');
    let behaves = names.any(|name| BEHAVIOUR.contains(&name));
    let risk = if outside || behaves {
        Risk::High
    } else {
        Risk::Medium
    };
    let where_it_is = match (outside, behaves) {
        (true, _) => "It is outside of the workspace.",
        (false, true) => "What is in there says what programs do.",
        (false, false) => "The policy asks about it.",
    };
    let mode = match mode(tool, risk, context)? {
        Mode::Allow if outside => Mode::Ask,
        mode => mode,
    };
    let args_hash = proof::args_hash(args);
    let key = format!("{}:{args_hash:.32}", context.call);
    let mut request = DecisionRequest::approval(key, format!("{tool}: {path}"));
    let shown = serde_json::to_string_pretty(args).unwrap_or_default();
    let shown = without_middle(&shown, SHOWN, None);
    request.body = format!("{where_it_is}\n{shown}");
    let hash = json!(args_hash);
    request.context.insert(proof::ARGS_HASH.to_owned(), hash);
    decided(mode, tool, request, context).await
}

/// Waits until a person agrees to a command, where they must.
pub(super) async fn to_run(
    request: DecisionRequest,
    context: &ToolContext,
) -> Result<(), ToolError> {
    if context.sandbox.kind() != UNCONFINED {
        return Ok(());
    }
    let mode = mode("bash", Risk::High, context)?;
    decided(mode, "bash", request, context).await
}

fn mode(tool: &str, risk: Risk, context: &ToolContext) -> Result<Mode, ToolError> {
    let gone = || ToolError::failed("the session is closed");
    let engine = context.engine.upgrade().ok_or_else(gone)?;
    Ok(engine.policy.decide_own(tool, Some(risk), false))
}
