//! Sessions.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use rye_engine::protocol::{
    Limits, Purpose, SandboxKind, Session, SessionId, SessionSettings, SessionStatus,
};
use rye_engine::store::{SessionFilter, StoreError};
use rye_engine::{InvalidSession, NewSession};
use rye_store::Scope;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

use super::place::Place;
use super::{PAGE, page_size, parse_name};
use crate::auth::Principal;
use crate::events::snapshot_json;
use crate::extract::{Body, Params, Segments};
use crate::openapi::schemas;
use crate::problem::{Problem, ProblemDocument};
use crate::server::App;

/// A session to create.
#[derive(Deserialize, ToSchema, Default)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CreateSession {
    /// Id chosen by the caller. Creating the same id again returns the existing session.
    id: Option<String>,
    /// Default model of its threads.
    model: Option<String>,
    /// Default role of its threads.
    role: Option<String>,
    /// System prompt instead of the base system prompt.
    system: Option<String>,
    /// Directory of its project, whose items, policy and models apply; the server's own if absent.
    /// The server must permit it.
    project: Option<String>,
    /// Directory that its agents work in, absolute or relative to the project; the project if
    /// absent.
    workspace: Option<String>,
    /// Where its tools run; as configured if absent. `local` needs the scope `admin`.
    #[schema(schema_with = schemas::sandbox_kind)]
    sandbox: Option<SandboxKind>,
    /// Whether changes wait for a review; as configured if absent. `false` needs the scope `admin`.
    review: Option<bool>,
    /// Names of the tools that its agents have; all if absent.
    tools: Option<Vec<String>>,
    /// Models to try if a model fails, in order; as configured if absent.
    failover: Option<Vec<String>>,
    /// Compaction settings that replace those of the project.
    #[schema(value_type = Object)]
    compaction: Map<String, Value>,
    /// The owner, if the token is not bound to a user.
    user: Option<String>,
    /// Organisation of the owner, if the token is not bound to one.
    org: Option<String>,
    /// Limits of the session, tasks included.
    #[schema(schema_with = schemas::limits)]
    limits: Limits,
    /// Data of the client.
    #[schema(value_type = Object)]
    metadata: Map<String, Value>,
}

/// Creates a session, or returns the existing one with the same id
#[utoipa::path(
    post,
    operation_id = "createSession",
    path = "/api/sessions",
    tag = "sessions",
    request_body = CreateSession,
    responses(
        (status = 201, description = "Created", body = SessionState),
        (status = 200, description = "It existed", body = SessionState),
        (status = 409, description = "Another session has this id", body = ProblemDocument),
        (status = 403, description = "The token or the server does not permit the project or sandbox", body = ProblemDocument),
        (status = 422, description = "Unknown model or tool, or invalid settings", body = ProblemDocument),
    ),
)]
pub(crate) async fn create(
    State(app): State<App>,
    who: Principal,
    Body(new): Body<CreateSession>,
) -> Result<Response, Problem> {
    who.require(Scope::Prompt)?;
    let id = match new.id {
        Some(id) => {
            let id: Result<SessionId, _> = id.parse();
            id.map_err(|error| Problem::invalid("invalid_id", error.to_string()))?
        }
        None => SessionId::new(),
    };
    let existing = app.engine().session_data(&id).await?;
    let defaults = new_session(&app, &who, new.project.as_deref(), new.workspace.as_deref())?;
    let is_weaker = new.sandbox == Some(SandboxKind::Local) || new.review == Some(false);
    if is_weaker {
        who.require(Scope::Admin)?;
    }
    if existing
        .as_ref()
        .is_some_and(|session| !who.can_see(session))
    {
        let (kind, id) = ("session", id.to_string());
        return Err(StoreError::Conflict { kind, id }.into());
    }
    let user_id = owner("user", who.token().user.as_ref(), new.user)?;
    let org_id = owner("org", who.token().org.as_ref(), new.org)?;
    let session = NewSession {
        id: Some(id.clone()),
        user_id,
        org_id,
        model: new.model,
        role: new.role,
        system: new.system,
        settings: SessionSettings {
            tools: new.tools,
            failover: new.failover,
            compaction: new.compaction,
        },
        sandbox_kind: new.sandbox,
        review: new.review,
        limits: new.limits,
        metadata: new.metadata,
        ..defaults
    };
    if existing.is_none() {
        app.engine().check_new_session(&session).await?;
    }
    app.engine().ensure_session(session).await?;
    let snapshot = app.sessions.snapshot(&who, id.as_str()).await?;
    let status = match existing {
        Some(_) => StatusCode::OK,
        None => StatusCode::CREATED,
    };
    let mut response = (status, Json(snapshot_json(&snapshot))).into_response();
    let path = form_urlencoded::byte_serialize(id.as_str().as_bytes());
    let path = format!("/api/sessions/{}", path.collect::<String>());
    if let Ok(path) = HeaderValue::from_str(&path) {
        response.headers_mut().insert(header::LOCATION, path);
    }
    Ok(response)
}

/// The project of what the caller creates and the server starts.
pub(super) fn own_project(app: &App, who: &Principal) -> Result<String, Problem> {
    let own = app.project.display().to_string();
    Ok(Place::choose(app, who, Some(&own), None)?.project)
}

/// A session of the caller in the project and workspace, by default the token's or the server's.
pub(crate) fn new_session(
    app: &App,
    who: &Principal,
    project: Option<&str>,
    workspace: Option<&str>,
) -> Result<NewSession, Problem> {
    let Place { project, workspace } = Place::choose(app, who, project, workspace)?;
    Ok(NewSession {
        user_id: who.token().user.clone(),
        org_id: who.token().org.clone(),
        workspace: Some(workspace),
        project: Some(project),
        unattended: true,
        ..NewSession::default()
    })
}

/// The owner of a new session: the token's, or the requested one if the token has none.
pub(super) fn owner(
    what: &str,
    bound: Option<&String>,
    requested: Option<String>,
) -> Result<Option<String>, Problem> {
    match (bound, requested) {
        (Some(bound), Some(requested)) if *bound != requested => {
            let detail = format!("the token is bound to another {what}");
            Err(Problem::new(StatusCode::FORBIDDEN, "foreign_owner", detail))
        }
        (Some(bound), _) => Ok(Some(bound.clone())),
        (None, requested) => Ok(requested),
    }
}

/// Fails if a model, or the default model, is not available.
pub(crate) fn check_model(app: &App, model: Option<&str>) -> Result<(), Problem> {
    let checked = app.engine().check_model(model);
    checked.map_err(|why| {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        Problem::new(status, "unknown_model", why).hint("rye models list")
    })
}

/// Fails if a model is not available to a session.
pub(super) async fn check_model_of(
    app: &App,
    session: &Session,
    model: &str,
) -> Result<(), Problem> {
    let checked = app.engine().check_model_of(session, model).await;
    checked.map_err(|why| InvalidSession::Model(why).into())
}

/// The state of a session.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the JSON of a snapshot")]
pub(crate) struct SessionState {
    #[schema(schema_with = schemas::session)]
    session: Session,
    /// Position in the session's events at which it has this state.
    cursor: String,
    #[schema(schema_with = schemas::threads)]
    threads: Vec<Value>,
    /// Waiting and running prompts.
    #[schema(schema_with = schemas::prompts)]
    queue: Vec<Value>,
    #[schema(schema_with = schemas::gates)]
    pending_gates: Vec<Value>,
}

/// Selects sessions.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListParams {
    /// Only sessions with this status: running, paused, terminated, error.
    status: Option<String>,
    /// Only sessions with this purpose: interactive, workflow, child, run.
    purpose: Option<String>,
    /// Only sessions of this user.
    user: Option<String>,
    /// Only tasks of this session.
    parent: Option<String>,
    /// Only sessions created before this one.
    before: Option<String>,
    /// Number of sessions, up to 1000; 100 by default.
    limit: Option<usize>,
}

/// A page of sessions.
#[derive(Serialize, ToSchema)]
pub(crate) struct SessionList {
    #[schema(schema_with = schemas::sessions)]
    sessions: Vec<Session>,
    /// Value of `before` for the next page, if there may be one.
    next: Option<String>,
}

/// Lists sessions, newest first
#[utoipa::path(
    get,
    operation_id = "listSessions",
    path = "/api/sessions",
    tag = "sessions",
    params(ListParams),
    responses((status = 200, body = SessionList)),
)]
pub(crate) async fn list(
    State(app): State<App>,
    who: Principal,
    Params(params): Params<ListParams>,
) -> Result<Json<SessionList>, Problem> {
    who.require(Scope::Read)?;
    let limit = page_size(params.limit)?;
    let status: Option<SessionStatus> = params
        .status
        .map(|name| parse_name(&name, "status"))
        .transpose()?;
    let purpose: Option<Purpose> = params
        .purpose
        .map(|name| parse_name(&name, "purpose"))
        .transpose()?;
    let id = |id: String, what| {
        let parsed = id.parse();
        parsed.map_err(|_| Problem::invalid("invalid_query", format!("invalid {what}")))
    };
    let mut filter = SessionFilter {
        user: params.user,
        parent: params.parent.map(|it| id(it, "parent")).transpose()?,
        before: params.before.map(|it| id(it, "before")).transpose()?,
        limit: limit.max(PAGE),
        ..SessionFilter::default()
    };
    let mut sessions = Vec::new();
    loop {
        let page = app.engine().sessions(filter.clone()).await?;
        let is_last = page.len() < filter.limit;
        let last = page.last().map(|session| session.id.clone());
        for session in page {
            let is_selected = status.is_none_or(|it| session.status == it)
                && purpose.is_none_or(|it| session.purpose == it);
            if is_selected && who.can_see(&session) {
                sessions.push(session);
            }
            if sessions.len() == limit {
                let next = sessions.last().map(|session| session.id.to_string());
                return Ok(Json(SessionList { sessions, next }));
            }
        }
        if is_last {
            let next = None;
            return Ok(Json(SessionList { sessions, next }));
        }
        filter.before = last;
    }
}

/// Returns the state of a session
#[utoipa::path(
    get,
    operation_id = "getSession",
    path = "/api/sessions/{session}",
    tag = "sessions",
    params(("session" = String, Path, description = "Id of the session")),
    responses(
        (status = 200, body = SessionState),
        (status = 404, description = "Unknown session", body = ProblemDocument),
    ),
)]
pub(crate) async fn show(
    State(app): State<App>,
    who: Principal,
    Segments(id): Segments<String>,
) -> Result<Json<Value>, Problem> {
    who.require(Scope::Read)?;
    let snapshot = app.sessions.snapshot(&who, &id).await?;
    Ok(Json(snapshot_json(&snapshot)))
}

/// Deletes a session and its tasks
///
/// Aborts what runs in it. Fails if another process holds it.
#[utoipa::path(
    delete,
    operation_id = "deleteSession",
    path = "/api/sessions/{session}",
    tag = "sessions",
    params(("session" = String, Path, description = "Id of the session")),
    responses(
        (status = 204, description = "Deleted"),
        (status = 404, description = "Unknown session", body = ProblemDocument),
        (status = 409, description = "Another process holds it", body = ProblemDocument),
    ),
)]
pub(crate) async fn remove(
    State(app): State<App>,
    who: Principal,
    Segments(id): Segments<String>,
) -> Result<StatusCode, Problem> {
    who.require(Scope::Prompt)?;
    let session = app.sessions.session(&who, &id).await?;
    app.engine().remove_session(&session.id).await?;
    Ok(StatusCode::NO_CONTENT)
}
