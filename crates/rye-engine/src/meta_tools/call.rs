//! `call_tool`: one of them.

use std::sync::Arc;

use rye_protocol::{ErrorCode, ErrorInfo};
use rye_schema::Schema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::question::{APPROVE, APPROVE_PROJECT, APPROVE_SESSION, Question, key};
use super::{
    Bridge, Mode, ResolvedTool, Review, ReviewReason, StoredApproval, ToolProvider,
    ToolProviderError,
};
use crate::BoxFuture;
use crate::arguments::{self, EditedArguments};
use crate::audit;
use crate::sandbox::Sandbox;
use crate::schema;
use crate::tool::{Effect, Tool, ToolContext, ToolDef, ToolError, ToolOutput};

/// How often one call is asked about. What changes more often than people can read is not
/// run.
const MOST: usize = 8;
/// And for a credential.
const CREDENTIALS: usize = 3;

/// What models call it.
const NAME: &str = "call_tool";

/// What a call of any tool means to run, and with which arguments.
pub(crate) fn resolve_target<'a>(tool: &'a str, args: &'a Value) -> (&'a str, &'a Value) {
    match args.get("tool_id").and_then(Value::as_str) {
        Some(id) if tool == NAME => (id, args.get("params").unwrap_or(&Value::Null)),
        _ => (tool, args),
    }
}

pub(super) struct CallTool {
    def: ToolDef,
    bridge: Arc<Bridge>,
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
    pub(super) fn new(bridge: Arc<Bridge>) -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "tool_id": { "type": "string", "description": "As `list_tools` names it." },
                "params": { "type": "object", "description": "Its parameters." },
                "summary": {
                    "type": "string",
                    "description": "What this call is for, in a line. A person who must approve it reads this."
                }
            },
            "required": ["tool_id", "summary"],
            "additionalProperties": false
        });
        let description = "Calls a tool that `list_tools` has found. One that can do harm waits \
                           for a person's approval.";
        let def = ToolDef::new(NAME, description, parameters);
        Self { def, bridge }
    }

    async fn call(&self, args: Args, context: &ToolContext) -> Result<ToolOutput, ToolError> {
        let (source, id) = self.source(&args.tool_id)?;
        let mut params = match args.params {
            Value::Null => json!({}),
            given => given,
        };
        let mut args_hash = audit::args_hash(&params);
        let (mut asked, mut wanted) = (0, 0);
        // It asks first: nothing is done before it says what it does.
        let mut effect = Effect::Idempotent;
        let folder = source
            .working_dir()
            .or_else(|| context.sandbox.working_dir());
        let about = About::new(&args.summary, source, folder.as_deref());
        let mut before: Option<Map<String, Value>> = None;
        // What a person wrote in place of what the model did, and what is wrong with it.
        let (mut instead, mut unfit) = (None::<EditedArguments>, None::<String>);
        loop {
            let action = match source.resolve(id).await {
                Err(error) => {
                    given(error, &mut wanted, context).await?;
                    continue;
                }
                Ok(action) => action,
            };
            if let Some(wrong) = wrong(&action, &params) {
                let message = format!("the parameters do not fit: {wrong}");
                return Err(failed(ErrorCode::InvalidArguments, message));
            }
            let mut review = reviewed(source, &action, &params, context).await?;
            let reasons = review.reasons.clone();
            // The tool that was found, and not the name that the model called it by.
            let tool = format!("{}:{}", source.service(), action.id);
            let question = about.question(&tool, (&action, &reasons), (&params, &args_hash));
            let (mode, why) = self.mode(source, &question, asked, context).await?;
            if mode == Mode::Deny {
                let message = format!("the policy does not let {} be called", args.tool_id);
                return Err(failed(ErrorCode::Denied, message));
            }
            if mode == Mode::Ask {
                if asked == MOST {
                    let message = "it changes faster than anybody can approve it";
                    return Err(failed(ErrorCode::Denied, message));
                }
                let mut request = question.request(context.call.as_str(), asked, before.as_ref());
                let first = unfit.take().or(why).unwrap_or_default();
                request.body.insert_str(0, &first);
                asked += 1;
                let (resolution, about) = context.request_decision_with_context(request).await?;
                match resolution.action.as_str() {
                    APPROVE | APPROVE_SESSION | APPROVE_PROJECT => {}
                    _ => return Err(failed(ErrorCode::Denied, "the person said no")),
                }
                let is_same = question.is_about(&about);
                if let Some(other) = arguments::edited_arguments(&about, &resolution) {
                    let written = EditedArguments {
                        args: other.clone(),
                        by: resolution.by.clone(),
                    };
                    if let Some(wrong) = wrong(&action, other) {
                        unfit = Some(written.describe_error(&wrong));
                        continue;
                    }
                    params = other.clone();
                    args_hash = audit::args_hash(&params);
                    instead = Some(written);
                    // A person wrote them, so what they lead to is approved with them.
                    review = reviewed(source, &action, &params, context).await?;
                }
                let next = key(context.call.as_str(), asked);
                if !is_same || context.was_asked(&next).await? {
                    // It was another thing when they said yes, or has been one since: what
                    // they said last is what counts.
                    before = Some(about);
                    continue;
                }
                if action.drift.is_some() {
                    source.accept_drift(&action).await.map_err(told)?;
                }
                if resolution.action == APPROVE_PROJECT {
                    let remembered = source.store_approval(&action, &resolution.by).await;
                    remembered.map_err(told)?;
                }
            }
            if action.effect != effect {
                effect = action.effect;
                context.set_effect(effect).await?;
            }
            let called = source.call(&action, &review, params.clone(), context);
            match called.await {
                Ok(output) => {
                    let output = proven(output, &action, &args_hash);
                    return Ok(match instead {
                        Some(instead) => instead.annotate(output),
                        None => output,
                    });
                }
                Err(ToolProviderError::Changed) => {
                    let call = (&params, args_hash.as_str());
                    let question = about.question(&tool, (&action, &review.reasons), call);
                    before = Some(question.request("", 0, None).context);
                }
                Err(error) => given(error, &mut wanted, context).await?,
            }
        }
    }

    fn source<'a>(&self, tool: &'a str) -> Result<(&dyn ToolProvider, &'a str), ToolError> {
        let unknown = || {
            let message = format!(
                "there is no tool `{tool}`: an id is SERVICE:NAME, as list_tools gives it; \
                 services are {}",
                self.bridge.services()
            );
            failed(ErrorCode::UnknownTool, message)
        };
        let (service, id) = tool.split_once(':').ok_or_else(unknown)?;
        let mut sources = self.bridge.sources.iter();
        let source = sources.find(|source| source.service() == service);
        Ok((&**source.ok_or_else(unknown)?, id))
    }

    /// What becomes of the call, with what was remembered; and why that does not hold.
    async fn mode(
        &self,
        source: &dyn ToolProvider,
        question: &Question<'_>,
        asked: usize,
        context: &ToolContext,
    ) -> Result<(Mode, Option<String>), ToolError> {
        let action = question.action;
        let default = source.default_mode();
        let reasons = question.reasons;
        let policy = &self.bridge.policy;
        let mode = policy.decide(question.tool, action, reasons, default);
        if mode == Mode::Deny {
            return Ok((mode, None));
        }
        // A call that somebody was asked about is theirs, whatever else lets it by now: they may
        // have said no.
        let first = key(context.call.as_str(), 0);
        if action.drift.is_some() || asked > 0 || context.was_asked(&first).await? {
            return Ok((Mode::Ask, None));
        }
        if mode == Mode::Allow {
            return Ok((mode, None));
        }
        // What was remembered is about the action, and not about these parameters.
        if !reasons.iter().all(|reason| reason.applies_to_all_params) {
            return Ok((Mode::Ask, None));
        }
        let why = match source.stored_approval(action).await {
            StoredApproval::Granted => return Ok((Mode::Allow, None)),
            StoredApproval::NotGranted => None,
            StoredApproval::NotValidHere(why) => Some(why + "\n"),
        };
        let remembered = context.gates_resolved_with(APPROVE_SESSION).await?;
        let same = |it: &Map<String, Value>| {
            let text = |key: &str| it.get(key).and_then(Value::as_str);
            let is_it = text("tool_id") == Some(question.tool);
            is_it && text(audit::CHAIN_HASH) == Some(&action.hash) && question.is_there(it)
        };
        let yes = remembered.iter().map(|gate| &gate.context).any(same);
        Ok(if yes {
            (Mode::Allow, None)
        } else {
            (Mode::Ask, why)
        })
    }
}

/// What does not change of a call while it is asked about.
struct About<'a> {
    /// What the model says that it is for.
    summary: &'a str,
    folder: Option<&'a str>,
    remembers: bool,
}

impl<'a> About<'a> {
    fn new(summary: &'a str, source: &dyn ToolProvider, folder: Option<&'a str>) -> Self {
        Self {
            summary,
            folder,
            remembers: source.can_store_approval(),
        }
    }

    fn question<'q>(
        &self,
        tool: &'q str,
        (action, reasons): (&'q ResolvedTool, &'q [ReviewReason]),
        (params, args_hash): (&'q Value, &'q str),
    ) -> Question<'q>
    where
        'a: 'q,
    {
        Question {
            tool,
            summary: self.summary,
            action,
            reasons,
            params,
            args_hash,
            folder: self.folder,
            remembers: self.remembers,
        }
    }
}

/// Looks at what a call with these parameters would do.
async fn reviewed(
    source: &dyn ToolProvider,
    action: &ResolvedTool,
    params: &Value,
    context: &ToolContext,
) -> Result<Review, ToolError> {
    let review = source.review(action, params, &*context.sandbox).await;
    review.map_err(told)
}

/// Waits for the credential that is missing, if that is what is wrong.
async fn given(
    error: ToolProviderError,
    wanted: &mut usize,
    context: &ToolContext,
) -> Result<(), ToolError> {
    match error {
        ToolProviderError::AuthRequired { service, remedy } if *wanted < CREDENTIALS => {
            *wanted += 1;
            let nth = *wanted - 1;
            context.request_credential(&service, &remedy, nth).await
        }
        error => Err(told(error)),
    }
}

/// With what exactly ran, for whoever checks the record.
fn proven(mut output: ToolOutput, action: &ResolvedTool, args_hash: &str) -> ToolOutput {
    let mut data = match output.data {
        Value::Object(data) => data,
        Value::Null => Map::new(),
        other => Map::from_iter([("result".to_owned(), other)]),
    };
    data.insert(audit::CHAIN_HASH.to_owned(), json!(action.hash));
    data.insert(audit::ARGS_HASH.to_owned(), json!(args_hash));
    output.data = Value::Object(data);
    output
}

/// All that is wrong with the parameters; nothing where they fit.
fn wrong(action: &ResolvedTool, params: &Value) -> Option<String> {
    let form = action.schema.as_ref()?;
    // What is no schema, whoever runs it says so in its own words.
    let form = Schema::new(form).ok()?;
    schema::validation_error(&form, params)
}

fn failed(code: ErrorCode, message: impl Into<String>) -> ToolError {
    ToolError(ErrorInfo::new(code, message))
}

fn told(error: ToolProviderError) -> ToolError {
    match error {
        ToolProviderError::Failed(info) => ToolError(info),
        ToolProviderError::AuthRequired { .. } => {
            failed(ErrorCode::AuthRequired, error.to_string())
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
            let args = crate::builtin::parse(args)?;
            self.call(args, &context).await
        })
    }
}
