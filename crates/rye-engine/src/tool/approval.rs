//! Tools that a person must approve before they run.

use std::fmt;
use std::sync::Arc;

use rye_protocol::{ErrorCode, ErrorInfo};
use serde_json::{Value, json};

use super::{DecisionRequest, ToolContext, ToolDef, ToolError};
use crate::bridge::Mode;
use crate::proof;
use crate::text::without_middle;

/// How much of the arguments a person is shown.
const SHOWN: usize = 4000;

/// Whether a person must approve a call of a tool. The [policy](crate::bridge::Policy) may
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
/// nothing of the kind is run, or asks by itself.
pub(crate) async fn agreed(
    def: &ToolDef,
    args: &Value,
    context: &ToolContext,
) -> Result<(), ToolError> {
    if def.risk.is_none() && matches!(def.approval, Approval::ByRisk) {
        return Ok(());
    }
    let gone = || ToolError::failed("the session is closed");
    let engine = context.engine.upgrade().ok_or_else(gone)?;
    let name = &def.spec.name;
    let mode = engine
        .policy
        .decide_own(name, def.risk, def.approval.asks(args));
    let args_hash = proof::args_hash(args);
    let key = format!("approve:{}:{args_hash:.32}", context.call);
    let mut request = DecisionRequest::approval(key, name.clone());
    let risk = def.risk.map_or("not stated", |risk| risk.as_str());
    let shown = serde_json::to_string_pretty(args).unwrap_or_default();
    let shown = without_middle(&shown, SHOWN, None);
    request.body = format!("{}\nrisk: {risk}\nwith: {shown}", def.spec.description);
    let hash = json!(args_hash);
    request.context.insert(proof::ARGS_HASH.to_owned(), hash);
    decided(mode, name, request, context).await
}

/// Waits for a decision, if it takes one.
async fn decided(
    mode: Mode,
    tool: &str,
    request: DecisionRequest,
    context: &ToolContext,
) -> Result<(), ToolError> {
    let message = match mode {
        Mode::Allow => return Ok(()),
        Mode::Deny => format!("the policy does not let `{tool}` do that"),
        Mode::Ask => {
            let resolution = context.request_decision(request).await?;
            if resolution.action == "approve" {
                return Ok(());
            }
            format!("{} did not allow it", resolution.by)
        }
    };
    Err(ToolError(ErrorInfo::new(ErrorCode::Denied, message)))
}
