//! Approval of built-in tools, depending on what the sandbox confines.
//!
//! A command that the sandbox does not confine can do anything, so a person must approve it. A
//! confined command needs no approval, unless it asks for more than the sandbox's policy allows;
//! protected files that it created do, and connections to hosts that the policy does not mention.
//! A plain file of the
//! workspace needs no approval; a write to a
//! [sensitive](lillux::path_policy::SensitiveReason) path does.
//! Rules of the [policy](rye_engine::policy::Policy) for `builtin:bash`, `builtin:write` and
//! `builtin:edit` can change this if the reason permits it. Private paths are always rejected.

use std::sync::Arc;

use lillux::path_policy::PathClass;
use lillux::sanitize_line;
use rye_engine::protocol::ActionId;
use serde_json::{Value, json};

use rye_engine::arguments::EditedArguments;
use rye_engine::audit;
use rye_engine::policy::{CallFacts, Mode, PermissionMode, RISK, ReviewReason, Risk};
use rye_engine::protocol::{ErrorCode, ErrorInfo, Gate};
use rye_engine::sandbox::{FileAccess, Grants, ResolvedPath, Sandbox, SandboxError};
use rye_engine::text::quote_truncated;
use rye_engine::tool::{
    COMMAND_PREFIX, DecisionRequest, RESOLVED_PATH, ToolContext, ToolDef, ToolError, WORKING_DIR,
    resolve_approval,
};

/// Key of the gate's context: why the path is sensitive.
const REASON: &str = "reason";
/// Key of the gate's context: what the call may use beyond the sandbox's policy.
const GRANTS: &str = "grants";
/// Key of the gate's context: the host and port of a connection.
const CONNECTION: &str = "connection";
/// Key of the gate's context: protected files that a command created.
const PROTECTED: &str = "protected";
/// Maximum size of the arguments in a gate, in bytes.
const MAX_SHOWN: usize = 4000;

/// Whether calls in this sandbox may need approval: they can change files of the machine, or
/// their commands are not confined.
pub(super) fn may_need_approval(sandbox: &dyn Sandbox) -> bool {
    let confinement = sandbox.confinement();
    confinement.files != FileAccess::Memory || !confinement.confines_commands()
}

/// Records that a call which could wait for approval now takes effect.
pub(super) async fn mark_started(tool: &ToolDef, context: &ToolContext) -> Result<(), ToolError> {
    if may_need_approval(&*context.sandbox) {
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
        context.keep_previous(path, bytes).await?;
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
    if !may_need_approval(&*context.sandbox) {
        context.check_may_change()?;
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
        None if context.permission_mode()? == PermissionMode::Ask => {
            (Risk::Medium, "required by the session's mode")
        }
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
    let mode = context.decide(&facts)?;
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
    request.add_sandbox(&*context.sandbox);
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
    let is_confined = context.sandbox.confinement().confines_commands();
    let path = dir.filter(|_| !is_confined)?;
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
    if !may_need_approval(&*context.sandbox) {
        context.check_may_change()?;
        return Ok(None);
    }
    let is_confined = context.sandbox.confinement().confines_commands();
    let leaves_policy = request.context.contains_key(GRANTS);
    let risk = if is_confined && !leaves_policy {
        Risk::Medium
    } else {
        Risk::High
    };
    let policy_name = tool.policy_name();
    let reasons = leaves_policy.then(|| ReviewReason {
        text: "it leaves the policy of the sandbox".to_owned(),
        can_be_allowed_by_rule: false,
        applies_to_all_params: false,
    });
    let facts = CallFacts {
        reasons: reasons.as_slice(),
        ..CallFacts::new(&policy_name, Some(risk))
    };
    let mode = context.decide(&facts)?;
    request
        .body
        .insert_str(0, &format!("{}\n", Risk::gate_line(Some(risk))));
    if is_confined {
        request.add_sandbox(&*context.sandbox);
    } else {
        request.body.insert_str(0, "Runs without a sandbox.\n");
    }
    request.context.insert(RISK.to_owned(), json!(risk));
    if leaves_policy {
        request.context.remove(COMMAND_PREFIX);
    }
    resolve_approval(mode, tool, request, args, context).await
}

/// The sandbox for a write that was approved: one that also shows the file, if it is outside of
/// what commands see.
pub(super) async fn sandbox_for_write(
    path: &str,
    context: &ToolContext,
) -> Result<Arc<dyn Sandbox>, ToolError> {
    let sandbox = &context.sandbox;
    let is_outside = matches!(sandbox.stat(path).await, Err(SandboxError::Outside(_)));
    let needs_approval = sandbox.resolve_path(path).await.class != PathClass::Plain;
    if !is_outside || !needs_approval {
        return Ok(Arc::clone(sandbox));
    }
    let grants = |path: &str| Grants {
        write: vec![path.to_owned()],
        ..Grants::default()
    };
    let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
    let widened = sandbox.widened(&grants(path));
    // A new file has only a directory.
    let widened = widened.or_else(|_| sandbox.widened(&grants(parent)));
    widened.map_err(super::sandbox_error)
}

/// Shows in a gate what a command may use beyond the sandbox's policy, and makes the decision
/// depend on it.
pub(super) fn add_grants(
    request: &mut DecisionRequest,
    grants: &Grants,
    reason: &str,
    context: &ToolContext,
) {
    if grants.is_empty() {
        return;
    }
    let confinement = context.sandbox.confinement();
    let policy = confinement.enforcement.map(|it| it.policy);
    let hash = audit::args_hash(&json!([grants, policy]));
    request.resume_key = format!("{}:{hash:.32}", request.resume_key);
    let mut lines = Vec::new();
    for (what, items) in [
        ("also reads", &grants.read),
        ("also writes", &grants.write),
        ("also connects to", &grants.network),
    ] {
        if !items.is_empty() {
            let items: Vec<_> = items.iter().map(|item| sanitize_line(item)).collect();
            lines.push(format!("{what}: {}\n", items.join(", ")));
        }
    }
    if !reason.is_empty() {
        lines.push(format!("the agent's reason: {}\n", sanitize_line(reason)));
    }
    request.body.insert_str(0, &lines.concat());
    request.context.insert(GRANTS.to_owned(), json!(grants));
}

/// Asks whether a running command may connect to a host. An approval holds for the session.
pub(super) async fn approve_connection(target: &str, context: &ToolContext) -> bool {
    if is_connection_approved(target, context).await {
        return true;
    }
    let mut request = connection_request(target, context).while_running();
    request.body = format!(
        "{}\nA command that is running connects to a host that the policy does not mention. \
         It waits. An approval holds for the session.",
        Risk::gate_line(Some(Risk::Medium))
    );
    request.add_sandbox(&*context.sandbox);
    let decided = context.request_decision(request).await;
    matches!(decided, Ok(resolution) if resolution.action == ActionId::Approve)
}

/// Asks whether a document may be fetched from a host. An approval holds for the session, for
/// commands as well.
pub(super) async fn approve_fetch(
    tool: &ToolDef,
    url: &str,
    target: &str,
    is_listed: bool,
    context: &ToolContext,
) -> Result<(), ToolError> {
    let risk = if is_listed { Risk::Low } else { Risk::Medium };
    let reasons = (!is_listed).then(|| ReviewReason {
        text: "the network policy does not mention the host".to_owned(),
        can_be_allowed_by_rule: true,
        applies_to_all_params: false,
    });
    let policy_name = tool.policy_name();
    let facts = CallFacts {
        reasons: reasons.as_slice(),
        ..CallFacts::new(&policy_name, Some(risk))
    };
    let denied = |message| ToolError(ErrorInfo::new(ErrorCode::Denied, message));
    match context.policy().decide(&facts).mode {
        Mode::Allow => return Ok(()),
        Mode::Deny => return Err(denied(format!("denied by the policy: {}", tool.spec.name))),
        Mode::Ask if is_connection_approved(target, context).await => return Ok(()),
        Mode::Ask => {}
    }
    let mut request = connection_request(target, context);
    request.body = format!(
        "{}\nreads: {}\nAn approval holds for this host and session.",
        Risk::gate_line(Some(risk)),
        sanitize_line(url)
    );
    let resolution = context.request_decision(request).await?;
    if resolution.action.is_approval() {
        Ok(())
    } else {
        Err(denied(resolution.denial()))
    }
}

/// A request to connect to a host.
fn connection_request(target: &str, context: &ToolContext) -> DecisionRequest {
    let key = format!("{}:connect:{target}", context.call);
    let mut request = DecisionRequest::approval(key, format!("connect to {target}"));
    let dir = json!(context.sandbox.working_dir());
    request.context.insert(RISK.to_owned(), json!(Risk::Medium));
    request.context.insert(CONNECTION.to_owned(), json!(target));
    request.context.insert(WORKING_DIR.to_owned(), dir);
    request
}

/// Whether a person has approved connections of this session to a host.
async fn is_connection_approved(target: &str, context: &ToolContext) -> bool {
    let (connection, dir) = (json!(target), json!(context.sandbox.working_dir()));
    let matches = |key: &str, value: &Value, gate: &Gate| gate.context.get(key) == Some(value);
    let is_same =
        |gate: &Gate| matches(CONNECTION, &connection, gate) && matches(WORKING_DIR, &dir, gate);
    let approved = context.gates_resolved_with(&ActionId::Approve).await;
    approved.is_ok_and(|gates| gates.iter().any(is_same))
}

/// Waits for approval to read a path outside of what the sandbox shows, and returns a context
/// whose sandbox shows it.
pub(super) async fn approve_read(
    tool: &ToolDef,
    path: &str,
    args: &Value,
    context: &ToolContext,
) -> Result<ToolContext, ToolError> {
    let resolved = context.sandbox.resolve_path(path).await;
    if resolved.class == PathClass::Private {
        return Err(super::sandbox_error(SandboxError::Private(path.to_owned())));
    }
    let grants = Grants {
        read: vec![path.to_owned()],
        ..Grants::default()
    };
    let sandbox = context.sandbox.widened(&grants);
    let mut wide = context.clone();
    wide.sandbox = sandbox.map_err(super::sandbox_error)?;
    let link = (resolved.path != path).then(|| display_path(&resolved.path));
    let args_hash = audit::args_hash(&json!([args, link]));
    let key = format!("{}:{args_hash:.32}", context.call);
    let mut request = DecisionRequest::approval(key, format!("{}: {path}", tool.spec.name));
    let target_line = link.map_or_else(String::new, |target| {
        format!("resolves to: {}\n", sanitize_line(target))
    });
    request.body = format!(
        "{target_line}reason: outside of the sandbox\n{}",
        Risk::gate_line(Some(Risk::High))
    );
    request.context.insert(RISK.to_owned(), json!(Risk::High));
    request.context.insert(GRANTS.to_owned(), json!(grants));
    add_resolved_path(&mut request, link);
    request.add_sandbox(&*wide.sandbox);
    let policy_name = tool.policy_name();
    let reasons = [ReviewReason {
        text: "it leaves the policy of the sandbox".to_owned(),
        can_be_allowed_by_rule: true,
        applies_to_all_params: false,
    }];
    let facts = CallFacts {
        reasons: &reasons,
        ..CallFacts::new(&policy_name, Some(Risk::High))
    };
    let mode = context.policy().decide(&facts).mode;
    let edited = resolve_approval(mode, tool, request, args, &wide).await?;
    if edited.is_some() {
        let message = "the path was edited: request it with another call";
        return Err(ToolError::failed(message));
    }
    if context.sandbox.resolve_path(path).await != resolved {
        return Err(super::sandbox_error(SandboxError::PathChanged(
            path.to_owned(),
        )));
    }
    Ok(wide)
}

/// Asks whether to keep protected files that a command created, and restores or removes them.
/// Returns a line for the model.
pub(super) async fn settle_quarantined(
    paths: &[String],
    context: &ToolContext,
) -> Result<Option<String>, ToolError> {
    if paths.is_empty() {
        return Ok(None);
    }
    let hash = audit::args_hash(&json!(paths));
    let key = format!("{}:keep:{hash:.32}", context.call);
    let shown: Vec<_> = paths.iter().map(|path| sanitize_line(path)).collect();
    let title = format!("keep {}", shown.join(", "));
    let mut request = DecisionRequest::approval(key, title);
    request.body = format!(
        "The command created files that decide what programs do later:\n{}",
        quote_truncated(&paths.join("\n"), MAX_SHOWN)
    );
    request.context.insert(RISK.to_owned(), json!(Risk::High));
    request.context.insert(PROTECTED.to_owned(), json!(paths));
    request.add_sandbox(&*context.sandbox);
    let decided = context.request_decision(request).await;
    let keep = matches!(&decided, Ok(resolution) if resolution.action == ActionId::Approve);
    let settled = context.sandbox.settle_quarantined(paths, keep).await;
    settled.map_err(super::sandbox_error)?;
    decided?;
    let what = if keep {
        "kept with approval"
    } else {
        "removed, because a person refused it"
    };
    Ok(Some(format!("[{}: {what}]", shown.join(", "))))
}
