//! The tool `execute`: runs a tool with progress, cancellation and approval.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rmcp::RoleServer;
use rmcp::model::{CallToolRequestParams, CallToolResponse};
use rmcp::service::RequestContext;
use rye_executor::{Approval, ExecuteError, ExecutionResult, Executor, Request, Status, Trace};
use rye_items::{ItemId, ItemKind, ItemRef};
use serde_json::{Value, json};

use super::approval::{ApprovalStep, RUN_DENIED, call_hash};
use super::call::{parse_arguments, success_response, tool_response};
use super::definitions::GatewayTool;
use super::relay::OutputRelay;
use super::{Server, elicitation};
use crate::gateway::{CallEnd, ExecuteRequest, Gateway, GatewayError, LoadRequest, ToolReply};

impl Server {
    pub(super) async fn execute(
        &self,
        mut call: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, GatewayError> {
        let arguments = call.arguments.take().unwrap_or_default();
        let arguments: ExecuteRequest = parse_arguments(GatewayTool::Execute, arguments)?;
        if let Some(action) = arguments
            .action
            .as_deref()
            .filter(|action| *action != "run")
        {
            let message = format!("unknown action `{action}`; the only action is `run`");
            return Err(GatewayError::new("invalid_arguments", message));
        }
        let project = self
            .resolve_project(arguments.project_path.as_deref(), context)
            .await?;
        if arguments.item_type != ItemKind::Tool.as_str() {
            return Box::pin(self.read_text_item(&project, arguments))
                .await
                .map(success_response);
        }
        let background = arguments.background && !arguments.dry_run;
        let mut request = to_executor_request(arguments)?;
        request.approval = Approval::None;
        let executor = self.shared.gateway.executor(&project)?;
        if background {
            return Box::pin(self.start_background(project, &executor, request)).await;
        }
        let hash = || call_hash(&project, request.tool.id.as_str(), &request.parameters);
        let mut approved = None;
        if let Some(answer) = self.pending_answer(&project, &call, hash).await? {
            let call = answer.into_approved(RUN_DENIED)?;
            request.approval = Approval::ForChain(call.chain);
            approved = Some(call);
        }
        let start = Instant::now();
        let mut outcome = Box::pin(self.run(&executor, request.clone(), context)).await;
        if let Ok(Err(ExecuteError::ApprovalRequired { reason, .. })) = &outcome {
            let why = reason.as_deref();
            let approval = self.request_run_approval(&project, &executor, &request, why, context);
            let call = match Box::pin(approval).await? {
                ApprovalStep::Answered(answer) => answer.into_approved(RUN_DENIED)?,
                ApprovalStep::InputRequired(response) => return Ok(response),
            };
            request.approval = Approval::ForChain(call.chain);
            approved = Some(call);
            outcome = Box::pin(self.run(&executor, request.clone(), context)).await;
        }
        let failed = |error| ExecutionResult::from_error(&request.tool, &error, start.elapsed());
        let outcome = outcome.map(|outcome| outcome.unwrap_or_else(failed));
        if let Some(call) = approved {
            let (end, result) = match &outcome {
                Ok(result) if result.error.is_none() => (CallEnd::Completed, json!(result)),
                Ok(result) => (CallEnd::Failed, json!(result)),
                Err(error) => (CallEnd::Cancelled, error.to_value()),
            };
            self.record_result(&project, call, end, result).await;
        }
        Ok(result_response(&outcome?))
    }

    /// Runs a request until it ends or the client cancels it, which ends all its processes.
    async fn run(
        &self,
        executor: &Executor,
        mut request: Request,
        context: &RequestContext<RoleServer>,
    ) -> Result<Result<ExecutionResult, ExecuteError>, GatewayError> {
        let relay = OutputRelay::new(&request.tool, self.log_level(context), context);
        request.listener = relay.as_ref().map(OutputRelay::listener);
        let mut trace = Trace::disabled();
        // Boxed, because the futures around it would move it.
        let work = Box::pin(executor.try_execute(request, &mut trace));
        let work = async {
            match relay {
                None => work.await,
                Some(relay) => relay.forward_during(work).await,
            }
        };
        tokio::select! {
            outcome = elicitation::with_client_elicitation(work, context) => Ok(outcome),
            () = context.ct.cancelled() => {
                Err(GatewayError::new("cancelled", "the client cancelled the call; the tool was stopped"))
            }
        }
    }

    /// Starts a tool in the background. Validation errors are returned now. A tool that needs
    /// approval is not started, because its files could change between approval and run.
    async fn start_background(
        &self,
        project: PathBuf,
        executor: &Executor,
        request: Request,
    ) -> Result<CallToolResponse, GatewayError> {
        let dry = Request {
            dry_run: true,
            ..request.clone()
        };
        let result = executor.execute(dry).await;
        if result.status == Status::Error {
            return Ok(result_response(&result));
        }
        match executor.check_unapproved(&request) {
            Ok(()) => {}
            Err(ExecuteError::ApprovalRequired { .. }) => {
                let message = "a tool that needs approval cannot run in the background";
                return Err(GatewayError::new("approval_required", message)
                    .with_hint("execute the tool without `async`"));
            }
            Err(error) => return Err(GatewayError::new(error.code(), error.to_string())),
        }
        let start = move |gateway: &dyn Gateway| gateway.start_background(&project, request);
        self.run_blocking(start).await.map(success_response)
    }

    /// The text of a directive or knowledge item, which the model follows or reads itself.
    async fn read_text_item(
        &self,
        project: &Path,
        arguments: ExecuteRequest,
    ) -> Result<ToolReply, GatewayError> {
        let (kind, id) = (arguments.item_type.clone(), arguments.item_id.clone());
        let load = LoadRequest {
            item_type: arguments.item_type,
            item_id: arguments.item_id,
            project_path: None,
            destination: None,
        };
        let project = project.to_owned();
        let loaded = self
            .run_blocking(move |gateway| gateway.load(&project, &load))
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

fn to_executor_request(arguments: ExecuteRequest) -> Result<Request, GatewayError> {
    let id: ItemId = arguments
        .item_id
        .parse()
        .map_err(|error: rye_items::IdError| GatewayError::new("bad_id", error.to_string()))?;
    let parameters = match arguments.parameters {
        None | Some(Value::Null) => json!({}),
        Some(parameters) => parameters,
    };
    let mut request = Request::new(ItemRef::new(ItemKind::Tool, id)).with_parameters(parameters);
    request.dry_run = arguments.dry_run;
    request.timeout = match arguments.timeout.map(Duration::try_from_secs_f64) {
        None => None,
        Some(Ok(timeout)) if !timeout.is_zero() => Some(timeout),
        Some(_) => {
            let message = "`timeout` must be a positive number of seconds";
            return Err(GatewayError::new("invalid_arguments", message));
        }
    };
    Ok(request)
}

fn result_response(result: &ExecutionResult) -> CallToolResponse {
    let value = serde_json::to_value(result).unwrap_or_default();
    let text = result_text(result);
    tool_response(ToolReply { value, text }, result.status == Status::Error)
}

/// Formats a result for models: the error, if any, and the output of the tool.
fn result_text(result: &ExecutionResult) -> String {
    let mut text = String::new();
    if let Some(error) = &result.error {
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
    if result.status == Status::ValidationPassed {
        let _ = writeln!(text, "would run: {}", result.chain.join(" → "));
    }
    match process_output(&result.data) {
        Some(output) => text += &output,
        None if result.data.is_null() => {}
        None => text += &result.data.to_string(),
    }
    text
}

/// The output of a process, if the data contains nothing else.
fn process_output(data: &Value) -> Option<String> {
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
