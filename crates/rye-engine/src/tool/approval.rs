//! Tools that a person must approve before they run.

use std::fmt;
use std::sync::Arc;

use lillux::{Hash, sanitize_line};
use rye_protocol::{Action, ErrorCode, ErrorInfo, GateStatus};
use rye_schema::Schema;
use serde_json::{Value, json};

use super::{DecisionRequest, ToolContext, ToolDef, ToolError};
use crate::arguments::{self, EditedArguments};
use crate::meta_tools::{APPROVE, APPROVE_SESSION, Mode};
use crate::text::quoted;
use crate::{audit, schema};

/// Where a gate's context says to where a link leads that the arguments name.
pub(crate) const RESOLVED_PATH: &str = "resolved_path";

/// Where a gate's context names the folder that the call works in.
pub(crate) const FOLDER: &str = "folder";

/// How much of the arguments a person is shown.
const SHOWN: usize = 4000;

/// Whether a person must approve a call of a tool. The [policy](crate::meta_tools::Policy) may
/// say otherwise, by the name `builtin:NAME`.
#[derive(Clone, Default)]
pub enum Approval {
    /// Only if its risk is high or critical.
    #[default]
    ByRisk,
    /// Always.
    Always,
    /// If the arguments are such.
    When(Arc<dyn Fn(&Value) -> bool + Send + Sync>),
}

impl Approval {
    /// If the arguments are such.
    pub fn when(asks: impl Fn(&Value) -> bool + Send + Sync + 'static) -> Self {
        Self::When(Arc::new(asks))
    }

    fn asks(&self, args: &Value) -> bool {
        match self {
            Self::ByRisk => false,
            Self::Always => true,
            Self::When(asks) => asks(args),
        }
    }
}

impl fmt::Debug for Approval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ByRisk => "ByRisk",
            Self::Always => "Always",
            Self::When(_) => "When",
        })
    }
}

/// Waits until a person agrees to a call, where the tool says that they must. One that says
/// nothing of the kind is run, or asks by itself. What they want instead, where they want
/// something else.
pub(crate) async fn request_approval(
    def: &ToolDef,
    args: &Value,
    context: &ToolContext,
) -> Result<Option<EditedArguments>, ToolError> {
    if !def.can_need_approval() {
        return Ok(None);
    }
    let gone = || ToolError::failed("the session is closed");
    let engine = context.engine.upgrade().ok_or_else(gone)?;
    let name = &def.spec.name;
    let mode = engine
        .policy
        .decide_own(name, def.risk, def.approval.asks(args));
    let key = format!("approve:{}:{:.32}", context.call, audit::args_hash(args));
    let mut request = DecisionRequest::approval(key, name.clone());
    let risk = def.risk.map_or("not stated", |risk| risk.as_str());
    let shown = serde_json::to_string_pretty(args).unwrap_or_default();
    let shown = quoted(&shown, SHOWN);
    request.body = format!("{}\nrisk: {risk}\nwith:\n{shown}", def.spec.description);
    resolve_approval(mode, def, request, args, context).await
}

/// Waits for a decision, if it takes one. What the person wants instead, where they want
/// something else.
pub(crate) async fn resolve_approval(
    mode: Mode,
    tool: &ToolDef,
    mut request: DecisionRequest,
    args: &Value,
    context: &ToolContext,
) -> Result<Option<EditedArguments>, ToolError> {
    match mode {
        Mode::Allow => return Ok(None),
        Mode::Deny => {
            let message = format!("the policy does not let `{}` do that", tool.spec.name);
            return Err(denied(message));
        }
        Mode::Ask => {}
    }
    bind(&mut request, context);
    let hash = audit::args_hash(args);
    // A call that has a gate of its own is answered there: somebody may have said no.
    let is_asked = context.was_asked(&request.resume_key).await?;
    if !is_asked && is_remembered(&tool.spec.name, &hash, &request, context).await? {
        return Ok(None);
    }
    let session = Action {
        id: APPROVE_SESSION.to_owned(),
        label: "Approve for this session".to_owned(),
    };
    request.actions.insert(1, session);
    request
        .context
        .insert(audit::ARGS_HASH.to_owned(), json!(hash));
    arguments::make_editable(&mut request.context, args);
    let mut unfit = String::new();
    for nth in 0..arguments::MAX_ATTEMPTS {
        let mut request = request.clone();
        if nth > 0 {
            request.resume_key = format!("{}:{nth}", request.resume_key);
            request.body.insert_str(0, &unfit);
        }
        let (resolution, about) = context.request_decision_with_context(request).await?;
        if ![APPROVE, APPROVE_SESSION].contains(&resolution.action.as_str()) {
            return Err(denied(format!("{} did not allow it", resolution.by)));
        }
        let Some(args) = arguments::edited_arguments(&about, &resolution) else {
            return Ok(None);
        };
        let instead = EditedArguments {
            args: args.clone(),
            by: resolution.by.clone(),
        };
        match wrong(tool, args) {
            None => return Ok(Some(instead)),
            Some(wrong) => unfit = instead.describe_error(&wrong),
        }
    }
    Err(denied("no arguments that fit were given".to_owned()))
}

/// What is agreed to is agreed to in the folder that the call works in: a session that goes on
/// in another one asks anew.
fn bind(request: &mut DecisionRequest, context: &ToolContext) {
    let Some(folder) = context.sandbox.working_dir() else {
        return;
    };
    // With the key, so that the end of a gate's id tells it from others in the same folder.
    let place = Hash::digest(format!("{folder}\n{}", request.resume_key)).to_hex();
    request.resume_key = format!("{}:{place:.16}", request.resume_key);
    let told = format!("folder: {}\n", sanitize_line(&folder));
    request.body.insert_str(0, &told);
    request.context.insert(FOLDER.to_owned(), json!(folder));
}

/// Whether a person has agreed to this very call for the whole session: the same tool with the
/// same arguments, which lead to the same place, in the same folder, asked about by another
/// call.
async fn is_remembered(
    tool: &str,
    hash: &str,
    request: &DecisionRequest,
    context: &ToolContext,
) -> Result<bool, ToolError> {
    let gates = context.gates_resolved_with(APPROVE_SESSION).await?;
    let mut others = gates.iter().filter(|gate| {
        let origin = &gate.origin;
        let same = |key: &str| gate.context.get(key) == request.context.get(key);
        let is_there = same(RESOLVED_PATH) && same(FOLDER);
        origin.tool == tool && origin.call != context.call && is_there
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

/// What is wrong with arguments, as with those of a model.
fn wrong(tool: &ToolDef, args: &Value) -> Option<String> {
    let form = Schema::new(&tool.spec.parameters).ok()?;
    schema::validation_error(&form, args)
}

fn denied(message: String) -> ToolError {
    ToolError(ErrorInfo::new(ErrorCode::Denied, message))
}
