//! Approval of built-in tools in the local sandbox, which does not isolate commands.
//!
//! A command can do anything, so a person must approve it. A plain file of the workspace needs no
//! approval; a write to a [sensitive](lillux::path_policy::SensitiveReason) path does.
//! Rules of the [policy](rye_engine::policy::Policy) for `builtin:bash`, `builtin:write` and
//! `builtin:edit` can change this if the reason permits it. Private paths are always rejected.

use lillux::path_policy::PathClass;
use lillux::sanitize_line;
use rye_protocol::SandboxKind;
use serde_json::{Value, json};

use rye_engine::arguments::EditedArguments;
use rye_engine::audit;
use rye_engine::policy::{CallFacts, RISK, ReviewReason, Risk};
use rye_engine::sandbox::{ResolvedPath, Sandbox, SandboxError};
use rye_engine::text::quote_truncated;
use rye_engine::tool::{
    DecisionRequest, RESOLVED_PATH, ToolContext, ToolDef, ToolError, resolve_approval,
};

/// Key of the gate's context: why the path is sensitive.
const REASON: &str = "reason";
/// Maximum size of the arguments in a gate, in bytes.
const MAX_SHOWN: usize = 4000;

/// Whether calls in this sandbox may need approval.
pub(super) fn needs_approval(sandbox: &dyn Sandbox) -> bool {
    sandbox.kind() == SandboxKind::Local
}

/// Records that a call which could wait for approval now takes effect.
pub(super) async fn mark_started(tool: &ToolDef, context: &ToolContext) -> Result<(), ToolError> {
    if needs_approval(&*context.sandbox) {
        context.set_effect(tool.effect).await?;
    }
    Ok(())
}

/// An approved write to a file.
#[derive(Default)]
pub(super) struct ApprovedWrite {
    /// Arguments that the person edited.
    pub(super) edited: Option<EditedArguments>,
    /// The approved target of the path; `None` if the arguments were edited.
    target: Option<ResolvedPath>,
}

impl ApprovedWrite {
    /// Writes the approved file.
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
        written.await.map_err(super::sandbox_error)
    }
}

/// Waits for approval of a write, if it is needed.
pub(super) async fn approve_write(
    tool: &ToolDef,
    path: &str,
    args: &Value,
    context: &ToolContext,
) -> Result<ApprovedWrite, ToolError> {
    if !needs_approval(&*context.sandbox) {
        return Ok(ApprovedWrite::default());
    }
    let resolved = context.sandbox.resolve_path(path).await;
    let reason = match resolved.class {
        PathClass::Private => {
            return Err(super::sandbox_error(SandboxError::Private(path.to_owned())));
        }
        PathClass::Sensitive(reason) => Some(reason),
        PathClass::Plain => None,
    };
    // A symbolic link may point anywhere.
    let link = (resolved.path != path).then(|| display_path(&resolved.path));
    let (risk, why) = match reason {
        Some(reason) => (Risk::High, reason.reason()),
        None => (Risk::Medium, "required by the policy"),
    };
    let reasons = reason.map(|reason| ReviewReason {
        text: why.to_owned(),
        can_be_allowed_by_rule: reason.may_be_allowed_by_rule(),
        applies_to_all_params: false,
    });
    let policy_name = tool.policy_name();
    let facts = CallFacts {
        reasons: reasons.as_slice(),
        ..CallFacts::new(&policy_name, Some(risk))
    };
    let mode = context.policy()?.decide(&facts).mode;
    // The approval covers this file, not what a link points to later.
    let args_hash = match link {
        Some(target) => audit::args_hash(&json!([args, target])),
        None => audit::args_hash(args),
    };
    let key = format!("{}:{args_hash:.32}", context.call);
    let title = format!("{}: {path}", tool.spec.name);
    let mut request = DecisionRequest::approval(key, title);
    let shown = serde_json::to_string_pretty(args).unwrap_or_default();
    let shown = quote_truncated(&shown, MAX_SHOWN);
    let target_line = match link {
        Some(target) => format!("resolves to: {}\n", sanitize_line(target)),
        None => String::new(),
    };
    request.body = format!(
        "{target_line}reason: {why}\n{}\n{shown}",
        Risk::gate_line(Some(risk))
    );
    request.context.insert(RISK.to_owned(), json!(risk));
    let reason = reason.map(|reason| (REASON.to_owned(), json!(reason)));
    request.context.extend(reason);
    add_resolved_path(&mut request, link);
    let edited = resolve_approval(mode, tool, request, args, context).await?;
    // The path may have changed while the gate was open.
    if edited.is_none() && context.sandbox.resolve_path(path).await != resolved {
        return Err(super::sandbox_error(SandboxError::PathChanged(
            path.to_owned(),
        )));
    }
    // Edited arguments have their own path.
    let target = edited.is_none().then_some(resolved);
    Ok(ApprovedWrite { edited, target })
}

/// The resolved working directory of a command, if it is a symbolic link and the sandbox does not
/// isolate commands.
pub(super) async fn resolved_link(dir: Option<&str>, context: &ToolContext) -> Option<String> {
    let path = dir.filter(|_| needs_approval(&*context.sandbox))?;
    let target = context.sandbox.resolve_path(path).await.path;
    (target != path).then(|| display_path(&target).to_owned())
}

/// Display name of a resolved path; the workspace itself is `.`.
fn display_path(target: &str) -> &str {
    if target.is_empty() { "." } else { target }
}

/// Adds the target of a symbolic link to the gate's context.
pub(super) fn add_resolved_path(request: &mut DecisionRequest, link: Option<&str>) {
    let target = link.map(|target| (RESOLVED_PATH.to_owned(), json!(target)));
    request.context.extend(target);
}

/// Waits for approval of a command, if it is needed. Returns the arguments if the person edited
/// them.
pub(super) async fn approve_command(
    tool: &ToolDef,
    mut request: DecisionRequest,
    args: &Value,
    context: &ToolContext,
) -> Result<Option<EditedArguments>, ToolError> {
    if !needs_approval(&*context.sandbox) {
        return Ok(None);
    }
    let risk = Risk::High;
    let policy_name = tool.policy_name();
    let facts = CallFacts::new(&policy_name, Some(risk));
    let mode = context.policy()?.decide(&facts).mode;
    let notice = format!("Runs without a sandbox.\n{}\n", Risk::gate_line(Some(risk)));
    request.body.insert_str(0, &notice);
    request.context.insert(RISK.to_owned(), json!(risk));
    resolve_approval(mode, tool, request, args, context).await
}
