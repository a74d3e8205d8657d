//! Asks for approval of a call at a gate before the tool runs, if the [policy](crate::policy)
//! requires it.

use std::fmt;
use std::sync::Arc;

use lillux::{Hash, sanitize_line};
use rye_protocol::{Action, ActionId, ErrorCode, ErrorInfo, GateStatus, Schema};
use serde_json::{Value, json};

use super::{DecisionRequest, ToolContext, ToolDef, ToolError};
use crate::arguments::{self, EditedArguments};
use crate::audit;
use crate::policy::{CallFacts, Mode, RISK, Risk};
use crate::text::quote_truncated;

/// Key of the gate's context: the tool differs from its accepted definition.
pub const DRIFT: &str = "drift";

/// Key of the gate's context: target of a symbolic link in the arguments.
pub const RESOLVED_PATH: &str = "resolved_path";

/// Key of the gate's context: id of the tool.
pub const TOOL_ID: &str = "tool_id";

/// Key of the gate's context: working directory of the call.
pub const WORKING_DIR: &str = "working_dir";

/// Key of the gate's context: what the sandbox confines.
pub const SANDBOX: &str = "sandbox";

/// Key of the gate's context: the changes of the tool since a person last approved it, as a unified
/// diff.
pub const CHANGES: &str = "changes";

/// Key of the gate's context: the first words of the command and what else an approval by prefix
/// depends on.
pub const COMMAND_PREFIX: &str = "command_prefix";

/// Maximum size of the arguments in a gate, in bytes.
const MAX_SHOWN: usize = 4000;

/// When a person must approve a call of a tool. Rules of the [policy](crate::policy::Policy)
/// for `builtin:NAME` override it.
#[derive(Clone, Default)]
pub enum ApprovalRequirement {
    /// If the risk is high or critical.
    #[default]
    ByRisk,
    /// For every call.
    Always,
    /// If the arguments satisfy a predicate.
    When(Arc<dyn Fn(&Value) -> bool + Send + Sync>),
}

impl ApprovalRequirement {
    /// Requires approval if the arguments satisfy a predicate.
    pub fn when(predicate: impl Fn(&Value) -> bool + Send + Sync + 'static) -> Self {
        Self::When(Arc::new(predicate))
    }

    fn is_required(&self, args: &Value) -> bool {
        match self {
            Self::ByRisk => false,
            Self::Always => true,
            Self::When(predicate) => predicate(args),
        }
    }
}

impl fmt::Debug for ApprovalRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ByRisk => "ByRisk",
            Self::Always => "Always",
            Self::When(_) => "When",
        })
    }
}

/// Waits for approval of a call if the definition of the tool requires it. Returns the arguments
/// if the person edited them.
pub(crate) async fn request_approval(
    def: &ToolDef,
    args: &Value,
    context: &ToolContext,
) -> Result<Option<EditedArguments>, ToolError> {
    if !def.can_need_approval() {
        return Ok(None);
    }
    let name = &def.spec.name;
    let policy_name = def.policy_name();
    let facts = CallFacts {
        requires_approval: def.approval.is_required(args),
        ..CallFacts::new(&policy_name, def.risk)
    };
    let mode = context.decide(&facts)?;
    let key = format!("approve:{}:{:.32}", context.call, audit::args_hash(args));
    let mut request = DecisionRequest::approval(key, name.clone());
    let shown = serde_json::to_string_pretty(args).unwrap_or_default();
    let shown = quote_truncated(&shown, MAX_SHOWN);
    let risk_line = Risk::gate_line(def.risk);
    request.body = format!("{}\n{risk_line}\nwith:\n{shown}", def.spec.description);
    request.context.insert(RISK.to_owned(), json!(def.risk));
    resolve_approval(mode, def, request, args, context).await
}

/// Waits for a decision if the mode requires one. Returns the arguments if the person edited them.
pub async fn resolve_approval(
    mode: Mode,
    tool: &ToolDef,
    mut request: DecisionRequest,
    args: &Value,
    context: &ToolContext,
) -> Result<Option<EditedArguments>, ToolError> {
    match mode {
        Mode::Allow => return Ok(None),
        Mode::Deny => {
            let message = format!("denied by the policy: {}", tool.spec.name);
            return Err(denied(message));
        }
        Mode::Ask => {}
    }
    bind_to_working_dir(&mut request, context);
    let hash = audit::args_hash(args);
    // If the call has its own gate, that decision counts: it may be a denial.
    let has_gate = context.has_gate(&request.resume_key).await?;
    if !has_gate
        && (is_approved_for_session(&tool.spec.name, &hash, &request, context).await?
            || is_approved_by_prefix(&tool.spec.name, &request, context).await?)
    {
        return Ok(None);
    }
    let session = Action::new(ActionId::ApproveSession, "Approve for this session");
    request.actions.insert(1, session);
    if let Some(prefix) = request.context.get(COMMAND_PREFIX) {
        let prefix = prefix
            .get(PREFIX)
            .and_then(Value::as_str)
            .unwrap_or_default();
        let label = format!("Approve `{prefix} …` for this session");
        let by_prefix = Action::new(ActionId::ApprovePrefix, label);
        request.actions.insert(2, by_prefix);
    }
    request
        .context
        .insert(audit::ARGS_HASH.to_owned(), json!(hash));
    arguments::make_editable(&mut request.context, args, Some(&tool.spec.parameters));
    let (resolution, gate_context) = context.request_decision_with_context(request).await?;
    if !resolution.action.is_approval() {
        return Err(denied(resolution.denial()));
    }
    let Some(args) = arguments::edited_arguments(&gate_context, &resolution) else {
        return Ok(None);
    };
    // The tool may have changed since the decision.
    if let Some(error) = validation_error(tool, args) {
        let message = format!(
            "the arguments edited by {} are invalid: {error}",
            resolution.by
        );
        return Err(denied(message));
    }
    Ok(Some(EditedArguments {
        args: args.clone(),
        by: resolution.by.clone(),
    }))
}

/// Binds the approval to the working directory: a session that resumes in another directory needs
/// a new approval.
fn bind_to_working_dir(request: &mut DecisionRequest, context: &ToolContext) {
    let Some(working_dir) = context.sandbox.location() else {
        return;
    };
    // Includes the key, so that the ends of gate ids differ within a directory.
    let suffix = Hash::digest(format!("{working_dir}\n{}", request.resume_key)).to_hex();
    request.resume_key = format!("{}:{suffix:.16}", request.resume_key);
    let line = format!("directory: {}\n", sanitize_line(&working_dir));
    request.body.insert_str(0, &line);
    request
        .context
        .insert(WORKING_DIR.to_owned(), json!(working_dir));
}

/// Whether a person has approved this call for the session at the gate of another call: same
/// tool, arguments, resolved path, working directory and policy of the sandbox.
async fn is_approved_for_session(
    tool: &str,
    hash: &str,
    request: &DecisionRequest,
    context: &ToolContext,
) -> Result<bool, ToolError> {
    let gates = context
        .gates_resolved_with(&ActionId::ApproveSession)
        .await?;
    let mut others = gates.iter().filter(|gate| {
        let origin = &gate.origin;
        let same = |key: &str| gate.context.get(key) == request.context.get(key);
        let is_same_place = same(RESOLVED_PATH) && same(WORKING_DIR) && same(SANDBOX);
        origin.tool == tool && origin.call != context.call && is_same_place
    });
    Ok(others.any(|gate| match &gate.status {
        GateStatus::Resolved { resolution } => {
            match arguments::edited_arguments(&gate.context, resolution) {
                Some(args) => audit::args_hash(args) == hash,
                None => gate.context.get(audit::ARGS_HASH).and_then(Value::as_str) == Some(hash),
            }
        }
        _ => false,
    }))
}

/// Key of [`COMMAND_PREFIX`]: the first words of the command.
pub const PREFIX: &str = "prefix";

/// Whether a person has approved commands with the same first words for the session: same tool,
/// resolved path, working directory and policy of the sandbox.
async fn is_approved_by_prefix(
    tool: &str,
    request: &DecisionRequest,
    context: &ToolContext,
) -> Result<bool, ToolError> {
    let Some(prefix) = request.context.get(COMMAND_PREFIX) else {
        return Ok(false);
    };
    let gates = context
        .gates_resolved_with(&ActionId::ApprovePrefix)
        .await?;
    Ok(gates.iter().any(|gate| {
        let same = |key: &str| gate.context.get(key) == request.context.get(key);
        let is_edited = match &gate.status {
            GateStatus::Resolved { resolution } => {
                arguments::edited_arguments(&gate.context, resolution).is_some()
            }
            _ => false,
        };
        // The person saw the first words of the command before editing it.
        gate.origin.tool == tool
            && !is_edited
            && gate.context.get(COMMAND_PREFIX) == Some(prefix)
            && [RESOLVED_PATH, WORKING_DIR, SANDBOX].into_iter().all(same)
    }))
}

/// Validation errors of edited arguments; `None` if they are valid.
fn validation_error(tool: &ToolDef, args: &Value) -> Option<String> {
    let schema = Schema::new(&tool.spec.parameters).ok()?;
    schema.error(args)
}

fn denied(message: String) -> ToolError {
    ToolError(ErrorInfo::new(ErrorCode::Denied, message))
}
