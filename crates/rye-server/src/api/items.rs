//! Items: search, read, execute; graph runs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use rye_executor::chain::Link;
use rye_executor::{Approval, ExecuteError, ExecutionResult, Executor, Request, Trace};
use rye_host::gateway::ItemGateway;
use rye_items::{ItemKind, ItemRef};
use rye_mcp::server::gated_run;
use rye_mcp::{
    CallDecision, CallEnd, Gateway, GatewayError, LoadRequest, SearchRequest, ToolReply,
};
use rye_store::Scope;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::{IntoParams, ToSchema};

use crate::auth::Principal;
use crate::extract::{Body, Params, Segments};
use crate::problem::{Problem, ProblemDocument};
use crate::server::App;

impl From<GatewayError> for Problem {
    fn from(error: GatewayError) -> Self {
        let status = match error.code.as_str() {
            "not_found" => StatusCode::NOT_FOUND,
            "usage" | "bad_id" | "invalid_arguments" => StatusCode::BAD_REQUEST,
            "permission" => StatusCode::FORBIDDEN,
            _ => StatusCode::UNPROCESSABLE_ENTITY,
        };
        let mut problem = Self::new(status, "item", error.message).with("code", error.code);
        if let Value::Object(details) = *error.details {
            for (key, value) in details {
                problem = problem.with(&key, value);
            }
        }
        match error.hint {
            Some(hint) => problem.hint(hint),
            None => problem,
        }
    }
}

/// Runs work of the gateway, which blocks.
async fn gateway<T: Send + 'static>(
    app: &App,
    work: impl FnOnce(&ItemGateway, PathBuf) -> Result<T, GatewayError> + Send + 'static,
) -> Result<T, Problem> {
    let (gateway, project) = (Arc::clone(&app.gateway), app.project.clone());
    let work = tokio::task::spawn_blocking(move || work(&gateway, project));
    let outcome = work.await.map_err(|error| {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Problem::new(status, "panic", error.to_string())
    })?;
    Ok(outcome?)
}

/// Selects items.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct SearchParams {
    /// Words to search for; without them, all items.
    #[serde(default)]
    query: String,
    /// Only items of this kind: tool, directive, knowledge, config.
    kind: Option<String>,
    /// Only items of this space: project, user, system.
    space: Option<String>,
    /// Number of items, up to 200.
    limit: Option<u64>,
}

/// Searches items
#[utoipa::path(
    get,
    operation_id = "searchItems",
    path = "/api/items",
    tag = "items",
    params(SearchParams),
    responses((status = 200, body = Object)),
)]
pub(crate) async fn search(
    State(app): State<App>,
    who: Principal,
    Params(params): Params<SearchParams>,
) -> Result<Json<Value>, Problem> {
    who.require(Scope::Read)?;
    let request = SearchRequest {
        query: params.query,
        item_type: params.kind,
        space: params.space,
        limit: params.limit,
        project_path: None,
    };
    let found = gateway(&app, move |gateway, project| {
        gateway.search(&project, &request)
    });
    let ToolReply { value, .. } = found.await?;
    Ok(Json(value))
}

/// Returns a verified item: metadata, schema, signer and content
#[utoipa::path(
    get,
    operation_id = "getItem",
    path = "/api/items/{kind}/{id}",
    tag = "items",
    params(
        ("kind" = String, Path, description = "tool, directive, knowledge or config"),
        ("id" = String, Path, description = "Id of the item, with `/` as `%2F`"),
    ),
    responses(
        (status = 200, body = Object),
        (status = 404, description = "Unknown item", body = ProblemDocument),
        (status = 422, description = "The item does not verify", body = ProblemDocument),
    ),
)]
pub(crate) async fn show(
    State(app): State<App>,
    who: Principal,
    Segments((kind, id)): Segments<(String, String)>,
) -> Result<Json<Value>, Problem> {
    who.require(Scope::Read)?;
    let tool = format!("{kind}:{id}").parse::<ItemRef>().ok();
    let tool = tool.filter(|it| it.kind == ItemKind::Tool);
    let request = LoadRequest {
        item_type: kind,
        item_id: id,
        project_path: None,
        destination: None,
    };
    let item = gateway(&app, move |gateway, project| {
        let mut item = gateway.load(&project, &request)?.value;
        if let Some(tool) = tool {
            match gateway.executor(&project)?.chain(&tool) {
                Ok(chain) => item["chain"] = chain.links.iter().map(link_json).collect(),
                Err(error) => item["chain_error"] = error.to_string().into(),
            }
        }
        Ok(item)
    });
    Ok(Json(item.await?))
}

/// A file of a chain.
fn link_json(link: &Link) -> Value {
    let signer = link.item.signer.as_ref();
    json!({
        "id": link.id().to_string(),
        "space": link.space().as_str(),
        "hash": link.item.hash.to_hex(),
        "signer": signer.map(|it| it.key.fingerprint().to_string()),
        "owner": signer.and_then(|it| it.owner.clone()),
    })
}

/// A call of a tool.
#[derive(Deserialize, ToSchema, Default)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ExecuteRequest {
    /// Parameters of the tool.
    #[schema(value_type = Object)]
    parameters: Map<String, Value>,
    /// Check the call without running it.
    dry_run: bool,
    /// Time limit in seconds; overrides the tool's.
    timeout: Option<f64>,
}

impl ExecuteRequest {
    fn into_request(self, id: &str) -> Result<Request, Problem> {
        let id = id.parse();
        let id = id.map_err(|error: rye_items::IdError| {
            Problem::invalid("invalid_id", error.to_string())
        })?;
        let mut request = Request::new(ItemRef::new(ItemKind::Tool, id))
            .with_parameters(Value::Object(self.parameters));
        request.approval = Approval::None;
        request.dry_run = self.dry_run;
        let timeout = self.timeout.map(Duration::try_from_secs_f64).transpose();
        let timeout = timeout.ok().filter(|it| it.is_none_or(|it| !it.is_zero()));
        let detail = "timeout must be a positive number of seconds";
        let invalid = || Problem::invalid("invalid_body", detail);
        request.timeout = timeout.ok_or_else(invalid)?;
        Ok(request)
    }
}

/// Executes a tool and waits for its result
///
/// A tool that needs approval is not run: the response is 202 with the gate. Once a person has
/// approved it, the same request runs it, once.
#[utoipa::path(
    post,
    operation_id = "executeTool",
    path = "/api/items/tool/{id}/execute",
    tag = "items",
    params(("id" = String, Path, description = "Id of the tool, with `/` as `%2F`")),
    request_body = ExecuteRequest,
    responses(
        (status = 200, description = "The result of the tool, which may be an error of the tool", body = Object),
        (status = 202, description = "The call waits for a decision", body = Object),
        (status = 403, description = "The call was denied", body = ProblemDocument),
        (status = 404, description = "Unknown tool", body = ProblemDocument),
        (status = 422, description = "The call was refused", body = ProblemDocument),
    ),
)]
pub(crate) async fn execute(
    State(app): State<App>,
    who: Principal,
    Segments(id): Segments<String>,
    Body(call): Body<ExecuteRequest>,
) -> Result<Response, Problem> {
    who.require(Scope::Prompt)?;
    let request = call.into_request(&id)?;
    let executor = executor(&app).await?;
    let start = Instant::now();
    let (executor, outcome) = run(executor, request.clone()).await;
    let Err(ExecuteError::ApprovalRequired { reason, .. }) = &outcome else {
        return Ok(Json(executed(&request, outcome, start)?).into_response());
    };
    let title = format!("Run {id} for {}?", who.name());
    let call = gated_run(&executor, &request, title, reason.as_deref())?;
    let chain = call.chain;
    let decision = gateway(&app, move |gateway, project| {
        gateway.claim_decision(&project, &call)
    });
    let record = match decision.await? {
        CallDecision::Approved { record } => record,
        CallDecision::Denied => {
            let status = StatusCode::FORBIDDEN;
            return Err(Problem::new(status, "denied", "the call was denied"));
        }
        CallDecision::Pending { gate, .. } => {
            let body = json!({ "status": "waiting", "gate": gate });
            return Ok((StatusCode::ACCEPTED, Json(body)).into_response());
        }
    };
    let approved = Request {
        approval: Approval::ForChain(chain),
        ..request.clone()
    };
    // Not cancelled with the request: the approval is used up.
    let finished = tokio::spawn(async move {
        let (_, outcome) = run(executor, approved).await;
        let result = executed(&request, outcome, start);
        let (end, value) = match &result {
            Ok(value) if value["status"] == "success" => (CallEnd::Completed, value.clone()),
            Ok(value) => (CallEnd::Failed, value.clone()),
            Err(problem) => (CallEnd::Failed, problem.json()),
        };
        let recorded = gateway(&app, move |gateway, project| {
            gateway.record_result(&project, &record, end, &value)
        });
        recorded.await?;
        result
    });
    let result = finished.await.map_err(|error| {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Problem::new(status, "panic", error.to_string())
    })??;
    Ok(Json(result).into_response())
}

async fn executor(app: &App) -> Result<Arc<Executor>, Problem> {
    gateway(app, |gateway, project| gateway.executor(&project)).await
}

/// Runs a request in a task of its own, because it holds no state of the connection.
async fn run(
    executor: Arc<Executor>,
    request: Request,
) -> (Arc<Executor>, Result<ExecutionResult, ExecuteError>) {
    let mut trace = Trace::disabled();
    let outcome = Box::pin(executor.try_execute(request, &mut trace)).await;
    (executor, outcome)
}

/// The result as JSON, or why the call was refused.
fn executed(
    request: &Request,
    outcome: Result<ExecutionResult, ExecuteError>,
    start: Instant,
) -> Result<Value, Problem> {
    match outcome {
        Ok(result) => Ok(json!(result)),
        Err(error) => {
            let result = ExecutionResult::from_error(&request.tool, &error, start.elapsed());
            let status = match error.code() {
                "not_found" | "tool_not_found" => StatusCode::NOT_FOUND,
                _ => StatusCode::UNPROCESSABLE_ENTITY,
            };
            let problem = Problem::new(status, error.code(), error.to_string());
            let problem = problem.with("result", json!(result));
            Err(match error.hint() {
                Some(hint) => problem.hint(hint),
                None => problem,
            })
        }
    }
}

/// Starts a run of a graph, in a process of its own
///
/// The run is a session: follow its events, and decide its gates. Needs a token that gives access
/// to all sessions.
#[utoipa::path(
    post,
    operation_id = "startGraphRun",
    path = "/api/graphs/{id}/runs",
    tag = "items",
    params(("id" = String, Path, description = "Id of the graph, with `/` as `%2F`")),
    request_body = ExecuteRequest,
    responses(
        (status = 202, description = "Started", body = Object),
        (status = 404, description = "Unknown graph", body = ProblemDocument),
        (status = 422, description = "The graph cannot run", body = ProblemDocument),
    ),
)]
pub(crate) async fn start_graph(
    State(app): State<App>,
    who: Principal,
    Segments(id): Segments<String>,
    Body(call): Body<ExecuteRequest>,
) -> Result<Response, Problem> {
    who.require(Scope::Prompt)?;
    who.require_unbounded()?;
    let request = call.into_request(&id)?;
    let executor = executor(&app).await?;
    let dry = Request {
        dry_run: true,
        ..request.clone()
    };
    let start = Instant::now();
    let (executor, outcome) = run(executor, dry).await;
    let checked = executed(&request, outcome, start)?;
    if request.dry_run {
        return Ok(Json(checked).into_response());
    }
    if let Err(error) = executor.check_unapproved(&request) {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        let problem = Problem::new(status, error.code(), error.to_string());
        return Err(match error.hint() {
            Some(hint) => problem.hint(hint),
            None => problem,
        });
    }
    let started = gateway(&app, move |gateway, project| {
        gateway.start_background(&project, request)
    });
    let ToolReply { value, .. } = started.await?;
    let body = json!({ "session": value["run"]["id"], "run": value["run"] });
    Ok((StatusCode::ACCEPTED, Json(body)).into_response())
}
