//! Schedules.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use rye_automation::{Action, MissedPolicy, NewSchedule, Owner, Schedule, StartError};
use rye_store::Scope;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::sessions::{check_model, own_project, owner};
use crate::auth::Principal;
use crate::extract::{Body, Segments};
use crate::problem::{Problem, ProblemDocument};
use crate::server::App;

/// A schedule to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateSchedule {
    /// Name for people.
    name: Option<String>,
    /// Cron expression with five fields, or a nickname such as `@daily`.
    cron: String,
    /// Name of the time zone, such as `Europe/Berlin`; by default `UTC`.
    time_zone: Option<String>,
    /// What happens to firings that were due while no server ran; by default `skip`.
    #[serde(default)]
    missed: MissedPolicy,
    /// What it starts.
    action: Action,
    /// The owner of the sessions that it starts, if the token is not bound to a user.
    user: Option<String>,
    /// Organisation of the owner, if the token is not bound to one.
    org: Option<String>,
}

impl From<StartError> for Problem {
    fn from(error: StartError) -> Self {
        let status = match error.code.as_str() {
            "not_found" | "tool_not_found" => StatusCode::NOT_FOUND,
            _ => StatusCode::UNPROCESSABLE_ENTITY,
        };
        Self::new(status, "action", error.message).with("cause", error.code)
    }
}

/// Who owns what the caller creates.
pub(super) fn new_owner(
    app: &App,
    who: &Principal,
    user: Option<String>,
    org: Option<String>,
) -> Result<Owner, Problem> {
    Ok(Owner {
        user: owner("user", who.token().user.as_ref(), user)?,
        org: owner("org", who.token().org.as_ref(), org)?,
        project: own_project(app, who)?,
        created_by: who.name().to_owned(),
    })
}

/// Fails if the caller may not start something, or if it cannot be started.
pub(super) async fn check_action(
    app: &App,
    who: &Principal,
    action: &Action,
) -> Result<(), Problem> {
    match action {
        Action::Prompt { session, model, .. } => {
            if let Some(session) = session {
                app.sessions.session(who, session.as_str()).await?;
            }
            if model.is_some() {
                check_model(app, model.as_deref())?;
            }
            Ok(())
        }
        Action::Graph { graph, inputs } => {
            who.require_unbounded()?;
            Ok(app.automation.graphs.check(graph, inputs).await?)
        }
    }
}

/// Creates a schedule, which starts a prompt or a graph at times
///
/// A schedule of a graph needs a token that gives access to all sessions.
#[utoipa::path(
    post,
    operation_id = "createSchedule",
    path = "/api/schedules",
    tag = "schedules",
    request_body = CreateSchedule,
    responses(
        (status = 201, description = "Created", body = Schedule),
        (status = 404, description = "Unknown session or graph", body = ProblemDocument),
        (status = 422, description = "Invalid expression, time zone or action", body = ProblemDocument),
    ),
)]
pub(crate) async fn create(
    State(app): State<App>,
    who: Principal,
    Body(new): Body<CreateSchedule>,
) -> Result<(StatusCode, Json<Schedule>), Problem> {
    who.require(Scope::Prompt)?;
    check_action(&app, &who, &new.action).await?;
    let new = NewSchedule {
        name: new.name,
        cron: new.cron,
        time_zone: new.time_zone.unwrap_or_else(|| "UTC".to_owned()),
        missed: new.missed,
        action: new.action,
        owner: new_owner(&app, &who, new.user, new.org)?,
    };
    let schedule = app.automation.schedules.add(new).await?;
    Ok((StatusCode::CREATED, Json(schedule)))
}

/// Schedules.
#[derive(Serialize, ToSchema)]
pub(crate) struct ScheduleList {
    schedules: Vec<Schedule>,
}

/// Lists schedules, oldest first
#[utoipa::path(
    get,
    operation_id = "listSchedules",
    path = "/api/schedules",
    tag = "schedules",
    responses((status = 200, body = ScheduleList)),
)]
pub(crate) async fn list(
    State(app): State<App>,
    who: Principal,
) -> Result<Json<ScheduleList>, Problem> {
    who.require(Scope::Read)?;
    let mut schedules = app.automation.schedules.list().await?;
    schedules.retain(|schedule| who.can_see_owned(&schedule.owner));
    Ok(Json(ScheduleList { schedules }))
}

/// Returns a schedule
#[utoipa::path(
    get,
    operation_id = "getSchedule",
    path = "/api/schedules/{schedule}",
    tag = "schedules",
    params(("schedule" = String, Path, description = "Id of the schedule")),
    responses(
        (status = 200, body = Schedule),
        (status = 404, description = "Unknown schedule", body = ProblemDocument),
    ),
)]
pub(crate) async fn show(
    State(app): State<App>,
    who: Principal,
    Segments(id): Segments<String>,
) -> Result<Json<Schedule>, Problem> {
    who.require(Scope::Read)?;
    Ok(Json(find(&app, &who, &id).await?))
}

/// A schedule that the caller can see.
async fn find(app: &App, who: &Principal, id: &str) -> Result<Schedule, Problem> {
    let found = app.automation.schedules.get(id).await?;
    let found = found.filter(|schedule| who.can_see_owned(&schedule.owner));
    found.ok_or_else(|| Problem::not_found("schedule", id))
}

/// Deletes a schedule; what it has started goes on
#[utoipa::path(
    delete,
    operation_id = "deleteSchedule",
    path = "/api/schedules/{schedule}",
    tag = "schedules",
    params(("schedule" = String, Path, description = "Id of the schedule")),
    responses(
        (status = 204, description = "Deleted"),
        (status = 404, description = "Unknown schedule", body = ProblemDocument),
    ),
)]
pub(crate) async fn remove(
    State(app): State<App>,
    who: Principal,
    Segments(id): Segments<String>,
) -> Result<StatusCode, Problem> {
    who.require(Scope::Prompt)?;
    find(&app, &who, &id).await?;
    app.automation.schedules.remove(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A command to a schedule.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ScheduleCommand {
    /// Stop firing. Firings during a pause are not made up for.
    Pause,
    /// Start firing again.
    Resume,
    /// Fire now, also if it is paused.
    Run,
}

/// Pauses or resumes a schedule, or makes it fire now
#[utoipa::path(
    post,
    operation_id = "controlSchedule",
    path = "/api/schedules/{schedule}/{command}",
    tag = "schedules",
    params(
        ("schedule" = String, Path, description = "Id of the schedule"),
        ("command" = inline(ScheduleCommand), Path, description = "What to do"),
    ),
    responses(
        (status = 200, body = Schedule),
        (status = 404, description = "Unknown schedule", body = ProblemDocument),
    ),
)]
pub(crate) async fn control(
    State(app): State<App>,
    who: Principal,
    Segments((id, command)): Segments<(String, ScheduleCommand)>,
) -> Result<Json<Schedule>, Problem> {
    who.require(Scope::Prompt)?;
    find(&app, &who, &id).await?;
    let schedules = &app.automation.schedules;
    let changed = match command {
        ScheduleCommand::Pause => schedules.set_paused(&id, true).await,
        ScheduleCommand::Resume => schedules.set_paused(&id, false).await,
        ScheduleCommand::Run => schedules.run_now(&id).await,
    };
    Ok(Json(changed?))
}
