//! Gates and decisions.

use std::collections::HashMap;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use rye_engine::Decision;
use rye_engine::protocol::{
    EntryKind, Gate, GateId, GateStatus, Part, Receipt, Resolution, SessionId,
};
use rye_engine::store::{PostOutcome, SessionSnapshot};
use rye_store::{Scope, TokenKind};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use crate::auth::Principal;
use crate::extract::{Body, Params, Segments};
use crate::openapi::schemas;
use crate::problem::{Problem, ProblemDocument};
use crate::server::App;

/// Channel of decisions that come through the API.
const SOURCE: &str = "api";

/// Channel of decisions that a browser signed.
const BROWSER_SOURCE: &str = "web";

/// Channel of decisions of a browser that cannot sign.
const UNSIGNED_BROWSER_SOURCE: &str = "web (signed by the server)";

/// Maximum number of entries between the last one of a thread and the message that opened a gate.
const MAX_DISTANCE: usize = 200;

/// Maximum number of decisions in one request.
const MAX_DECISIONS: usize = 100;

/// Selects gates.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListParams {
    /// `pending`, the default, or `all` together with `session`.
    status: Option<String>,
    /// Only gates of this session.
    session: Option<String>,
}

/// Gates, oldest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct GateList {
    #[schema(schema_with = schemas::gates)]
    gates: Vec<Gate>,
}

/// Lists gates of all sessions that the caller can see
#[utoipa::path(
    get,
    operation_id = "listGates",
    path = "/api/gates",
    tag = "gates",
    params(ListParams),
    responses((status = 200, body = GateList)),
)]
pub(crate) async fn list(
    State(app): State<App>,
    who: Principal,
    Params(params): Params<ListParams>,
) -> Result<Json<GateList>, Problem> {
    who.require(Scope::Read)?;
    let session = match &params.session {
        Some(id) => Some(app.sessions.session(&who, id).await?),
        None => None,
    };
    let gates = match (params.status.as_deref().unwrap_or("pending"), &session) {
        ("pending", Some(session)) => app.engine().pending_gates_in_tree(&session.id).await?,
        ("pending", None) => app.engine().pending_gates(None).await?,
        ("all", Some(session)) => app.engine().store().gates(&session.id).await?,
        ("all", None) => {
            let detail = "status=all needs a session";
            return Err(Problem::invalid("invalid_query", detail));
        }
        _ => {
            return Err(Problem::invalid(
                "invalid_query",
                "status must be pending or all",
            ));
        }
    };
    let gates = visible(&app, &who, gates).await?;
    Ok(Json(GateList { gates }))
}

/// The gates of sessions that the caller can see.
pub(super) async fn visible(
    app: &App,
    who: &Principal,
    gates: Vec<Gate>,
) -> Result<Vec<Gate>, Problem> {
    let mut known: HashMap<SessionId, bool> = HashMap::new();
    let mut seen = Vec::new();
    for gate in gates {
        let id = &gate.origin.session;
        let is_visible = if let Some(is_visible) = known.get(id) {
            *is_visible
        } else {
            let session = app.engine().session_data(id).await?;
            let is_visible = session.is_some_and(|it| who.can_see(&it));
            known.insert(id.clone(), is_visible);
            is_visible
        };
        if is_visible {
            seen.push(gate);
        }
    }
    Ok(seen)
}

/// A gate that the caller can see.
async fn find(app: &App, who: &Principal, id: &str) -> Result<Gate, Problem> {
    let gate = app.engine().gate(&GateId::from(id.to_owned())).await?;
    let gates = visible(app, who, gate.into_iter().collect()).await?;
    let mut gates = gates.into_iter();
    gates.next().ok_or_else(|| Problem::not_found("gate", id))
}

/// Returns a gate
#[utoipa::path(
    get,
    operation_id = "getGate",
    path = "/api/gates/{gate}",
    tag = "gates",
    params(("gate" = String, Path, description = "Id of the gate")),
    responses(
        (status = 200, description = "The gate; with `diff`, the complete diff of a review; `message`, what the model wrote before the call; and `sandbox`, the kind of the session's sandbox", body = schemas::Gate),
        (status = 404, description = "Unknown gate", body = ProblemDocument),
    ),
)]
pub(crate) async fn show(
    State(app): State<App>,
    who: Principal,
    Segments(id): Segments<String>,
) -> Result<Json<Value>, Problem> {
    who.require(Scope::Read)?;
    let gate = find(&app, &who, &id).await?;
    let diff = match gate.context.get(rye_engine::protocol::CHANGE_SET) {
        Some(summary) => app.engine().change_set_diff(summary).await,
        None => None,
    };
    let mut json = json!(gate);
    if let Some(diff) = diff {
        json["diff"] = diff.into();
    }
    if let Some(snapshot) = app.engine().snapshot(&gate.origin.session).await? {
        if let Some(sandbox) = &snapshot.session.sandbox {
            json["sandbox"] = json!(sandbox.kind);
        }
        if let Some(message) = message(&app, &gate, snapshot).await? {
            json["message"] = message.into();
        }
    }
    Ok(Json(json))
}

/// What the model wrote in the message that made the call of a gate.
async fn message(
    app: &App,
    gate: &Gate,
    snapshot: SessionSnapshot,
) -> Result<Option<String>, Problem> {
    let origin = &gate.origin;
    let mut threads = snapshot.threads.into_iter();
    let thread = threads.find(|it| it.id == origin.thread);
    let mut next = thread.and_then(|it| it.leaf);
    // The call waits, so its message is one of the last.
    for _ in 0..MAX_DISTANCE {
        let Some(id) = next else { break };
        let Some(entry) = app.engine().store().entry(&origin.session, &id).await? else {
            break;
        };
        if let EntryKind::Message(message) = &entry.kind {
            let is_origin = |part: &Part| matches!(part, Part::ToolCall { call_id, .. } if *call_id == origin.call);
            if message.parts.iter().any(is_origin) {
                let texts = message.parts.iter().filter_map(|part| match part {
                    Part::Text { text } => Some(text.trim()),
                    _ => None,
                });
                let text = texts.collect::<Vec<_>>().join("\n\n");
                return Ok((!text.is_empty()).then_some(text));
            }
        }
        next = entry.parent;
    }
    Ok(None)
}

/// A decision.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewDecision {
    /// Id of the chosen action, such as `approve` or `deny`.
    action: String,
    /// Additional value, such as a reason or edited arguments.
    #[serde(default)]
    value: Value,
    /// The signature of the person. Without it, the server signs.
    #[schema(value_type = Option<Object>)]
    receipt: Option<Receipt>,
}

/// A decision that counts.
#[derive(Serialize, ToSchema)]
pub(crate) struct DecisionView {
    /// The gate.
    gate: String,
    /// Whether the same decision was made before.
    repeated: bool,
}

/// Decides a gate
///
/// The first decision counts. The same decision again has no effect.
#[utoipa::path(
    post,
    operation_id = "decideGate",
    path = "/api/gates/{gate}/decision",
    tag = "gates",
    params(("gate" = String, Path, description = "Id of the gate")),
    request_body = NewDecision,
    responses(
        (status = 200, description = "The decision counts", body = DecisionView),
        (status = 404, description = "Unknown gate", body = ProblemDocument),
        (status = 409, description = "The gate was decided differently", body = ProblemDocument),
        (status = 410, description = "The gate was withdrawn or has expired", body = ProblemDocument),
        (status = 422, description = "The gate does not offer this decision", body = ProblemDocument),
    ),
)]
pub(crate) async fn decide(
    State(app): State<App>,
    who: Principal,
    Segments(id): Segments<String>,
    Body(decision): Body<NewDecision>,
) -> Result<Json<DecisionView>, Problem> {
    who.require(Scope::Decide)?;
    decide_one(&app, &who, &id, decision).await.map(Json)
}

/// Decides a gate that the caller can see.
pub(crate) async fn decide_one(
    app: &App,
    who: &Principal,
    id: &str,
    decision: NewDecision,
) -> Result<DecisionView, Problem> {
    let gate = find(app, who, id).await?;
    let posted = Box::pin(post(app, who, &gate.id, decision)).await?;
    let repeated = match posted {
        PostOutcome::Written => false,
        PostOutcome::Duplicate => true,
        PostOutcome::Conflict(first) => return Err(conflict(&first)),
        PostOutcome::GateClosed(status) => return Err(closed(&status)),
    };
    let gate = gate.id.to_string();
    Ok(DecisionView { gate, repeated })
}

/// Stores a decision, signed by the person or by the server.
async fn post(
    app: &App,
    who: &Principal,
    gate: &GateId,
    decision: NewDecision,
) -> Result<PostOutcome, Problem> {
    let action = decision.action.into();
    let value = decision.value;
    let by = who.name().to_owned();
    if let Some(receipt) = decision.receipt {
        let resolution = Resolution {
            action,
            value,
            by,
            at: receipt.at,
            source: BROWSER_SOURCE.to_owned(),
            receipt: Some(Box::new(receipt)),
        };
        return Ok(app.engine().decide_signed(gate, resolution).await?);
    }
    let source = match who.token().kind {
        TokenKind::Browser => UNSIGNED_BROWSER_SOURCE,
        _ => SOURCE,
    };
    let source = source.to_owned();
    let decision = Decision {
        action,
        value,
        by,
        source,
    };
    Ok(app.engine().decide(gate, decision).await?)
}

fn conflict(first: &Resolution) -> Problem {
    let detail = format!("the gate was decided by {}: {}", first.by, first.action);
    Problem::new(StatusCode::CONFLICT, "decision_gate_conflict", detail)
        .with("resolution", json!(first))
}

fn closed(status: &GateStatus) -> Problem {
    let name: &str = status.into();
    let detail = format!("the gate is already closed: {name}");
    Problem::new(StatusCode::GONE, "gate_closed", detail).with("gate_status", name)
}

/// A decision of one of several gates.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GateDecision {
    /// Id of the gate.
    gate: String,
    /// Id of the chosen action.
    action: String,
    /// Additional value.
    #[serde(default)]
    value: Value,
    /// The signature of the person. Without it, the server signs.
    #[schema(value_type = Option<Object>)]
    receipt: Option<Receipt>,
}

/// Decisions of several gates.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewDecisions {
    /// The decisions, up to 100.
    decisions: Vec<GateDecision>,
}

/// The outcome of each decision, in order.
#[derive(Serialize, ToSchema)]
pub(crate) struct DecisionResults {
    results: Vec<DecisionResult>,
}

/// The outcome of a decision.
#[derive(Serialize, ToSchema)]
pub(crate) struct DecisionResult {
    /// The gate.
    gate: String,
    /// The status that a request with this decision alone would have.
    status: u16,
    /// Whether the same decision was made before.
    #[serde(skip_serializing_if = "Option::is_none")]
    repeated: Option<bool>,
    /// Why the decision does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<ProblemDocument>)]
    problem: Option<Value>,
}

/// Decides several gates; each succeeds or fails on its own
#[utoipa::path(
    post,
    operation_id = "decideGates",
    path = "/api/gates/decisions",
    tag = "gates",
    request_body = NewDecisions,
    responses((status = 200, body = DecisionResults)),
)]
pub(crate) async fn decide_many(
    State(app): State<App>,
    who: Principal,
    Body(all): Body<NewDecisions>,
) -> Result<Json<DecisionResults>, Problem> {
    who.require(Scope::Decide)?;
    if all.decisions.len() > MAX_DECISIONS {
        let detail = format!("at most {MAX_DECISIONS} decisions in one request");
        return Err(Problem::invalid("too_many_decisions", detail));
    }
    let mut results = Vec::new();
    for one in all.decisions {
        let decision = NewDecision {
            action: one.action,
            value: one.value,
            receipt: one.receipt,
        };
        let decided = decide_one(&app, &who, &one.gate, decision).await;
        results.push(match decided {
            Ok(view) => DecisionResult {
                gate: view.gate,
                status: StatusCode::OK.as_u16(),
                repeated: Some(view.repeated),
                problem: None,
            },
            Err(problem) => DecisionResult {
                gate: one.gate,
                status: problem.status().as_u16(),
                repeated: None,
                problem: Some(problem.json()),
            },
        });
    }
    Ok(Json(DecisionResults { results }))
}
