//! The processes that run sessions.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use rye_store::Scope;
use serde::Serialize;
use utoipa::ToSchema;

use crate::auth::Principal;
use crate::problem::{Problem, ProblemDocument};
use crate::server::App;

/// The processes that hold sessions of the store.
#[derive(Serialize, ToSchema)]
pub(crate) struct HostList {
    hosts: Vec<HostView>,
}

/// A process that runs sessions.
#[derive(Serialize, ToSchema)]
pub(crate) struct HostView {
    /// Name of its machine.
    name: String,
    /// Its process, as id, start time and boot id; none for a store in memory.
    process: Option<String>,
    /// Number of sessions that it holds.
    sessions: usize,
    /// Whether it sent this response.
    is_self: bool,
}

/// Lists the processes that hold sessions
///
/// Several servers and commands can use one store. Each session is held by at most one of them; a
/// process that holds none is not listed. Needs a token that gives access to all sessions.
#[utoipa::path(
    get,
    operation_id = "listHosts",
    path = "/api/hosts",
    tag = "operations",
    responses(
        (status = 200, body = HostList),
        (status = 403, description = "The token is bounded", body = ProblemDocument),
    ),
)]
pub(crate) async fn list(
    State(app): State<App>,
    who: Principal,
) -> Result<Json<HostList>, Problem> {
    who.require(Scope::Read)?;
    who.require_unbounded()?;
    let engine = app.engine();
    let mut hosts = BTreeMap::new();
    for holder in engine.holders().await? {
        let process = holder.process.map(|process| process.0);
        let name = holder.host.clone();
        let host = hosts
            .entry((holder.host, process.clone()))
            .or_insert_with(|| HostView {
                name,
                process,
                sessions: 0,
                is_self: false,
            });
        host.sessions += 1;
        host.is_self |= engine.session(&holder.session).is_some();
    }
    let hosts = hosts.into_values().collect();
    Ok(Json(HostList { hosts }))
}
