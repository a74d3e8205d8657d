//! `/v1/responses`.

use std::convert::Infallible;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::{Stream, stream};
use lillux::Hash;
use rye_engine::protocol::{Author, PromptStatus, QueuedPrompt, Session, SessionId};
use rye_engine::store::CommandKind;
use rye_engine::{NewSession, Prompt, WithdrawError};
use rye_store::Scope;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::input::{Conversation, messages};
use super::object::{ResponseId, ResponseInfo, conversation_id, conversation_session};
use super::stream::ResponseStream;
use super::{invalid, models, unsupported};
use crate::api::{IDEMPOTENCY_KEY, check_quotas, new_session, prompt_id};
use crate::auth::Principal;
use crate::extract::{Body, Params, Segments};
use crate::problem::Problem;
use crate::server::App;

/// Interval at which a cancelled response is checked.
const CANCEL_INTERVAL: Duration = Duration::from_millis(200);

/// The thread of a conversation.
pub(crate) const THREAD: &str = "default";

/// A request for a response. Other parameters of OpenAI's API have no effect.
#[derive(Deserialize)]
pub(super) struct CreateResponse {
    model: Option<String>,
    #[serde(default)]
    input: Value,
    instructions: Option<String>,
    previous_response_id: Option<String>,
    #[serde(default)]
    conversation: Value,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    background: Option<bool>,
    #[serde(default)]
    tools: Option<Vec<Value>>,
    #[serde(default)]
    text: Value,
    #[serde(default)]
    metadata: Option<Map<String, Value>>,
    #[serde(default)]
    prompt: Value,
}

/// `POST /v1/responses`
pub(super) async fn create(
    State(app): State<App>,
    who: Principal,
    headers: HeaderMap,
    Body(request): Body<CreateResponse>,
) -> Result<Response, Problem> {
    who.require(Scope::Prompt)?;
    refuse_tools(request.tools.as_deref())?;
    if !request.prompt.is_null() {
        return Err(unsupported(
            "prompt",
            "stored prompts are not supported; use a role as the model",
        ));
    }
    let conversation = Conversation::new(messages(&request.input, "input")?, "input")?;
    let schema = schema_of(&request.text["format"], "text.format")?;
    let target = models::find(&app, request.model.as_deref().unwrap_or("rye")).await?;
    let session = session_of(&app, &who, &request).await?;
    let is_new = session.is_none();
    let instructions = instructions(&request, &conversation);
    let key = headers.get(IDEMPOTENCY_KEY);
    let session = if let Some(session) = session {
        session
    } else {
        let new = NewSession {
            model: target.model.clone(),
            role: target.role.clone(),
            system: instructions.clone(),
            metadata: request.metadata.clone().unwrap_or_default(),
            id: key.map(|key| keyed_session(&who, key.as_bytes())),
            ..new_session(&app, &who, None, None)?
        };
        create_session(&app, new).await?
    };
    let (text, attachments) = if is_new {
        (
            conversation.text_with_history(),
            conversation.all_attachments(),
        )
    } else {
        (conversation.text.clone(), conversation.attachments.clone())
    };
    let prompt = Prompt {
        id: key.map(|key| prompt_id(THREAD, key.as_bytes())),
        attachments,
        model: target.model,
        role: target.role,
        schema,
        ..Prompt::from(text)
    };
    let (id, prompt) = submit(&app, &who, &session, prompt).await?;
    let info = ResponseInfo {
        id,
        created_at: prompt.created_at.0 / 1000,
        model: request.model.unwrap_or_else(|| "rye".to_owned()),
        conversation: conversation_id(&session),
        previous: request.previous_response_id,
        instructions,
        is_background: request.background.unwrap_or(false),
        format: format_json(&request.text["format"]),
        metadata: request.metadata.map_or_else(|| json!({}), Value::Object),
    };
    let is_background = info.is_background;
    let mut stream = ResponseStream::new(&app, session, prompt, info, None).await?;
    if request.stream.unwrap_or(false) {
        return Ok(sse(stream));
    }
    if !is_background {
        while stream.next().await?.is_some() {}
        if app.draining.is_cancelled() {
            return Err(shutting_down());
        }
    }
    Ok(Json(stream.response()).into_response())
}

/// Fails if the client wants to run tools itself.
pub(super) fn refuse_tools(tools: Option<&[Value]>) -> Result<(), Problem> {
    match tools {
        None | Some([]) => Ok(()),
        Some(_) => Err(unsupported(
            "tools",
            "tools of clients are not supported; the agent uses the tools that are installed in Rye",
        )),
    }
}

/// The server stops before the response is complete.
pub(crate) fn shutting_down() -> Problem {
    let detail = "the server shuts down; the response continues, and you can get it later";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "shutting_down", detail).retry_after(1)
}

/// The JSON Schema of the required result, from a response format.
pub(super) fn schema_of(format: &Value, param: &str) -> Result<Option<Value>, Problem> {
    let schema = match format["type"].as_str() {
        None | Some("text") => return Ok(None),
        Some("json_object") => json!({ "type": "object" }),
        // Chat completions nest the schema once more.
        Some("json_schema") => match &format["schema"] {
            Value::Null => format["json_schema"]["schema"].clone(),
            schema => schema.clone(),
        },
        Some(_) => return Err(invalid(param, "expected text, json_object or json_schema")),
    };
    match rye_engine::result::schema_error(&schema) {
        None => Ok(Some(schema)),
        Some(why) => Err(invalid(param, &format!("invalid schema: {why}"))),
    }
}

fn format_json(format: &Value) -> Value {
    match format {
        Value::Null => json!({ "type": "text" }),
        format => format.clone(),
    }
}

/// Instructions of the request and of its system messages.
fn instructions(request: &CreateResponse, conversation: &Conversation) -> Option<String> {
    let all = [
        request.instructions.as_deref(),
        conversation.system.as_deref(),
    ];
    let all: Vec<_> = all.into_iter().flatten().collect();
    (!all.is_empty()).then(|| all.join("\n\n"))
}

/// The session that a request continues.
async fn session_of(
    app: &App,
    who: &Principal,
    request: &CreateResponse,
) -> Result<Option<Session>, Problem> {
    let conversation = match &request.conversation {
        Value::Null => None,
        Value::String(id) => Some(id.as_str()),
        Value::Object(object) => object.get("id").and_then(Value::as_str),
        _ => return Err(invalid("conversation", "expected an id")),
    };
    match (conversation, &request.previous_response_id) {
        (Some(_), Some(_)) => Err(invalid(
            "conversation",
            "cannot be combined with `previous_response_id`",
        )),
        (Some(id), None) => {
            let session = conversation_session(id)?;
            app.sessions.session(who, session).await.map(Some)
        }
        (None, Some(id)) => continue_after(app, who, &ResponseId::parse(id)?)
            .await
            .map(Some),
        (None, None) => Ok(None),
    }
}

/// The session in which a response is the last one: its own, or a fork if its session went on.
pub(super) async fn continue_after(
    app: &App,
    who: &Principal,
    id: &ResponseId,
) -> Result<Session, Problem> {
    let (session, prompt) = find(app, who, id).await?;
    let snapshot = app.sessions.snapshot(who, session.id.as_str()).await?;
    let Some(thread) = snapshot.threads.iter().find(|it| it.id == prompt.thread) else {
        return Ok(session);
    };
    let answer = prompt.end.as_ref().and_then(|end| end.answer.as_ref());
    match (answer, &thread.leaf) {
        (Some(answer), Some(leaf)) if answer != leaf => {
            let fork = app.engine().fork(&session.id, Some(answer)).await?;
            app.sessions.session(who, fork.as_str()).await
        }
        _ => Ok(session),
    }
}

/// Creates a session, unless one with this id exists.
pub(super) async fn create_session(app: &App, new: NewSession) -> Result<Session, Problem> {
    let id = Some(new.id.clone().unwrap_or_else(SessionId::new));
    Ok(app
        .engine()
        .ensure_session(NewSession { id, ..new })
        .await?)
}

/// The id of the session that a request with a key starts: the same if it is repeated.
fn keyed_session(who: &Principal, key: &[u8]) -> SessionId {
    let token = who.token();
    let owner = json!(["responses", token.id, token.user, token.org]).to_string();
    let hash = Hash::digest([owner.as_bytes(), b"\0", key].concat()).to_hex();
    // Always valid: short and printable.
    let id = format!("key-{}", &hash[..32]).parse();
    id.unwrap_or_else(|_| SessionId::new())
}

/// Stores a prompt, and returns it with the id of its response.
pub(crate) async fn submit(
    app: &App,
    who: &Principal,
    session: &Session,
    prompt: Prompt,
) -> Result<(ResponseId, QueuedPrompt), Problem> {
    if prompt.content.trim().is_empty() && prompt.attachments.is_empty() {
        return Err(invalid("input", "the prompt is empty"));
    }
    let engine = app.engine();
    // Before the prompt is posted, so that all its events come later. A repeated request has the
    // same id.
    let after = if prompt.id.is_some() {
        0
    } else {
        engine.last_event(&session.id).await?
    };
    let prompt = Prompt {
        author: Some(Author {
            name: who.name().to_owned(),
            channel: Some("openai".to_owned()),
        }),
        thread: Some(THREAD.to_owned()),
        ..prompt
    };
    check_quotas(app, session, prompt.id.as_ref()).await?;
    let id = engine.submit(&session.id, prompt).await?;
    let stored = engine.prompt(&session.id, &id).await?;
    let stored = stored.ok_or_else(|| Problem::not_found("prompt", id.as_str()))?;
    let id = ResponseId {
        after,
        prompt: id,
        session: session.id.to_string(),
    };
    Ok((id, stored))
}

/// The session and the prompt of a response.
async fn find(
    app: &App,
    who: &Principal,
    id: &ResponseId,
) -> Result<(Session, QueuedPrompt), Problem> {
    let unknown = || Problem::not_found("response", &id.to_string());
    let session = app.sessions.session(who, &id.session).await;
    let session = session.map_err(|_| unknown())?;
    let prompt = app.engine().prompt(&session.id, &id.prompt).await?;
    Ok((session, prompt.ok_or_else(unknown)?))
}

/// How to return a response.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ShowParams {
    #[serde(default)]
    stream: bool,
    starting_after: Option<u64>,
}

/// `GET /v1/responses/{id}`
pub(super) async fn show(
    State(app): State<App>,
    who: Principal,
    Segments(id): Segments<String>,
    Params(params): Params<ShowParams>,
) -> Result<Response, Problem> {
    who.require(Scope::Read)?;
    let mut stream = open(&app, &who, &id, params.starting_after).await?;
    if params.stream {
        return Ok(sse(stream));
    }
    stream.catch_up().await?;
    Ok(Json(stream.response()).into_response())
}

/// `POST /v1/responses/{id}/cancel`
pub(super) async fn cancel(
    State(app): State<App>,
    who: Principal,
    Segments(id): Segments<String>,
) -> Result<Json<Value>, Problem> {
    who.require(Scope::Prompt)?;
    let response = ResponseId::parse(&id)?;
    let engine = app.engine();
    loop {
        let (session, prompt) = find(&app, &who, &response).await?;
        match prompt.status {
            PromptStatus::Waiting => {
                match engine.withdraw_prompt(&session.id, &prompt.id).await {
                    // It has started or ended since.
                    Ok(()) | Err(WithdrawError::Running(_) | WithdrawError::Ended(_)) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            PromptStatus::Running => {
                let command = engine.command(&session.id, Some(THREAD), CommandKind::Abort);
                command.await?;
            }
            _ => break,
        }
        // A prompt that starts before it is withdrawn must be aborted.
        tokio::select! {
            answer = engine.answer(&session.id, &prompt.id) => drop(answer?),
            () = tokio::time::sleep(CANCEL_INTERVAL) => {}
            () = app.draining.cancelled() => return Err(shutting_down()),
        }
    }
    let mut stream = open(&app, &who, &id, None).await?;
    stream.catch_up().await?;
    Ok(Json(stream.response()))
}

/// `GET /v1/responses/{id}/input_items`
pub(super) async fn input_items(
    State(app): State<App>,
    who: Principal,
    Segments(id): Segments<String>,
) -> Result<Json<Value>, Problem> {
    who.require(Scope::Read)?;
    let (_, prompt) = find(&app, &who, &ResponseId::parse(&id)?).await?;
    let item_id = format!("msg_{}", prompt.id);
    let item = json!({
        "id": item_id,
        "type": "message",
        "role": "user",
        "status": "completed",
        "content": [{ "type": "input_text", "text": prompt.content }],
    });
    Ok(Json(json!({
        "object": "list",
        "data": [item],
        "first_id": item_id,
        "last_id": item_id,
        "has_more": false,
    })))
}

/// The events of a stored response.
async fn open(
    app: &App,
    who: &Principal,
    id: &str,
    starting_after: Option<u64>,
) -> Result<ResponseStream, Problem> {
    let id = ResponseId::parse(id)?;
    let (session, prompt) = find(app, who, &id).await?;
    let model = prompt.role.clone().or_else(|| prompt.model.clone());
    let info = ResponseInfo {
        id,
        created_at: prompt.created_at.0 / 1000,
        model: model.unwrap_or_else(|| "rye".to_owned()),
        conversation: conversation_id(&session),
        previous: None,
        instructions: session.system.clone(),
        is_background: false,
        format: json!({ "type": "text" }),
        metadata: Value::Object(session.metadata.clone()),
    };
    Box::pin(ResponseStream::new(
        app,
        session,
        prompt,
        info,
        starting_after,
    ))
    .await
}

/// The events as Server-Sent Events. An error ends the stream with an event; the client can resume.
fn sse(stream: ResponseStream) -> Response {
    Sse::new(events(stream)).into_response()
}

fn events(stream: ResponseStream) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(Some(stream), |stream| async move {
        let mut stream = stream?;
        let (name, data, next) = match stream.next().await {
            Ok(Some(event)) => (event.name, event.data, Some(stream)),
            Ok(None) => return None,
            Err(problem) => {
                let problem = problem.json();
                let data = json!({
                    "type": "error",
                    "code": problem["code"],
                    "message": problem["detail"],
                    "param": null,
                    "sequence_number": 0,
                });
                ("error", data, None)
            }
        };
        let event = Event::default().event(name).data(data.to_string());
        Some((Ok(event), next))
    })
}
