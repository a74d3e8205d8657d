//! Replay of sessions.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use rye_host::engine;
use rye_host::replay::{Difference, ReplayOutcome, RunReplay, replay_run};
use rye_store::Scope;
use serde::Serialize;
use utoipa::ToSchema;

use super::audit::blocking;
use crate::auth::Principal;
use crate::extract::Segments;
use crate::problem::{Problem, ProblemDocument};
use crate::server::App;

/// The result of a replay.
#[derive(Serialize, ToSchema)]
pub(crate) struct Replayed {
    /// Whether nothing differs.
    identical: bool,
    /// What was compared.
    compared: String,
    /// Why the replay of a thread stopped before its end.
    stopped: Vec<String>,
    /// Differences from the record.
    #[schema(value_type = Vec<ReplayDifference>)]
    differences: Vec<Difference>,
}

/// A difference between the record and the replay.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the JSON of a difference")]
pub(crate) struct ReplayDifference {
    /// What differs.
    subject: String,
    /// Recorded lines with `-`, lines of the replay with `+`.
    lines: Vec<String>,
}

impl From<ReplayOutcome> for Replayed {
    fn from(outcome: ReplayOutcome) -> Self {
        let ReplayOutcome {
            prompts,
            entries,
            stopped,
            differences,
        } = outcome;
        Self {
            identical: differences.is_empty(),
            compared: format!("{}, {}", count(prompts, "prompt"), count(entries, "entry")),
            stopped,
            differences,
        }
    }
}

impl From<RunReplay> for Replayed {
    fn from(replay: RunReplay) -> Self {
        Self {
            identical: replay.differences.is_empty(),
            compared: replay.compared,
            stopped: Vec::new(),
            differences: replay.differences,
        }
    }
}

fn count(number: usize, what: &str) -> String {
    match (number, what.strip_suffix('y')) {
        (1, _) => format!("1 {what}"),
        (_, Some(stem)) => format!("{number} {stem}ies"),
        (_, None) => format!("{number} {what}s"),
    }
}

/// Replays a session from its record, without calling models or tools, and compares
///
/// Compares the history, and the system prompt and tools that a model would get today.
#[utoipa::path(
    post,
    operation_id = "replaySession",
    path = "/api/sessions/{session}/replay",
    tag = "audit",
    params(("session" = String, Path, description = "Id of the session")),
    responses(
        (status = 200, body = Replayed),
        (status = 404, description = "Unknown session", body = ProblemDocument),
        (status = 422, description = "A run that has not started", body = ProblemDocument),
    ),
)]
pub(crate) async fn replay(
    State(app): State<App>,
    who: Principal,
    Segments(id): Segments<String>,
) -> Result<Json<Replayed>, Problem> {
    who.require(Scope::Read)?;
    let session = app.sessions.session(&who, &id).await?;
    let archives = app.engine().export(&session.id).await?;
    let replayed = blocking(move || {
        let Some(archive) = archives.first() else {
            return Err(Problem::not_found("session", &id));
        };
        if archive.session.run.is_none() {
            return Ok(engine::replay(&app.context, archive)?.into());
        }
        let replayed = replay_run(&archives).map(Replayed::from);
        replayed.ok_or_else(|| {
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            let detail = format!("the run {id} has not started");
            Problem::new(status, "not_replayable", detail)
        })
    });
    Ok(Json(replayed.await?))
}
