//! Prompts.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use lillux::Hash;
use rye_engine::protocol::{
    Author, ErrorInfo, Gate, Limits, Part, PromptId, QueueMode, Session, SessionId, TurnEnd,
};
use rye_engine::result::schema_error;
use rye_engine::{Answer, Prompt};
use rye_store::Scope;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::quotas;
use super::sessions::check_model_of;
use crate::access::Sessions;
use crate::auth::Principal;
use crate::extract::{Body, Params, Segments};
use crate::openapi::schemas;
use crate::problem::{Problem, ProblemDocument};
use crate::server::App;

/// Maximum time for which a request waits for an answer, in seconds.
const MAX_WAIT: u64 = 60;

/// Separates the id of a prompt from the id of its session.
pub(crate) const ITEM_SEPARATOR: char = '@';

/// Header by which a client repeats a request without repeating its effect.
pub(crate) const IDEMPOTENCY_KEY: &str = "idempotency-key";

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
        (status = 402, description = "A budget is used up", body = ProblemDocument),
        (status = 404, description = "Unknown session", body = ProblemDocument),
        (status = 409, description = "Another prompt has this key", body = ProblemDocument),
        (status = 422, description = "Unknown model or invalid schema", body = ProblemDocument),
        (status = 429, description = "Too many turns run at once", body = ProblemDocument),
    ),
)]
pub(crate) async fn send(
    State(app): State<App>,
    who: Principal,
    Segments((session, thread)): Segments<(String, String)>,
    headers: HeaderMap,
    Body(new): Body<NewPrompt>,
) -> Result<(StatusCode, Json<AcceptedPrompt>), Problem> {
    let key = headers.get(IDEMPOTENCY_KEY).map(HeaderValue::as_bytes);
    let accepted = submit(&app, &who, &session, thread, key, new).await?;
    Ok((StatusCode::ACCEPTED, Json(accepted)))
}

/// Stores a prompt. A key identifies the prompt if it is sent again.
pub(super) async fn submit(
    app: &App,
    who: &Principal,
    session: &str,
    thread: String,
    key: Option<&[u8]>,
    new: NewPrompt,
) -> Result<AcceptedPrompt, Problem> {
    who.require(Scope::Prompt)?;
    let session = app.sessions.session(who, session).await?;
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
    if let Some(model) = &new.model {
        check_model_of(app, &session, model).await?;
    }
    if let Some(why) = new.schema.as_ref().and_then(schema_error) {
        return Err(unprocessable(
            "invalid_schema",
            format!("invalid schema: {why}"),
        ));
    }
    let prompt = Prompt {
        id: key.map(|key| prompt_id(&thread, key)),
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
    quotas::check(app, &session, prompt.id.as_ref()).await?;
    let id = app.engine().submit(&session.id, prompt).await?;
    Ok(AcceptedPrompt {
        id: item_id(&id, &session.id),
        prompt: id.to_string(),
        session: session.id.to_string(),
    })
}

/// The id of the prompt that a key stands for.
pub(crate) fn prompt_id(thread: &str, key: &[u8]) -> PromptId {
    let key = [thread.as_bytes(), b"\0", key].concat();
    let hash = Hash::digest(key).to_hex();
    // Always valid: short and printable.
    format!("key-{}", &hash[..32])
        .parse()
        .unwrap_or_else(|_| PromptId::new())
}

fn item_id(prompt: &PromptId, session: &SessionId) -> String {
    format!("{prompt}{ITEM_SEPARATOR}{session}")
}

/// The prompt and the session of an item that the caller can see.
async fn find_item(
    sessions: &Sessions,
    who: &Principal,
    item: &str,
) -> Result<(PromptId, Session), Problem> {
    // Both ids may contain the separator.
    for (at, _) in item.match_indices(ITEM_SEPARATOR) {
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
    #[schema(schema_with = schemas::error)]
    error: Option<ErrorInfo>,
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
    let exists = app.engine().prompt(&session.id, &prompt).await?.is_some();
    if !exists {
        return Err(Problem::not_found("prompt", &item));
    }
    let wait = Duration::from_secs(wait);
    let answer = tokio::select! {
        answer = app.engine().answer(&session.id, &prompt) => Some(answer?),
        () = tokio::time::sleep(wait) => app.engine().answer_if_ended(&session.id, &prompt).await?,
        // The client asks again, at another server.
        () = app.draining.cancelled() => None,
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
        }) => (Some(reason), Some(text), result, error),
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
    let suffix = format!("{ITEM_SEPARATOR}{}", session.id);
    let id = item.strip_suffix(&suffix).unwrap_or(&item);
    let unknown = || Problem::not_found("prompt", &item);
    let prompt = id.parse().map_err(|_| unknown())?;
    app.engine().withdraw_prompt(&session.id, &prompt).await?;
    Ok(StatusCode::NO_CONTENT)
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
