//! Tokens and cost by hour and model.

use std::collections::HashMap;

use axum::Json;
use axum::extract::State;
use rye_engine::store::SessionFilter;
use rye_protocol::{SessionId, Usage};
use rye_store::Scope;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::MAX_PAGE;
use crate::auth::Principal;
use crate::extract::Params;
use crate::openapi::schemas;
use crate::problem::Problem;
use crate::server::App;
use crate::usage::Hours;

/// Maximum number of sessions that are examined, newest first.
const MAX_SESSIONS: usize = 20_000;

/// Selects usage.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct UsageParams {
    /// Only model calls since this time, in milliseconds since 1970.
    #[serde(default)]
    since: u64,
}

/// Usage of the sessions that the caller can see.
#[derive(Serialize, ToSchema)]
pub(crate) struct UsageList {
    /// Oldest first.
    hours: Vec<HourlyUsage>,
}

/// Usage of a model within an hour.
#[derive(Serialize, ToSchema)]
pub(crate) struct HourlyUsage {
    /// Start of the hour, in milliseconds since 1970.
    at: u64,
    /// The model.
    model: String,
    #[schema(schema_with = schemas::usage)]
    usage: Usage,
}

/// Returns tokens and cost by hour and model
#[utoipa::path(
    get,
    operation_id = "listUsage",
    path = "/api/usage",
    tag = "sessions",
    params(UsageParams),
    responses((status = 200, body = UsageList)),
)]
pub(crate) async fn list(
    State(app): State<App>,
    who: Principal,
    Params(params): Params<UsageParams>,
) -> Result<Json<UsageList>, Problem> {
    who.require(Scope::Read)?;
    let mut sums = Hours::new();
    let mut tasks: HashMap<SessionId, Usage> = HashMap::new();
    let mut before = None;
    let mut seen = 0;
    while seen < MAX_SESSIONS {
        let filter = SessionFilter {
            before,
            limit: MAX_PAGE,
            ..SessionFilter::default()
        };
        let page = app.engine().sessions(filter).await?;
        // A task is newer than its parent, so it comes first.
        for session in &page {
            if let Some(parent) = &session.parent {
                let sum = tasks.entry(parent.session.clone()).or_default();
                *sum = sum.plus(session.usage);
            }
            let is_used = session.updated_at.0 >= params.since && !session.usage.is_zero();
            if is_used && session.unreadable.is_none() && who.can_see(session) {
                let tasks = tasks.get(&session.id).copied().unwrap_or_default();
                let engine = app.engine();
                let ledger = &app.usage;
                ledger
                    .add(engine, session, tasks, params.since, &mut sums)
                    .await?;
            }
        }
        seen += page.len();
        before = page.last().map(|session| session.id.clone());
        if page.len() < MAX_PAGE {
            break;
        }
    }
    let hours = sums.into_iter();
    let hours = hours.map(|((at, model), usage)| HourlyUsage { at, model, usage });
    let hours = hours.collect();
    Ok(Json(UsageList { hours }))
}
