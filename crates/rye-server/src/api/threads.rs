//! Threads and their history.

use axum::Json;
use axum::extract::State;
use rye_engine::protocol::{Entry, Thread};
use rye_store::Scope;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::page_size;
use crate::access::Sessions;
use crate::auth::Principal;
use crate::extract::{Params, Segments};
use crate::openapi::schemas;
use crate::problem::{Problem, ProblemDocument};
use crate::server::App;

/// The threads of a session.
#[derive(Serialize, ToSchema)]
pub(crate) struct ThreadList {
    #[schema(schema_with = schemas::threads)]
    threads: Vec<Thread>,
}

/// Lists the threads of a session
#[utoipa::path(
    get,
    operation_id = "listThreads",
    path = "/api/sessions/{session}/threads",
    tag = "sessions",
    params(("session" = String, Path, description = "Id of the session")),
    responses(
        (status = 200, body = ThreadList),
        (status = 404, description = "Unknown session", body = ProblemDocument),
    ),
)]
pub(crate) async fn list(
    State(app): State<App>,
    who: Principal,
    Segments(session): Segments<String>,
) -> Result<Json<ThreadList>, Problem> {
    who.require(Scope::Read)?;
    let threads = app.sessions.snapshot(&who, &session).await?.threads;
    Ok(Json(ThreadList { threads }))
}

/// Selects entries.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct EntryParams {
    /// Only entries after this one.
    after: Option<String>,
    /// Number of entries, up to 1000; 100 by default.
    limit: Option<usize>,
}

/// A page of entries.
#[derive(Serialize, ToSchema)]
pub(crate) struct EntryList {
    #[schema(schema_with = schemas::entries)]
    entries: Vec<Entry>,
    /// Value of `after` for the next page, if there may be one.
    next: Option<String>,
}

/// Returns the history of a thread, oldest first
#[utoipa::path(
    get,
    operation_id = "listEntries",
    path = "/api/sessions/{session}/threads/{thread}/entries",
    tag = "sessions",
    params(
        ("session" = String, Path, description = "Id of the session"),
        ("thread" = String, Path, description = "Key or id of the thread"),
        EntryParams,
    ),
    responses(
        (status = 200, body = EntryList),
        (status = 404, description = "Unknown session, thread or entry", body = ProblemDocument),
    ),
)]
pub(crate) async fn entries(
    State(app): State<App>,
    who: Principal,
    Segments((session, thread)): Segments<(String, String)>,
    Params(params): Params<EntryParams>,
) -> Result<Json<EntryList>, Problem> {
    who.require(Scope::Read)?;
    let limit = page_size(params.limit)?;
    let after = params.after.map(|id| id.parse()).transpose();
    let after = after.map_err(|_| Problem::invalid("invalid_query", "invalid after"))?;
    let snapshot = app.sessions.snapshot(&who, &session).await?;
    let thread = Sessions::thread(&snapshot, &thread)?;
    let entries = app.sessions.entries(&thread, after.as_ref(), limit).await?;
    let next = (entries.len() == limit)
        .then(|| entries.last().map(|entry| entry.id.to_string()))
        .flatten();
    Ok(Json(EntryList { entries, next }))
}
