//! What a built-in tool may do where nothing confines it.
//!
//! A command can do anything, so it is asked about. A file of the workspace is what an agent
//! is there to change; what is outside of it, or says what programs do (`.git`, `.ai`), is
//! asked about. The [policy](crate::bridge::Policy) says otherwise by the names
//! `builtin:bash`, `builtin:write` and `builtin:edit`; what is outside is never allowed
//! without asking.

use rye_protocol::{ErrorCode, ErrorInfo};
use rye_schema::Schema;
use serde_json::{Value, json};

use crate::arguments::{self, Instead};
use crate::bridge::{Mode, Risk};
use crate::text::without_middle;
use crate::tool::{DecisionRequest, ToolContext, ToolDef, ToolError};
use crate::{proof, schema};

/// The kind of sandbox that confines nothing.
const UNCONFINED: &str = "local";
/// Folders whose files say what programs do.
const BEHAVIOUR: [&str; 2] = [".git", ".ai"];
/// How much of what would be written a person is shown.
const SHOWN: usize = 4000;

/// Waits until a person agrees to a change of a file, where they must. What they want
/// instead, where they want something else.
pub(super) async fn to_change(
    tool: &ToolDef,
    path: &str,
    args: &Value,
    context: &ToolContext,
) -> Result<Option<Instead>, ToolError> {
    if context.sandbox.kind() != UNCONFINED {
        return Ok(None);
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
    let key = format!("{}:{:.32}", context.call, proof::args_hash(args));
    let title = format!("{}: {path}", tool.spec.name);
    let mut request = DecisionRequest::approval(key, title);
    let shown = serde_json::to_string_pretty(args).unwrap_or_default();
    let shown = without_middle(&shown, SHOWN, None);
    request.body = format!("{where_it_is}\n{shown}");
    decided(mode, tool, request, args, context).await
}

/// Waits until a person agrees to a command, where they must. What they want instead, where
/// they want something else.
pub(super) async fn to_run(
    tool: &ToolDef,
    request: DecisionRequest,
    args: &Value,
    context: &ToolContext,
) -> Result<Option<Instead>, ToolError> {
    if context.sandbox.kind() != UNCONFINED {
        return Ok(None);
    }
    let mode = mode(tool, Risk::High, context)?;
    decided(mode, tool, request, args, context).await
}

fn mode(tool: &ToolDef, risk: Risk, context: &ToolContext) -> Result<Mode, ToolError> {
    let gone = || ToolError::failed("the session is closed");
    let engine = context.engine.upgrade().ok_or_else(gone)?;
    Ok(engine.policy.decide_own(&tool.spec.name, Some(risk), false))
}

async fn decided(
    mode: Mode,
    tool: &ToolDef,
    mut request: DecisionRequest,
    args: &Value,
    context: &ToolContext,
) -> Result<Option<Instead>, ToolError> {
    match mode {
        Mode::Allow => return Ok(None),
        Mode::Deny => {
            let message = format!("the policy does not let `{}` do that", tool.spec.name);
            return Err(denied(message));
        }
        Mode::Ask => {}
    }
    let hash = json!(proof::args_hash(args));
    request.context.insert(proof::ARGS_HASH.to_owned(), hash);
    arguments::offer(&mut request.context, args);
    let mut unfit = String::new();
    for nth in 0..arguments::TRIES {
        let mut request = request.clone();
        if nth > 0 {
            request.resume_key = format!("{}:{nth}", request.resume_key);
            request.body.insert_str(0, &unfit);
        }
        let (resolution, about) = context.ask(request).await?;
        if resolution.action != "approve" {
            return Err(denied(format!("{} did not allow it", resolution.by)));
        }
        let Some(args) = arguments::approved(&about, &resolution) else {
            return Ok(None);
        };
        let instead = Instead {
            args: args.clone(),
            by: resolution.by.clone(),
        };
        match wrong(tool, args) {
            None => return Ok(Some(instead)),
            Some(wrong) => unfit = instead.unfit(&wrong),
        }
    }
    Err(denied("no arguments that fit were given".to_owned()))
}

/// What is wrong with arguments, as with those of a model.
fn wrong(tool: &ToolDef, args: &Value) -> Option<String> {
    let form = Schema::new(&tool.spec.parameters).ok()?;
    schema::wrong(&form, args)
}

fn denied(message: String) -> ToolError {
    ToolError(ErrorInfo::new(ErrorCode::Denied, message))
}
