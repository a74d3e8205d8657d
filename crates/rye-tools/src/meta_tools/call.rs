//! The tool `call_tool`: calls a tool of a provider, with approval if the policy requires it.

use std::sync::Arc;

use rye_protocol::{ActionId, ErrorCode, ErrorInfo, Schema};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::ToolHub;
use super::approval_question::{ApprovalQuestion, gate_key};
use super::earlier_approval;
use rye_engine::BoxFuture;
use rye_engine::arguments::{self, EditedArguments, annotate};
use rye_engine::audit;
use rye_engine::policy::{CallFacts, Mode};
use rye_engine::sandbox::Sandbox;
use rye_engine::tool::{EffectClass, Tool, ToolContext, ToolDef, ToolError, ToolOutput};
use rye_engine::tool_provider::{
    CALL_TOOL, ResolvedTool, Review, StoredApproval, ToolProvider, ToolProviderError, components_of,
};

/// Maximum number of approval requests per call, for a tool that keeps changing.
const MAX_APPROVAL_REQUESTS: usize = 8;
/// Maximum number of credential requests per call.
const MAX_CREDENTIAL_REQUESTS: usize = 3;

pub(super) struct CallTool {
    def: ToolDef,
    hub: Arc<ToolHub>,
}

#[derive(Deserialize)]
struct Args {
    tool_id: String,
    #[serde(default)]
    params: Value,
    #[serde(default)]
    summary: String,
}

impl CallTool {
    pub(super) fn new(hub: Arc<ToolHub>) -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "tool_id": { "type": "string", "description": "Id from `list_tools`." },
                "params": { "type": "object", "description": "Parameters of the tool." },
                "summary": {
                    "type": "string",
                    "description": "One-line purpose of the call, shown to a person who must approve it."
                }
            },
            "required": ["tool_id", "summary"],
            "additionalProperties": false
        });
        let description = "Calls a tool found by `list_tools`. A risky tool waits for a person's \
                           approval.";
        let def = ToolDef::new(CALL_TOOL, description, parameters);
        Self { def, hub }
    }

    #[expect(clippy::too_many_lines, reason = "the steps of a call, in order")]
    async fn call(&self, args: Args, context: &ToolContext) -> Result<ToolOutput, ToolError> {
        let (provider, id) = self.provider(&args.tool_id)?;
        let mut params = match args.params {
            Value::Null => json!({}),
            params => params,
        };
        let mut args_hash = audit::args_hash(&params);
        let (mut request_count, mut credential_requests) = (0, 0);
        // Waiting for approval has no effect yet, so the call can be repeated.
        let mut effect = EffectClass::Idempotent;
        let working_dir = provider
            .working_dir()
            .or_else(|| context.sandbox.location());
        let template = RequestTemplate::new(&args.summary, provider, working_dir.as_deref());
        let mut previous: Option<Map<String, Value>> = None;
        // Arguments that a person edited, and the error if they are invalid.
        let (mut edited, mut invalid_message) = (None::<EditedArguments>, None::<String>);
        loop {
            let resolved = match provider.resolve(id).await {
                Err(error) => {
                    resolve_auth_error(error, &mut credential_requests, context).await?;
                    continue;
                }
                Ok(resolved) => resolved,
            };
            if let Some(error) = validation_error(&resolved, &params) {
                let message = format!("invalid parameters for {}: {error}", args.tool_id);
                return Err(tool_error(ErrorCode::InvalidArguments, message));
            }
            let mut review = review_call(provider, &resolved, &params, context).await?;
            let first_review = review.clone();
            // The resolved id, not the one that the model used.
            let tool_id = format!("{}:{}", provider.service(), resolved.id);
            let question =
                template.question(&tool_id, (&resolved, &first_review), (&params, &args_hash));
            let (mode, why) = self
                .mode(provider, &question, request_count, context)
                .await?;
            if mode == Mode::Deny {
                let message = format!("denied by the policy: {}", args.tool_id);
                return Err(tool_error(ErrorCode::Denied, message));
            }
            if mode == Mode::Ask {
                if request_count == MAX_APPROVAL_REQUESTS {
                    let message = format!(
                        "gave up after {MAX_APPROVAL_REQUESTS} approvals: each time, the tool had \
                         changed or the edited arguments were invalid"
                    );
                    return Err(tool_error(ErrorCode::Denied, message));
                }
                let mut request =
                    question.request(context.call.as_str(), request_count, previous.as_ref());
                let earlier = earlier_approval::Comparison {
                    tool_id: &tool_id,
                    resolved: &resolved,
                    context,
                };
                let added = earlier.add_to(&mut request, previous.as_ref(), provider);
                Box::pin(added).await?;
                let notice = invalid_message.take().or(why).unwrap_or_default();
                request.body.insert_str(0, &notice);
                request_count += 1;
                let (resolution, gate_context) =
                    context.request_decision_with_context(request).await?;
                if !resolution.action.is_approval() {
                    return Err(tool_error(ErrorCode::Denied, resolution.denial()));
                }
                let is_same = question.is_same_call(&gate_context);
                if let Some(other) = arguments::edited_arguments(&gate_context, &resolution) {
                    let edit = EditedArguments {
                        args: other.clone(),
                        by: resolution.by.clone(),
                    };
                    if let Some(error) = validation_error(&resolved, other) {
                        invalid_message = Some(edit.describe_error(&error));
                        continue;
                    }
                    params = other.clone();
                    args_hash = audit::args_hash(&params);
                    edited = Some(edit);
                    // The person wrote the arguments, so their reasons are approved as well.
                    review = review_call(provider, &resolved, &params, context).await?;
                }
                let next = gate_key(context.call.as_str(), request_count);
                if !is_same || context.has_gate(&next).await? {
                    // The tool was different at the time of the approval, or a later gate exists,
                    // whose decision counts.
                    previous = Some(gate_context);
                    continue;
                }
                if resolved.drift.is_some() {
                    provider
                        .accept_drift(&resolved)
                        .await
                        .map_err(provider_error)?;
                }
                if resolution.action == ActionId::ApproveProject {
                    let approved = ResolvedTool {
                        components: components_of(&gate_context),
                        ..resolved.clone()
                    };
                    let stored = provider.store_approval(&approved, &resolution.by).await;
                    stored.map_err(provider_error)?;
                }
            }
            if resolved.effect != effect {
                effect = resolved.effect;
                context.set_effect(effect).await?;
            }
            let called = provider.call(&resolved, &review, params.clone(), context);
            match called.await {
                Ok(output) => {
                    let output = with_hashes(output, &resolved, &args_hash);
                    return Ok(annotate(edited.as_ref(), output));
                }
                Err(ToolProviderError::Changed) => {
                    let call = (&params, args_hash.as_str());
                    let question = template.question(&tool_id, (&resolved, &review), call);
                    previous = Some(question.request("", 0, None).context);
                }
                Err(error) => resolve_auth_error(error, &mut credential_requests, context).await?,
            }
        }
    }

    fn provider<'a>(&self, tool: &'a str) -> Result<(&dyn ToolProvider, &'a str), ToolError> {
        let unknown = || {
            // The prefix with which people and files name an item.
            let name = tool.strip_prefix("tool:").unwrap_or(tool);
            let first = self.hub.providers.first().map(|it| it.service());
            let example = match first {
                Some(service) if !name.contains(':') => format!(", such as `{service}:{name}`"),
                _ => String::new(),
            };
            let message = format!(
                "unknown tool `{tool}`: use an id that `list_tools` returns{example}; they start \
                 with one of the services {}",
                self.hub.services()
            );
            tool_error(ErrorCode::UnknownTool, message)
        };
        let (service, id) = tool.split_once(':').ok_or_else(unknown)?;
        let mut providers = self.hub.providers.iter();
        let provider = providers.find(|provider| provider.service() == service);
        Ok((&**provider.ok_or_else(unknown)?, id))
    }

    /// The mode of the call, considering stored approvals; and why a stored approval does not
    /// apply.
    async fn mode(
        &self,
        provider: &dyn ToolProvider,
        question: &ApprovalQuestion<'_>,
        request_count: usize,
        context: &ToolContext,
    ) -> Result<(Mode, Option<String>), ToolError> {
        let resolved = question.resolved;
        let reasons = &question.review.reasons;
        let facts = CallFacts {
            tool: question.tool_id,
            risk: resolved.risk,
            space: resolved.space.as_deref(),
            requires_approval: resolved.requires_approval,
            is_confined: question.review.is_within_sandbox,
            has_drift: resolved.drift.is_some(),
            reasons,
            unrated: Mode::Ask,
            default: provider.default_mode(),
        };
        let mode = context.restrict(self.hub.policy.decide(&facts).mode, resolved.risk)?;
        if mode == Mode::Deny {
            return Ok((mode, None));
        }
        // Once a gate exists, its decision counts, even if the policy now allows the call: the
        // person may have denied it.
        let first_gate = gate_key(context.call.as_str(), 0);
        if resolved.drift.is_some() || request_count > 0 || context.has_gate(&first_gate).await? {
            return Ok((Mode::Ask, None));
        }
        if mode == Mode::Allow {
            return Ok((mode, None));
        }
        // Stored approvals cover the tool, not particular parameters.
        if !reasons.iter().all(|reason| reason.applies_to_all_params) {
            return Ok((Mode::Ask, None));
        }
        let why = match provider.stored_approval(resolved).await {
            StoredApproval::Granted => return Ok((Mode::Allow, None)),
            StoredApproval::NotGranted => None,
            StoredApproval::NotValidHere(why) => Some(why + "\n"),
        };
        let stored = context
            .gates_resolved_with(&ActionId::ApproveSession)
            .await?;
        let same = |it: &Map<String, Value>| {
            let text = |key: &str| it.get(key).and_then(Value::as_str);
            let is_same_tool = text("tool_id") == Some(question.tool_id);
            is_same_tool
                && text(audit::CHAIN_HASH) == Some(&resolved.hash)
                && question.is_same_dir(it)
        };
        let is_approved = stored.iter().map(|gate| &gate.context).any(same);
        Ok(if is_approved {
            (Mode::Allow, None)
        } else {
            (Mode::Ask, why)
        })
    }
}

/// The constant parts of the approval requests of a call.
struct RequestTemplate<'a> {
    /// Purpose of the call according to the model.
    summary: &'a str,
    working_dir: Option<&'a str>,
    can_store: bool,
}

impl<'a> RequestTemplate<'a> {
    fn new(summary: &'a str, provider: &dyn ToolProvider, working_dir: Option<&'a str>) -> Self {
        Self {
            summary,
            working_dir,
            can_store: provider.can_store_approval(),
        }
    }

    fn question<'q>(
        &self,
        tool_id: &'q str,
        (resolved, review): (&'q ResolvedTool, &'q Review),
        (params, args_hash): (&'q Value, &'q str),
    ) -> ApprovalQuestion<'q>
    where
        'a: 'q,
    {
        ApprovalQuestion {
            tool_id,
            summary: self.summary,
            resolved,
            review,
            params,
            args_hash,
            working_dir: self.working_dir,
            can_store: self.can_store,
        }
    }
}

/// Assesses a call with these parameters.
async fn review_call(
    provider: &dyn ToolProvider,
    tool: &ResolvedTool,
    params: &Value,
    context: &ToolContext,
) -> Result<Review, ToolError> {
    let review = provider.review(tool, params, &*context.sandbox).await;
    review.map_err(provider_error)
}

/// Requests a missing credential; other errors are returned.
async fn resolve_auth_error(
    error: ToolProviderError,
    credential_requests: &mut usize,
    context: &ToolContext,
) -> Result<(), ToolError> {
    match error {
        ToolProviderError::AuthRequired { service, remedy }
            if *credential_requests < MAX_CREDENTIAL_REQUESTS =>
        {
            *credential_requests += 1;
            let nth = *credential_requests - 1;
            Box::pin(context.request_credential(&service, &remedy, nth)).await
        }
        error => Err(provider_error(error)),
    }
}

/// Adds the hashes of what ran to the output, for audits.
fn with_hashes(mut output: ToolOutput, tool: &ResolvedTool, args_hash: &str) -> ToolOutput {
    let mut data = match output.data {
        Value::Object(data) => data,
        Value::Null => Map::new(),
        other => Map::from_iter([("result".to_owned(), other)]),
    };
    data.insert(audit::CHAIN_HASH.to_owned(), json!(tool.hash));
    data.insert(audit::ARGS_HASH.to_owned(), json!(args_hash));
    output.data = Value::Object(data);
    output
}

/// Validation errors of the parameters; `None` if they are valid.
fn validation_error(tool: &ResolvedTool, params: &Value) -> Option<String> {
    let schema = tool.schema.as_ref()?;
    // The provider reports an invalid schema itself.
    let schema = Schema::new(schema).ok()?;
    schema.error(params)
}

fn tool_error(code: ErrorCode, message: impl Into<String>) -> ToolError {
    ToolError(ErrorInfo::new(code, message))
}

fn provider_error(error: ToolProviderError) -> ToolError {
    match error {
        ToolProviderError::Failed(info) => ToolError(info),
        ToolProviderError::AuthRequired { .. } => {
            tool_error(ErrorCode::AuthRequired, error.to_string())
        }
        other => ToolError::failed(other.to_string()),
    }
}

impl Tool for CallTool {
    fn def(&self) -> &ToolDef {
        &self.def
    }

    fn may_request_decision(&self, _: &dyn Sandbox) -> bool {
        true
    }

    fn run(
        &self,
        args: Value,
        context: ToolContext,
    ) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let args = crate::parse(args)?;
            self.call(args, &context).await
        })
    }
}
