//! What a built-in tool may do where nothing confines it.
//!
//! A command can do anything, so a person must approve it. A plain file of the workspace is
//! what an agent is there to change; a [sensitive](lillux::path_policy::SensitiveReason) path must be
//! approved. Rules of the [policy](crate::meta_tools::Policy) for `builtin:bash`, `builtin:write`
//! and `builtin:edit` say otherwise, where the reason lets a rule do so. A private path is
//! refused.

use lillux::path_policy::PathClass;
use lillux::sanitize_line;
use serde_json::{Value, json};

use crate::arguments::EditedArguments;
use crate::audit;
use crate::meta_tools::{Mode, Risk};
use crate::sandbox::{ResolvedPath, Sandbox, SandboxError};
use crate::text::quoted;
use crate::tool::{
    DecisionRequest, RESOLVED_PATH, ToolContext, ToolDef, ToolError, resolve_approval,
};

/// The kind of sandbox that confines nothing.
const UNCONFINED: &str = "local";
/// Where a gate's context says why a path is sensitive.
const REASON: &str = "reason";
/// How much of what would be written a person is shown.
const SHOWN: usize = 4000;

/// Whether somebody may be asked.
pub(super) fn asks(sandbox: &dyn Sandbox) -> bool {
    sandbox.kind() == UNCONFINED
}

/// Says that a call which may have been asked about does from here on what its tool does.
pub(super) async fn begins(tool: &ToolDef, context: &ToolContext) -> Result<(), ToolError> {
    if asks(&*context.sandbox) {
        context.set_effect(tool.effect).await?;
    }
    Ok(())
}

/// A change of a file that may be made.
#[derive(Default)]
pub(super) struct Permitted {
    /// What a person wants instead, where they want something else.
    pub(super) instead: Option<EditedArguments>,
    /// Where the path leads, if it is the one that was looked at.
    target: Option<ResolvedPath>,
}

impl Permitted {
    /// Writes the file that was permitted.
    pub(super) async fn write(
        &self,
        path: &str,
        bytes: &[u8],
        context: &ToolContext,
    ) -> Result<(), ToolError> {
        let written = match &self.target {
            Some(target) => context.sandbox.write_resolved(path, target, bytes),
            None => context.sandbox.write(path, bytes),
        };
        written.await.map_err(super::failed)
    }
}

/// Waits until a person agrees to a change of a file, where they must.
pub(super) async fn to_change(
    tool: &ToolDef,
    path: &str,
    args: &Value,
    context: &ToolContext,
) -> Result<Permitted, ToolError> {
    if !asks(&*context.sandbox) {
        return Ok(Permitted::default());
    }
    let place = context.sandbox.resolve_path(path).await;
    let reason = match place.class {
        PathClass::Private => return Err(super::failed(SandboxError::Private(path.to_owned()))),
        PathClass::Sensitive(reason) => Some(reason),
        PathClass::Plain => None,
    };
    // A link may lead to what its name does not tell of.
    let link = (place.path != path).then(|| named(&place.path));
    let (risk, why) = match reason {
        Some(reason) => (Risk::High, reason.reason()),
        None => (Risk::Medium, "the policy asks about it"),
    };
    let must_ask = reason.is_some_and(|reason| !reason.may_be_allowed_by_rule());
    let mode = match mode(tool, risk, context)? {
        Mode::Allow if must_ask => Mode::Ask,
        mode => mode,
    };
    // What was agreed to is this file, and not what a link leads to later.
    let asked = match link {
        Some(real) => audit::args_hash(&json!([args, real])),
        None => audit::args_hash(args),
    };
    let key = format!("{}:{asked:.32}", context.call);
    let title = format!("{}: {path}", tool.spec.name);
    let mut request = DecisionRequest::approval(key, title);
    let shown = serde_json::to_string_pretty(args).unwrap_or_default();
    let shown = quoted(&shown, SHOWN);
    let leads = match link {
        Some(real) => format!("It leads to {}.\n", sanitize_line(real)),
        None => String::new(),
    };
    request.body = format!("{leads}reason: {why}\nrisk: {}\n{shown}", risk.as_str());
    let reason = reason.map(|reason| (REASON.to_owned(), json!(reason)));
    request.context.extend(reason);
    leading_to(&mut request, link);
    let instead = resolve_approval(mode, tool, request, args, context).await?;
    // Somebody may have thought about it for long.
    if instead.is_none() && context.sandbox.resolve_path(path).await != place {
        return Err(super::failed(SandboxError::PathChanged(path.to_owned())));
    }
    // Whoever wrote other arguments has chosen their path.
    let target = instead.is_none().then_some(place);
    Ok(Permitted { instead, target })
}

/// Where a folder really is that a command is to run in, if a link leads there and nothing
/// confines the command.
pub(super) async fn link(folder: Option<&str>, context: &ToolContext) -> Option<String> {
    let path = folder.filter(|_| asks(&*context.sandbox))?;
    let real = context.sandbox.resolve_path(path).await.path;
    (real != path).then(|| named(&real).to_owned())
}

/// The workspace has no name of its own in it.
fn named(real: &str) -> &str {
    if real.is_empty() { "." } else { real }
}

/// Says to where a link leads that is asked about.
pub(super) fn leading_to(request: &mut DecisionRequest, link: Option<&str>) {
    let real = link.map(|real| (RESOLVED_PATH.to_owned(), json!(real)));
    request.context.extend(real);
}

/// Waits until a person agrees to a command, where they must. What they want instead, where
/// they want something else.
pub(super) async fn to_run(
    tool: &ToolDef,
    mut request: DecisionRequest,
    args: &Value,
    context: &ToolContext,
) -> Result<Option<EditedArguments>, ToolError> {
    if !asks(&*context.sandbox) {
        return Ok(None);
    }
    let risk = Risk::High;
    let mode = mode(tool, risk, context)?;
    let told = format!("Nothing confines it.\nrisk: {}\n", risk.as_str());
    request.body.insert_str(0, &told);
    resolve_approval(mode, tool, request, args, context).await
}

fn mode(tool: &ToolDef, risk: Risk, context: &ToolContext) -> Result<Mode, ToolError> {
    let gone = || ToolError::failed("the session is closed");
    let engine = context.engine.upgrade().ok_or_else(gone)?;
    Ok(engine.policy.decide_own(&tool.spec.name, Some(risk), false))
}
