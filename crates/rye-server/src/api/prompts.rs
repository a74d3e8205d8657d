//! Prompts.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use lillux::Hash;
use rye_engine::protocol::{
    Author, Gate, Limits, Part, PromptId, QueueMode, Session, SessionId, TurnEnd,
};
use rye_engine::result::schema_error;
use rye_engine::{Answer, Prompt};
use rye_store::Scope;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::sessions::check_model;
use crate::access::{PromptState, Sessions};
use crate::auth::Principal;
use crate::extract::{Body, Params, Segments};
use crate::openapi::schemas;
use crate::problem::{Problem, ProblemDocument};
use crate::server::App;

/// Maximum time for which a request waits for an answer, in seconds.
const MAX_WAIT: u64 = 60;

/// Separates the id of a prompt from the id of its session.
const SEPARATOR: char = '@';

/// Header by which a client repeats a request without repeating its effect.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// A prompt to send.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewPrompt {
    /// The text.
    text: String,
    /// Files and images.
    #[serde(default)]
    #[schema(schema_with = schemas::parts)]
    attachments: Vec<Part>,
    /// Model for this prompt.
    model: Option<String>,
    /// Role for this prompt.
    role: Option<String>,
    /// JSON Schema of the required result.
    #[schema(value_type = Option<Object>)]
    schema: Option<Value>,
    /// What happens if the thread is busy; by default the thread's mode.
    #[schema(schema_with = schemas::queue_mode)]
    mode: Option<QueueMode>,
    /// Limits of the turn, tasks included.
    #[serde(default)]
    #[schema(schema_with = schemas::limits)]
    limits: Limits,
}

/// A prompt that is stored.
#[derive(Serialize, ToSchema)]
pub(crate) struct AcceptedPrompt {
    /// Id of the item, for `/api/prompts/{item}`.
    id: String,
    /// Id of the prompt in its session, as in events.
    prompt: String,
    /// The session.
    session: String,
}

/// Sends a prompt
///
/// The prompt is stored when the response arrives. With an `Idempotency-Key`, sending the same
/// prompt again has no effect.
#[utoipa::path(
    post,
    operation_id = "sendPrompt",
    path = "/api/sessions/{session}/threads/{thread}/prompts",
    tag = "prompts",
    params(
        ("session" = String, Path, description = "Id of the session"),
        ("thread" = String, Path, description = "Key of the thread, such as `default`; it is created if it does not exist"),
        ("Idempotency-Key" = Option<String>, Header, description = "Identifies the prompt if it is sent again"),
    ),
    request_body = NewPrompt,
    responses(
        (status = 202, description = "Stored", body = AcceptedPrompt),
        (status = 404, description = "Unknown session", body = ProblemDocument),
        (status = 409, description = "Another prompt has this key", body = ProblemDocument),
        (status = 422, description = "Unknown model or invalid schema", body = ProblemDocument),
    ),
)]
pub(crate) async fn send(
    State(app): State<App>,
    who: Principal,
    Segments((session, thread)): Segments<(String, String)>,
    headers: HeaderMap,
    Body(new): Body<NewPrompt>,
) -> Result<(StatusCode, Json<AcceptedPrompt>), Problem> {
    who.require(Scope::Prompt)?;
    let session = app.sessions.session(&who, &session).await?;
    let unprocessable = |code, detail| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, code, detail);
    if new.text.trim().is_empty() && new.attachments.is_empty() {
        return Err(unprocessable(
            "empty_prompt",
            "the prompt is empty".to_owned(),
        ));
    }
    if thread.trim().is_empty() {
        return Err(Problem::invalid(
            "invalid_id",
            "a thread key must not be empty",
        ));
    }
    if session.parent.is_some() {
        let detail = "the session is a task; only its parent can prompt it";
        return Err(Problem::new(
            StatusCode::CONFLICT,
            "takes_no_prompts",
            detail,
        ));
    }
    if new.model.is_some() {
        check_model(&app, new.model.as_deref())?;
    }
    if let Some(why) = new.schema.as_ref().and_then(schema_error) {
        return Err(unprocessable(
            "invalid_schema",
            format!("invalid schema: {why}"),
        ));
    }
    let key = headers.get(IDEMPOTENCY_KEY);
    let prompt = Prompt {
        id: key.map(|key| prompt_id(&thread, key.as_bytes())),
        attachments: new.attachments,
        author: Some(Author {
            name: who.name().to_owned(),
            channel: Some("api".to_owned()),
        }),
        model: new.model,
        role: new.role,
        schema: new.schema,
        mode: new.mode,
        limits: new.limits,
        thread: Some(thread),
        ..Prompt::from(new.text)
    };
    let accepted = app.sessions.submit(&session.id, prompt).await?;
    let accepted = AcceptedPrompt {
        id: item_id(&accepted.id, &session.id),
        prompt: accepted.id.to_string(),
        session: session.id.to_string(),
    };
    Ok((StatusCode::ACCEPTED, Json(accepted)))
}

/// The id of the prompt that a key stands for.
fn prompt_id(thread: &str, key: &[u8]) -> PromptId {
    let key = [thread.as_bytes(), b"\0", key].concat();
    let hash = Hash::digest(key).to_hex();
    // Always valid: short and printable.
    format!("key-{}", &hash[..32])
        .parse()
        .unwrap_or_else(|_| PromptId::new())
}

fn item_id(prompt: &PromptId, session: &SessionId) -> String {
    format!("{prompt}{SEPARATOR}{session}")
}

/// The prompt and the session of an item that the caller can see.
async fn find_item(
    sessions: &Sessions,
    who: &Principal,
    item: &str,
) -> Result<(PromptId, Session), Problem> {
    // Both ids may contain the separator.
    for (at, _) in item.match_indices(SEPARATOR) {
        let (prompt, session) = (&item[..at], &item[at + 1..]);
        let Ok(prompt) = prompt.parse() else { continue };
        if let Ok(session) = sessions.session(who, session).await {
            return Ok((prompt, session));
        }
    }
    Err(Problem::not_found("prompt", item))
}

/// How long to wait.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct WaitParams {
    /// Seconds to wait for the end of the prompt, up to 60; 0 by default.
    wait: Option<u64>,
}

/// The state of a prompt.
#[derive(Serialize, ToSchema)]
pub(crate) struct PromptView {
    /// Id of the item.
    id: String,
    /// `open` or `ended`.
    status: &'static str,
    /// Why it ended.
    #[schema(schema_with = schemas::turn_end)]
    end: Option<TurnEnd>,
    /// The model's last text.
    text: Option<String>,
    /// The structured result, if the prompt has a schema.
    result: Option<Value>,
    /// What went wrong.
    error: Option<String>,
    /// Pending gates of the session and its tasks.
    #[schema(schema_with = schemas::gates)]
    pending_gates: Vec<Gate>,
}

/// Returns the state of a prompt, and waits for its answer
#[utoipa::path(
    get,
    operation_id = "getPrompt",
    path = "/api/prompts/{item}",
    tag = "prompts",
    params(("item" = String, Path, description = "Id of the item"), WaitParams),
    responses(
        (status = 200, body = PromptView),
        (status = 404, description = "Unknown prompt", body = ProblemDocument),
    ),
)]
pub(crate) async fn show(
    State(app): State<App>,
    who: Principal,
    Segments(item): Segments<String>,
    Params(params): Params<WaitParams>,
) -> Result<Json<PromptView>, Problem> {
    who.require(Scope::Read)?;
    let wait = params.wait.unwrap_or_default();
    if wait > MAX_WAIT {
        let detail = format!("wait must be at most {MAX_WAIT} seconds");
        return Err(Problem::invalid("invalid_query", detail));
    }
    let (prompt, session) = find_item(&app.sessions, &who, &item).await?;
    let wait = tokio::time::timeout(
        Duration::from_secs(wait),
        wait_for_end(&app, &session.id, &prompt),
    );
    let waited = tokio::select! {
        waited = wait => waited,
        // The client asks again, at another server.
        () = app.draining.cancelled() => Ok(Ok(None)),
    };
    let state = match waited {
        Ok(answer) => answer?.map(PromptState::Ended),
        Err(_) => None,
    };
    let state = match state {
        Some(state) => Some(state),
        None => app.sessions.prompt_state(&session.id, &prompt).await?,
    };
    let unknown = || Problem::not_found("prompt", &item);
    let answer = match state.ok_or_else(unknown)? {
        PromptState::Open => None,
        PromptState::Ended(answer) => Some(answer),
    };
    let pending_gates = match &answer {
        None => app.engine().pending_gates_in_tree(&session.id).await?,
        Some(_) => Vec::new(),
    };
    Ok(Json(view(item, answer, pending_gates)))
}

fn view(id: String, answer: Option<Answer>, pending_gates: Vec<Gate>) -> PromptView {
    let status = match &answer {
        Some(_) => "ended",
        None => "open",
    };
    let (end, text, result, error) = match answer {
        Some(Answer {
            reason,
            text,
            result,
            error,
        }) => {
            let error = error.map(|error| error.message);
            (Some(reason), Some(text), result, error)
        }
        None => (None, None, None, None),
    };
    PromptView {
        id,
        status,
        end,
        text,
        result,
        error,
        pending_gates,
    }
}

/// Waits for the end of a prompt; `None` if it does not exist.
async fn wait_for_end(
    app: &App,
    session: &SessionId,
    prompt: &PromptId,
) -> Result<Option<Answer>, Problem> {
    let mut events = {
        let last = app.engine().last_event(session).await?;
        app.sessions.follow(session.clone(), last)
    };
    loop {
        match app.sessions.prompt_state(session, prompt).await? {
            Some(PromptState::Ended(answer)) => return Ok(Some(answer)),
            None => return Ok(None),
            Some(PromptState::Open) => {}
        }
        loop {
            let Some(notice) = events.next().await? else {
                return Ok(None);
            };
            if is_end(&notice.event.kind) {
                break;
            }
        }
    }
}

/// Whether an event may end a prompt.
fn is_end(kind: &rye_engine::protocol::EventKind) -> bool {
    matches!(kind, rye_engine::protocol::EventKind::TurnEnd { .. })
}

/// Removes a waiting prompt from the queue
#[utoipa::path(
    delete,
    operation_id = "withdrawPrompt",
    path = "/api/sessions/{session}/queue/{item}",
    tag = "prompts",
    params(
        ("session" = String, Path, description = "Id of the session"),
        ("item" = String, Path, description = "Id of the prompt or item"),
    ),
    responses(
        (status = 204, description = "Removed"),
        (status = 404, description = "Unknown session or prompt", body = ProblemDocument),
        (status = 409, description = "The prompt has started", body = ProblemDocument),
    ),
)]
pub(crate) async fn withdraw(
    State(app): State<App>,
    who: Principal,
    Segments((session, item)): Segments<(String, String)>,
) -> Result<StatusCode, Problem> {
    who.require(Scope::Prompt)?;
    let session = app.sessions.session(&who, &session).await?;
    let suffix = format!("{SEPARATOR}{}", session.id);
    let id = item.strip_suffix(&suffix).unwrap_or(&item);
    let open = app.engine().unfinished_prompts(&session.id).await?;
    let prompt = open.iter().find(|prompt| prompt.id.as_str() == id);
    let prompt = prompt.ok_or_else(|| Problem::not_found("waiting prompt", &item))?;
    let holder = app
        .engine()
        .open_session(&session.id, rye_engine::store::Claim::IfFree)
        .await?;
    let withdrawn = holder.withdraw_prompt(&prompt.thread, &prompt.id).await?;
    if withdrawn.is_some() {
        return Ok(StatusCode::NO_CONTENT);
    }
    let detail = "the prompt has started; abort its thread instead";
    Err(Problem::new(StatusCode::CONFLICT, "prompt_started", detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_stands_for_one_prompt_of_a_thread() {
        let first = prompt_id("default", b"a");
        assert_eq!(first, prompt_id("default", b"a"));
        assert_ne!(first, prompt_id("other", b"a"));
        assert_ne!(first, prompt_id("default", b"b"));
    }
}
