//! `/v1/chat/completions`.
//!
//! A client of this endpoint sends the whole conversation each time. The conversation is looked up
//! by the hash of its messages, so that it continues in the session that it has; a conversation
//! that Rye does not know starts a session whose first prompt contains the earlier messages.

use std::convert::Infallible;

use axum::Json;
use axum::extract::State;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::{Stream, stream};
use lillux::Hash;
use rye_engine::documents::{DocumentKind, DocumentWrite};
use rye_engine::protocol::{Gate, Session, Usage};
use rye_engine::{NewSession, Prompt};
use rye_store::Scope;
use serde::Deserialize;
use serde_json::{Value, json};

use super::input::{Conversation, Message, Speaker, messages};
use super::object::{Progress, ResponseId, ResponseInfo, conversation_id};
use super::responses::{
    continue_after, create_session, refuse_tools, schema_of, shutting_down, submit,
};
use super::stream::{ResponseEvent, ResponseStream};
use super::{models, unsupported};
use crate::api::new_session;
use crate::auth::Principal;
use crate::extract::Body;
use crate::problem::Problem;
use crate::server::App;

/// A request for a completion. Other parameters of OpenAI's API have no effect.
#[derive(Deserialize)]
pub(super) struct CreateCompletion {
    model: String,
    messages: Value,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    stream_options: Value,
    #[serde(default)]
    tools: Option<Vec<Value>>,
    #[serde(default)]
    functions: Option<Vec<Value>>,
    #[serde(default)]
    response_format: Value,
    #[serde(default)]
    n: Option<u64>,
    #[serde(default)]
    logprobs: Option<bool>,
}

/// `POST /v1/chat/completions`
pub(super) async fn create(
    State(app): State<App>,
    who: Principal,
    Body(request): Body<CreateCompletion>,
) -> Result<Response, Problem> {
    who.require(Scope::Prompt)?;
    refuse_tools(request.tools.as_deref().or(request.functions.as_deref()))?;
    if request.n.is_some_and(|n| n != 1) {
        return Err(unsupported("n", "there is one answer to a prompt"));
    }
    if request.logprobs == Some(true) {
        return Err(unsupported(
            "logprobs",
            "probabilities of tokens are not available",
        ));
    }
    let all = messages(&request.messages, "messages")?;
    let schema = schema_of(&request.response_format, "response_format")?;
    let target = models::find(&app, &request.model).await?;
    let caller = caller(&who, &request.model);
    let conversation = Conversation::new(all.clone(), "messages")?;
    let known = if conversation.history.is_empty() {
        None
    } else {
        let spoken = spoken(&all);
        let answered = &spoken[..spoken.len() - unanswered(&spoken)];
        find_session(&app, &who, &key(&caller, answered)).await?
    };
    let (session, text, attachments) = if let Some(session) = known {
        (session, conversation.text, conversation.attachments)
    } else {
        let new = NewSession {
            model: target.model.clone(),
            role: target.role.clone(),
            system: conversation.system.clone(),
            ..new_session(&app, &who, None, None)?
        };
        let session = create_session(&app, new).await?;
        let attachments = conversation.all_attachments();
        (session, conversation.text_with_history(), attachments)
    };
    let prompt = Prompt {
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
        model: request.model,
        conversation: conversation_id(&session),
        previous: None,
        instructions: conversation.system,
        is_background: false,
        format: Value::Null,
        metadata: Value::Null,
    };
    let completion = Completion {
        stream: ResponseStream::new(&app, session, prompt, info, None).await?,
        app,
        caller,
        messages: all,
        text: String::new(),
        has_message: false,
    };
    if request.stream.unwrap_or(false) {
        let with_usage = request.stream_options["include_usage"] == true;
        return Ok(Sse::new(chunks(completion, with_usage)).into_response());
    }
    Ok(Json(Box::pin(completion.finish()).await?).into_response())
}

/// Who asks which model: conversations of others are not found.
fn caller(who: &Principal, model: &str) -> Value {
    let token = who.token();
    json!([token.user, token.org, token.project, model])
}

/// The messages that count for the lookup: whether a client repeats the instructions or changes
/// them makes no difference.
fn spoken(messages: &[Message]) -> Vec<&Message> {
    let all = messages.iter();
    all.filter(|it| it.speaker != Speaker::System).collect()
}

/// The number of messages at the end that have no answer.
fn unanswered(spoken: &[&Message]) -> usize {
    let mut last = spoken.iter().rev();
    last.position(|it| it.speaker == Speaker::Assistant)
        .unwrap_or(spoken.len())
}

/// The key under which a conversation is found.
fn key(caller: &Value, messages: &[&Message]) -> String {
    let messages: Vec<_> = messages
        .iter()
        .map(|message| {
            let is_answer = message.speaker == Speaker::Assistant;
            json!([is_answer, message.text.trim(), message.attachments])
        })
        .collect();
    Hash::digest(json!([caller, messages]).to_string().as_bytes()).to_hex()
}

/// The session of a conversation, forked if it went on.
async fn find_session(app: &App, who: &Principal, key: &str) -> Result<Option<Session>, Problem> {
    let found = app
        .documents
        .get(DocumentKind::ChatConversation, key)
        .await?;
    let id = found.and_then(|it| Some(it.body["response"].as_str()?.to_owned()));
    let Some(id) = id.and_then(|id| ResponseId::parse(&id).ok()) else {
        return Ok(None);
    };
    // The session may be deleted.
    Ok(continue_after(app, who, &id).await.ok())
}

/// A completion that is being made.
struct Completion {
    app: App,
    stream: ResponseStream,
    caller: Value,
    messages: Vec<Message>,
    /// The answer so far.
    text: String,
    /// Whether the answer has a message already.
    has_message: bool,
}

impl Completion {
    /// The text that an event adds to the answer. Messages are separated by an empty line.
    fn text_of(&mut self, event: &ResponseEvent) -> Option<String> {
        match event.name {
            "response.content_part.added" => {
                let is_first = !std::mem::replace(&mut self.has_message, true);
                (!is_first).then(|| "\n\n".to_owned())
            }
            "response.output_text.delta" => event.data["delta"].as_str().map(str::to_owned),
            _ => None,
        }
    }

    /// More text of the answer; `None` at the end.
    async fn next(&mut self) -> Result<Option<String>, Problem> {
        while let Some(event) = self.stream.next().await? {
            if let Some(text) = self.text_of(&event) {
                self.text += &text;
                return Ok(Some(text));
            }
        }
        if let Some(notice) = self.notice() {
            self.text += &notice;
            return Ok(Some(notice));
        }
        Ok(None)
    }

    /// What the end of the answer says about a gate. Returned once.
    fn notice(&self) -> Option<String> {
        let Progress::Gate(gate) = self.stream.progress() else {
            return None;
        };
        let url = self.app.gate_url(gate);
        let notice = format!("[Waiting for a decision: {} {url}]", gate.title);
        if self.text.ends_with(&notice) {
            return None;
        }
        let separator = if self.text.is_empty() { "" } else { "\n\n" };
        Some(format!("{separator}{notice}"))
    }

    /// Remembers under which key the conversation continues. Fails if there is no answer.
    async fn end(&self) -> Result<(), Problem> {
        match self.stream.progress() {
            Progress::Queued | Progress::Running => return Err(shutting_down()),
            Progress::Gate(_) | Progress::Ended { .. } => {}
        }
        let error = self.stream.progress().error();
        if let Some(message) = error["message"].as_str() {
            let status = axum::http::StatusCode::BAD_GATEWAY;
            return Err(Problem::new(status, "turn_failed", message));
        }
        let answer = Message {
            speaker: Speaker::Assistant,
            text: self.text.clone(),
            attachments: Vec::new(),
        };
        let mut spoken = spoken(&self.messages);
        spoken.push(&answer);
        let key = key(&self.caller, &spoken);
        let kind = DocumentKind::ChatConversation;
        let body = json!({ "response": self.stream.info.id.to_string() });
        let write = match self.app.documents.get(kind, &key).await? {
            Some(existing) => DocumentWrite::replace(&existing, None, body),
            None => DocumentWrite::create(kind, key, None, body),
        };
        // If another request has just written it, both lead to the same conversation.
        self.app.documents.write(vec![write]).await?;
        Ok(())
    }

    /// Waits for the whole answer.
    async fn finish(mut self) -> Result<Value, Problem> {
        while self.next().await?.is_some() {}
        self.end().await?;
        let message = json!({ "role": "assistant", "content": self.text, "refusal": null });
        let mut completion = self.object("chat.completion");
        completion["choices"] = json!([{
            "index": 0,
            "message": message,
            "logprobs": null,
            "finish_reason": self.finish_reason(),
        }]);
        completion["usage"] = usage_json(self.stream.usage());
        completion["incomplete_details"] = self.incomplete_details();
        Ok(completion)
    }

    fn object(&self, kind: &str) -> Value {
        let info = &self.stream.info;
        json!({
            "id": format!("chatcmpl-{}", info.id),
            "object": kind,
            "created": info.created_at,
            "model": info.model,
            "choices": [],
            "system_fingerprint": null,
        })
    }

    fn chunk(&self, delta: &Value, finish_reason: Option<&str>) -> Value {
        let mut chunk = self.object("chat.completion.chunk");
        chunk["choices"] = json!([{
            "index": 0,
            "delta": delta,
            "logprobs": null,
            "finish_reason": finish_reason,
        }]);
        chunk
    }

    fn incomplete_details(&self) -> Value {
        let gate_url = |gate: &Gate| self.app.gate_url(gate);
        self.stream.progress().incomplete_details(gate_url)
    }

    fn finish_reason(&self) -> &'static str {
        match self.incomplete_details()["reason"].as_str() {
            Some("max_output_tokens" | "limit") => "length",
            Some("content_filter") => "content_filter",
            _ => "stop",
        }
    }
}

fn usage_json(usage: Usage) -> Value {
    json!({
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens.saturating_add(usage.output_tokens),
        "prompt_tokens_details": { "cached_tokens": usage.cached_tokens },
    })
}

/// The chunks of a streamed completion.
fn chunks(
    completion: Completion,
    with_usage: bool,
) -> impl Stream<Item = Result<Event, Infallible>> {
    let first = completion.chunk(&json!({ "role": "assistant", "content": "" }), None);
    let start = (Some(completion), vec![first]);
    stream::unfold(start, move |(completion, mut ready)| async move {
        // Most recent last.
        if let Some(chunk) = ready.pop() {
            return Some((Ok(sse_event(&chunk)), (completion, ready)));
        }
        let mut completion = completion?;
        match completion.next().await {
            Ok(Some(text)) => {
                let chunk = completion.chunk(&json!({ "content": text }), None);
                Some((Ok(sse_event(&chunk)), (Some(completion), ready)))
            }
            Ok(None) => {
                let ended = completion.end().await;
                let mut last = last_chunks(&completion, ended, with_usage);
                last.reverse();
                let chunk = last.pop()?;
                Some((Ok(sse_event(&chunk)), (None, last)))
            }
            Err(problem) => {
                let chunks = vec![Value::Null];
                Some((Ok(sse_event(&error_chunk(&problem))), (None, chunks)))
            }
        }
    })
}

/// The chunks at the end; null stands for `[DONE]`.
fn last_chunks(
    completion: &Completion,
    ended: Result<(), Problem>,
    with_usage: bool,
) -> Vec<Value> {
    if let Err(problem) = ended {
        return vec![error_chunk(&problem), Value::Null];
    }
    let mut last = completion.chunk(&json!({}), Some(completion.finish_reason()));
    last["incomplete_details"] = completion.incomplete_details();
    let mut chunks = vec![last];
    if with_usage {
        let mut chunk = completion.object("chat.completion.chunk");
        chunk["usage"] = usage_json(completion.stream.usage());
        chunks.push(chunk);
    }
    chunks.push(Value::Null);
    chunks
}

fn error_chunk(problem: &Problem) -> Value {
    json!({ "error": super::error_json(problem.status(), &problem.json()) })
}

fn sse_event(chunk: &Value) -> Event {
    match chunk {
        Value::Null => Event::default().data("[DONE]"),
        chunk => Event::default().data(chunk.to_string()),
    }
}
