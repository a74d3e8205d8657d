//! Abort, pause and resume.

use axum::extract::State;
use axum::http::StatusCode;
use rye_engine::store::CommandKind;
use rye_store::Scope;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::access::Sessions;
use crate::auth::Principal;
use crate::extract::Segments;
use crate::problem::{Problem, ProblemDocument};
use crate::server::App;

/// A command to a session or thread.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Command {
    /// Abort the running turn and clear the queue.
    Abort,
    /// Start nothing more.
    Pause,
    /// Start again.
    Resume,
}

impl From<Command> for CommandKind {
    fn from(command: Command) -> Self {
        match command {
            Command::Abort => Self::Abort,
            Command::Pause => Self::Pause,
            Command::Resume => Self::Resume,
        }
    }
}

/// Aborts, pauses or resumes all threads of a session
#[utoipa::path(
    post,
    operation_id = "controlSession",
    path = "/api/sessions/{session}/{command}",
    tag = "control",
    params(
        ("session" = String, Path, description = "Id of the session"),
        ("command" = Command, Path, description = "What to do"),
    ),
    responses(
        (status = 204, description = "Done, or stored for the process that holds the session"),
        (status = 404, description = "Unknown session", body = ProblemDocument),
    ),
)]
pub(crate) async fn control_session(
    State(app): State<App>,
    who: Principal,
    Segments((session, command)): Segments<(String, Command)>,
) -> Result<StatusCode, Problem> {
    who.require(Scope::Prompt)?;
    let session = app.sessions.session(&who, &session).await?;
    let engine = app.engine();
    engine.command(&session.id, None, command.into()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Aborts, pauses or resumes a thread
#[utoipa::path(
    post,
    operation_id = "controlThread",
    path = "/api/sessions/{session}/threads/{thread}/{command}",
    tag = "control",
    params(
        ("session" = String, Path, description = "Id of the session"),
        ("thread" = String, Path, description = "Key or id of the thread"),
        ("command" = Command, Path, description = "What to do"),
    ),
    responses(
        (status = 204, description = "Done, or stored for the process that holds the session"),
        (status = 404, description = "Unknown session or thread", body = ProblemDocument),
    ),
)]
pub(crate) async fn control_thread(
    State(app): State<App>,
    who: Principal,
    Segments((session, thread, command)): Segments<(String, String, Command)>,
) -> Result<StatusCode, Problem> {
    who.require(Scope::Prompt)?;
    let snapshot = app.sessions.snapshot(&who, &session).await?;
    let thread = Sessions::thread(&snapshot, &thread)?;
    let id = &snapshot.session.id;
    let key = Some(thread.key.as_str());
    app.engine().command(id, key, command.into()).await?;
    Ok(StatusCode::NO_CONTENT)
}
