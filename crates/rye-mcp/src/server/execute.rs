//! `execute`: a tool run to its end, watched and cancellable.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rmcp::RoleServer;
use rmcp::model::{CallToolRequestParams, CallToolResponse};
use rmcp::service::RequestContext;
use rye_executor::{Approval, Envelope, ExecuteError, Executor, Request, Status, Trace};
use rye_items::{ItemId, ItemKind, ItemRef};
use serde_json::{Value, json};

use super::approval::{Answered, DECLINED, Way, hash};
use super::call::{read, result, told};
use super::definitions::Five;
use super::relay::Relay;
use super::{Server, asked};
use crate::gateway::{ExecuteRequest, Gateway, GatewayError, LoadRequest, ToolReply};

impl Server {
    pub(super) async fn execute(
        &self,
        mut call: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, GatewayError> {
        let arguments = call.arguments.take().unwrap_or_default();
        let ask: ExecuteRequest = read(Five::Execute, arguments)?;
        if let Some(action) = ask.action.as_deref().filter(|action| *action != "run") {
            let message = format!("there is no action `{action}`; there is `run`");
            return Err(GatewayError::new("invalid_arguments", message));
        }
        let project = self
            .project_of(ask.project_path.as_deref(), context)
            .await?;
        if ask.item_type != ItemKind::Tool.as_str() {
            return Box::pin(self.text_of(&project, ask)).await.map(told);
        }
        let background = ask.background && !ask.dry_run;
        let mut request = request(ask)?;
        request.approval = Approval::None;
        let executor = self.shared.gateway.executor(&project)?;
        if background {
            return Box::pin(self.start(project, &executor, request)).await;
        }
        let about = || hash(&project, request.tool.id.as_str(), &request.parameters);
        if let Some(answer) = self.approved(&project, &call, about).await? {
            request.approval = approval(answer)?;
        }
        let start = Instant::now();
        let mut ran = Box::pin(self.run(&executor, request.clone(), context)).await?;
        if let Err(ExecuteError::ApprovalRequired { why, .. }) = &ran {
            let why = why.as_deref();
            let asked = self.ask_to_run(&project, &executor, &request, why, context);
            request.approval = match Box::pin(asked).await? {
                Way::Answered(answer) => approval(answer)?,
                Way::Ask(response) => return Ok(response),
            };
            ran = Box::pin(self.run(&executor, request.clone(), context)).await?;
        }
        let refused = |error| Envelope::from_error(&request.tool, &error, start.elapsed());
        Ok(told_envelope(&ran.unwrap_or_else(refused)))
    }

    /// Runs a request to its end, or until the client no longer wants it: then all that
    /// it started ends with it.
    async fn run(
        &self,
        executor: &Executor,
        mut request: Request,
        context: &RequestContext<RoleServer>,
    ) -> Result<Result<Envelope, ExecuteError>, GatewayError> {
        let relay = Relay::of(&request.tool, self.level(context), context);
        request.listener = relay.as_ref().map(Relay::listener);
        let mut trace = Trace::disabled();
        // On the heap from the start: every future around it would move it as it moves.
        let work = Box::pin(executor.try_execute(request, &mut trace));
        let work = async {
            match relay {
                None => work.await,
                Some(relay) => relay.along(work).await,
            }
        };
        tokio::select! {
            outcome = asked::along(work, context) => Ok(outcome),
            () = context.ct.cancelled() => {
                Err(GatewayError::new("cancelled", "the client cancelled it, and it was ended"))
            }
        }
    }

    /// Starts a tool that runs on its own. What would not run is told now; what needs an
    /// approval is not started, for nobody could say that it is still what was approved.
    async fn start(
        &self,
        project: PathBuf,
        executor: &Executor,
        request: Request,
    ) -> Result<CallToolResponse, GatewayError> {
        let dry = Request {
            dry_run: true,
            ..request.clone()
        };
        let envelope = executor.execute(dry).await;
        if envelope.status == Status::Error {
            return Ok(told_envelope(&envelope));
        }
        if executor.needs_approval(&request).unwrap_or(true) {
            let message = "what needs a person's approval is not started in the background";
            return Err(GatewayError::new("approval_required", message)
                .hint("execute it without `async`, and the person is asked"));
        }
        let start = move |gateway: &dyn Gateway| gateway.start_background(&project, request);
        self.blocking(start).await.map(told)
    }

    /// A directive or knowledge item is run by whoever reads it.
    async fn text_of(
        &self,
        project: &Path,
        ask: ExecuteRequest,
    ) -> Result<ToolReply, GatewayError> {
        let (kind, id) = (ask.item_type.clone(), ask.item_id.clone());
        let load = LoadRequest {
            item_type: ask.item_type,
            item_id: ask.item_id,
            project_path: None,
            destination: None,
        };
        let project = project.to_owned();
        let loaded = self
            .blocking(move |gateway| gateway.load(&project, &load))
            .await?;
        let content = loaded.value.get("content").cloned().unwrap_or_default();
        let text = content.as_str().unwrap_or_default().to_owned();
        let value = json!({
            "status": "success",
            "type": kind,
            "item_id": id,
            "data": { "content": content },
            "metadata": { "verification": loaded.value.get("verification") },
        });
        Ok(ToolReply { value, text })
    }
}

fn request(ask: ExecuteRequest) -> Result<Request, GatewayError> {
    let id: ItemId = ask
        .item_id
        .parse()
        .map_err(|error: rye_items::IdError| GatewayError::new("bad_id", error.to_string()))?;
    let parameters = match ask.parameters {
        None | Some(Value::Null) => json!({}),
        Some(parameters) => parameters,
    };
    let mut request = Request::new(ItemRef::new(ItemKind::Tool, id)).parameters(parameters);
    request.dry_run = ask.dry_run;
    request.timeout = match ask.timeout.map(Duration::try_from_secs_f64) {
        None => None,
        Some(Ok(timeout)) if !timeout.is_zero() => Some(timeout),
        Some(_) => {
            let message = "`timeout` is a number of seconds, more than 0";
            return Err(GatewayError::new("invalid_arguments", message));
        }
    };
    Ok(request)
}

fn told_envelope(envelope: &Envelope) -> CallToolResponse {
    let value = serde_json::to_value(envelope).unwrap_or_default();
    let text = words(envelope);
    result(ToolReply { value, text }, envelope.status == Status::Error)
}

/// An envelope for a model: what the tool gave, or what went wrong with what it printed.
fn words(envelope: &Envelope) -> String {
    let mut text = String::new();
    if let Some(error) = &envelope.error {
        let _ = writeln!(text, "{}: {}", error.code, error.message);
        for violation in error.violations.as_array().into_iter().flatten() {
            let at = violation["pointer"].as_str().unwrap_or_default();
            let message = violation["message"].as_str().unwrap_or_default();
            let _ = writeln!(text, "- {at}: {message}");
        }
        if let Some(hint) = &error.hint {
            let _ = writeln!(text, "hint: {hint}");
        }
    }
    if envelope.status == Status::ValidationPassed {
        let _ = writeln!(text, "it would run: {}", envelope.chain.join(" → "));
    }
    match printed(&envelope.data) {
        Some(printed) => text += &printed,
        None if envelope.data.is_null() => {}
        None => text += &envelope.data.to_string(),
    }
    text
}

/// What a process printed, where its data is that alone.
fn printed(data: &Value) -> Option<String> {
    let object = data.as_object()?;
    let stdout = object.get("stdout")?.as_str()?;
    let stderr = object.get("stderr")?.as_str()?;
    if object.len() > 3 {
        return None;
    }
    match stderr {
        "" => Some(stdout.to_owned()),
        _ => Some(format!("{stdout}\n[stderr]\n{stderr}")),
    }
}

fn approval(answer: Answered) -> Result<Approval, GatewayError> {
    match answer {
        Answered::Yes(hash) => Ok(Approval::ForChain(hash)),
        Answered::No => Err(GatewayError::new("approval_declined", DECLINED)),
    }
}
