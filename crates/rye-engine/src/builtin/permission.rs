//! What a built-in tool may do where nothing confines it.
//!
//! A command can do anything, so it is asked about. A file of the workspace is what an agent
//! is there to change; what is outside of it, or says what programs do (`.git`, `.ai`), is
//! asked about. The [policy](crate::bridge::Policy) says otherwise by the names
//! `builtin:bash`, `builtin:write` and `builtin:edit`; what is outside is never allowed
//! without asking.

use lillux::visible_line;
use serde_json::{Value, json};

use crate::arguments::Instead;
use crate::bridge::{Mode, Risk};
use crate::proof;
use crate::sandbox::{LeadsTo, Sandbox};
use crate::text::quoted;
use crate::tool::{DecisionRequest, LEADS_TO, ToolContext, ToolDef, ToolError, decided};

/// The kind of sandbox that confines nothing.
const UNCONFINED: &str = "local";
/// Folders whose files say what programs do.
const BEHAVIOUR: [&str; 2] = [".git", ".ai"];
/// How much of what would be written a person is shown.
const SHOWN: usize = 4000;

/// Whether somebody may be asked.
pub(super) fn asks(sandbox: &dyn Sandbox) -> bool {
    sandbox.kind() == UNCONFINED
}

/// Says that a call which may have been asked about does from here on what its tool does.
pub(super) async fn begins(tool: &ToolDef, context: &ToolContext) -> Result<(), ToolError> {
    if asks(&*context.sandbox) {
        context.effect(tool.effect).await?;
    }
    Ok(())
}

/// Waits until a person agrees to a change of a file, where they must. What they want
/// instead, where they want something else.
pub(super) async fn to_change(
    tool: &ToolDef,
    path: &str,
    args: &Value,
    context: &ToolContext,
) -> Result<Option<Instead>, ToolError> {
    if !asks(&*context.sandbox) {
        return Ok(None);
    }
    let place = context.sandbox.leads_to(path).await;
    let (outside, real) = match &place {
        LeadsTo::Inside(real) => (false, real),
        LeadsTo::Outside(real) => (true, real),
    };
    // A link may lead to what its name does not tell of.
    let link = (real != path).then(|| named(real));
    let mut names = path.split('/').chain(real.split('/'));
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
    // What was agreed to is this file, and not what a link leads to later.
    let asked = match link {
        Some(real) => proof::args_hash(&json!([args, real])),
        None => proof::args_hash(args),
    };
    let key = format!("{}:{asked:.32}", context.call);
    let title = format!("{}: {path}", tool.spec.name);
    let mut request = DecisionRequest::approval(key, title);
    let shown = serde_json::to_string_pretty(args).unwrap_or_default();
    let shown = quoted(&shown, SHOWN);
    let leads = match link {
        Some(real) => format!("It leads to {}.\n", visible_line(real)),
        None => String::new(),
    };
    request.body = format!("{where_it_is}\n{leads}risk: {}\n{shown}", risk.as_str());
    leading_to(&mut request, link);
    let instead = decided(mode, tool, request, args, context).await?;
    // Somebody may have thought about it for long.
    if instead.is_none() && context.sandbox.leads_to(path).await != place {
        let message = format!("{path} leads to another place than when it was asked about");
        return Err(ToolError::failed(message));
    }
    Ok(instead)
}

/// Where a folder really is that a command is to run in, if a link leads there and nothing
/// confines the command.
pub(super) async fn link(folder: Option<&str>, context: &ToolContext) -> Option<String> {
    let path = folder.filter(|_| asks(&*context.sandbox))?;
    let (LeadsTo::Inside(real) | LeadsTo::Outside(real)) = context.sandbox.leads_to(path).await;
    (real != path).then(|| named(&real).to_owned())
}

/// The workspace has no name of its own in it.
fn named(real: &str) -> &str {
    if real.is_empty() { "." } else { real }
}

/// Says to where a link leads that is asked about.
pub(super) fn leading_to(request: &mut DecisionRequest, link: Option<&str>) {
    let real = link.map(|real| (LEADS_TO.to_owned(), json!(real)));
    request.context.extend(real);
}

/// Waits until a person agrees to a command, where they must. What they want instead, where
/// they want something else.
pub(super) async fn to_run(
    tool: &ToolDef,
    mut request: DecisionRequest,
    args: &Value,
    context: &ToolContext,
) -> Result<Option<Instead>, ToolError> {
    if !asks(&*context.sandbox) {
        return Ok(None);
    }
    let risk = Risk::High;
    let mode = mode(tool, risk, context)?;
    let told = format!("Nothing confines it.\nrisk: {}\n", risk.as_str());
    request.body.insert_str(0, &told);
    decided(mode, tool, request, args, context).await
}

fn mode(tool: &ToolDef, risk: Risk, context: &ToolContext) -> Result<Mode, ToolError> {
    let gone = || ToolError::failed("the session is closed");
    let engine = context.engine.upgrade().ok_or_else(gone)?;
    Ok(engine.policy.decide_own(&tool.spec.name, Some(risk), false))
}
