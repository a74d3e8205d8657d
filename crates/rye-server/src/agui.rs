//! `/ag-ui`: the Agent-User Interaction protocol, for web applications.
//!
//! A thread is a session and a run is a prompt. A gate ends a run with an interrupt; the run that
//! resumes decides the gate and continues the prompt.

use std::collections::VecDeque;
use std::convert::Infallible;

use axum::extract::State;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::{Stream, stream};
use lillux::Hash;
use rye_engine::protocol::{Gate, PromptStatus, Session, SessionId};
use rye_engine::{NewSession, Prompt};
use rye_store::Scope;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::{NewDecision, decide_one, new_session, prompt_id};
use crate::auth::Principal;
use crate::extract::Body;
use crate::openai::{
    Conversation, Progress, ResponseEvent, ResponseId, ResponseInfo, ResponseStream, THREAD,
    conversation_id, messages, submit,
};
use crate::problem::Problem;
use crate::server::App;

/// Version of the protocol.
const PROTOCOL_VERSION: &str = "1.0";

/// What to run. The tools and the state of the page have no effect: tools run in Rye.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunInput {
    thread_id: String,
    run_id: String,
    #[serde(default)]
    messages: Vec<Value>,
    #[serde(default)]
    resume: Vec<Resume>,
}

/// An answer to an interrupt.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resume {
    interrupt_id: String,
    status: String,
    /// `true`, `false`, or `{"action", "value"}`.
    #[serde(default)]
    payload: Value,
    /// The signature of the person, as `receipt`.
    #[serde(default)]
    metadata: Value,
}

/// `POST /ag-ui`
pub(crate) async fn run(
    State(app): State<App>,
    who: Principal,
    Body(input): Body<RunInput>,
) -> Result<Response, Problem> {
    who.require(Scope::Prompt)?;
    let stream = if input.resume.is_empty() {
        Box::pin(start(&app, &who, &input)).await?
    } else {
        Box::pin(resume(&app, &who, &input)).await?
    };
    let run = Run {
        app,
        thread: input.thread_id,
        id: input.run_id,
        stream,
        ready: VecDeque::new(),
        is_over: false,
    };
    Ok(Sse::new(events(run)).into_response())
}

/// Sends the new messages of the user as a prompt.
async fn start(app: &App, who: &Principal, input: &RunInput) -> Result<ResponseStream, Problem> {
    let spoken = input.messages.iter().filter(|message| {
        let role = message["role"].as_str();
        // Results of tools and activities come from Rye itself.
        !matches!(role, Some("tool" | "activity" | "reasoning"))
    });
    let spoken: Vec<_> = spoken.cloned().map(without_binary_source).collect();
    let conversation = Conversation::new(messages(&Value::Array(spoken), "messages")?, "messages")?;
    let id = session_id(&input.thread_id);
    let known = app.engine().session_data(&id).await?;
    let new = NewSession {
        id: Some(id),
        system: conversation.system.clone(),
        ..new_session(app, who, None, None)?
    };
    let session = match &known {
        Some(session) => app.sessions.session(who, session.id.as_str()).await?,
        None => app.engine().ensure_session(new).await?,
    };
    let (text, attachments) = match known {
        Some(_) => (conversation.text, conversation.attachments),
        None => (
            conversation.text_with_history(),
            conversation.all_attachments(),
        ),
    };
    let prompt = Prompt {
        id: Some(prompt_id(THREAD, input.run_id.as_bytes())),
        attachments,
        ..Prompt::from(text)
    };
    let (id, prompt) = submit(app, who, &session, prompt).await?;
    ResponseStream::new(app, session.clone(), prompt, info(id, &session), None).await
}

/// Decides gates, and continues the prompt that waits for them.
async fn resume(app: &App, who: &Principal, input: &RunInput) -> Result<ResponseStream, Problem> {
    who.require(Scope::Decide)?;
    let id = session_id(&input.thread_id);
    let session = app.sessions.session(who, id.as_str()).await?;
    let snapshot = app.sessions.snapshot(who, id.as_str()).await?;
    let mut prompts = snapshot.prompts.iter();
    let prompt = prompts.find(|it| it.status == PromptStatus::Running);
    let Some(prompt) = prompt.cloned() else {
        let detail = "no run of this thread waits for a decision";
        let status = axum::http::StatusCode::CONFLICT;
        return Err(Problem::new(status, "nothing_to_resume", detail));
    };
    let response = ResponseId {
        after: 0,
        prompt: prompt.id.clone(),
        session: session.id.to_string(),
    };
    let info = info(response, &session);
    let mut stream = ResponseStream::new(app, session, prompt, info, None).await?;
    stream.catch_up().await?;
    let decisions: Result<Vec<_>, _> = input.resume.iter().map(decision).collect();
    let mut decided = Vec::new();
    for (answer, decision) in input.resume.iter().zip(decisions?) {
        decide_one(app, who, &answer.interrupt_id, decision).await?;
        decided.push(answer.interrupt_id.clone().into());
    }
    stream.continue_after(decided).await?;
    Ok(stream)
}

/// The decision that an answer stands for.
fn decision(answer: &Resume) -> Result<NewDecision, Problem> {
    let receipt = answer.metadata["receipt"].clone();
    let mut decision = match (&*answer.status, &answer.payload) {
        ("cancelled", _) | ("resolved", Value::Bool(false)) => json!({ "action": "deny" }),
        ("resolved", Value::Bool(true)) => json!({ "action": "approve" }),
        ("resolved", Value::Object(payload)) => json!(payload),
        _ => {
            let detail = "expected a payload with `action` and `value`, or true or false";
            return Err(Problem::invalid("invalid_body", detail));
        }
    };
    if !receipt.is_null() {
        decision["receipt"] = receipt;
    }
    serde_json::from_value(decision)
        .map_err(|error| Problem::invalid("invalid_body", format!("invalid payload: {error}")))
}

/// The session of a thread: the one with its id, or one named after it.
fn session_id(thread: &str) -> SessionId {
    thread.parse().unwrap_or_else(|_| {
        let hash = Hash::digest(thread.as_bytes()).to_hex();
        // Always valid: short and printable.
        format!("ag-ui-{}", &hash[..32])
            .parse()
            .unwrap_or_else(|_| SessionId::new())
    })
}

fn info(id: ResponseId, session: &Session) -> ResponseInfo {
    ResponseInfo {
        id,
        created_at: 0,
        model: String::new(),
        conversation: conversation_id(session),
        previous: None,
        instructions: None,
        is_background: false,
        format: Value::Null,
        metadata: Value::Null,
    }
}

/// A message whose images and files have the form of the OpenAI API.
fn without_binary_source(mut message: Value) -> Value {
    if let Some(parts) = message["content"].as_array_mut() {
        for part in parts {
            let source = &part["source"];
            if let (Some("data"), Some(data), Some(kind)) = (
                source["type"].as_str(),
                source["value"].as_str(),
                source["mimeType"].as_str(),
            ) {
                let file_data = format!("data:{kind};base64,{data}");
                let name = part["metadata"]["filename"].as_str().unwrap_or("file");
                *part = json!({ "type": "input_file", "filename": name, "file_data": file_data });
            }
        }
    }
    message
}

/// A run and its events.
struct Run {
    app: App,
    thread: String,
    id: String,
    stream: ResponseStream,
    ready: VecDeque<Value>,
    is_over: bool,
}

impl Run {
    /// The next event; `None` at the end.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.is_over {
                return None;
            }
            match self.stream.next().await {
                Ok(Some(event)) => self.translate(&event),
                Ok(None) => {
                    self.is_over = true;
                    let end = self.end().await;
                    self.ready.push_back(end);
                }
                Err(problem) => {
                    self.is_over = true;
                    self.ready.push_back(run_error(&problem));
                }
            }
        }
    }

    /// The first event.
    fn started(&self) -> Value {
        json!({
            "type": "RUN_STARTED",
            "threadId": self.thread,
            "runId": self.id,
            "protocolVersion": PROTOCOL_VERSION,
        })
    }

    fn translate(&mut self, event: &ResponseEvent) {
        let data = &event.data;
        let item = &data["item"];
        let message = &data["item_id"];
        let is_call = item["type"] == "mcp_call";
        match event.name {
            "response.content_part.added" => self.ready.push_back(json!({
                "type": "TEXT_MESSAGE_START", "messageId": message, "role": "assistant",
            })),
            "response.output_text.delta" => self.ready.push_back(json!({
                "type": "TEXT_MESSAGE_CONTENT", "messageId": message, "delta": data["delta"],
            })),
            "response.output_text.done" => self.ready.push_back(json!({
                "type": "TEXT_MESSAGE_END", "messageId": message,
            })),
            "response.output_item.done" if is_call => {
                let id = &item["id"];
                let result = match &item["error"] {
                    Value::Null => &item["output"],
                    error => error,
                };
                self.ready.extend([
                    json!({
                        "type": "TOOL_CALL_START",
                        "toolCallId": id,
                        "toolCallName": item["name"],
                    }),
                    json!({
                        "type": "TOOL_CALL_ARGS",
                        "toolCallId": id,
                        "delta": item["arguments"],
                    }),
                    json!({ "type": "TOOL_CALL_END", "toolCallId": id }),
                    json!({
                        "type": "TOOL_CALL_RESULT",
                        "messageId": format!("result_{}", id.as_str().unwrap_or_default()),
                        "toolCallId": id,
                        "content": result,
                        "role": "tool",
                    }),
                ]);
            }
            _ => {}
        }
    }

    /// The last event.
    async fn end(&self) -> Value {
        let outcome = match self.stream.progress() {
            Progress::Queued | Progress::Running => {
                return run_error(&crate::openai::shutting_down());
            }
            Progress::Gate(gate) => {
                let session = &self.stream.session().id;
                let all = self.app.engine().pending_gates_in_tree(session).await;
                let mut gates = all.unwrap_or_default();
                if gates.is_empty() {
                    gates.push((**gate).clone());
                }
                let interrupts: Vec<_> = gates.iter().map(|it| self.interrupt(it)).collect();
                json!({ "type": "interrupt", "interrupts": interrupts })
            }
            progress @ Progress::Ended { .. } => {
                let error = progress.error();
                if let Some(message) = error["message"].as_str() {
                    return json!({
                        "type": "RUN_ERROR", "message": message, "code": "turn_failed",
                    });
                }
                let name = if progress.is_cancelled() {
                    "cancelled"
                } else {
                    "success"
                };
                json!({ "type": name })
            }
        };
        json!({
            "type": "RUN_FINISHED",
            "threadId": self.thread,
            "runId": self.id,
            "outcome": outcome,
        })
    }

    /// A gate as an interrupt. Its metadata has what a decision is about and, if it is signed, what
    /// is signed.
    fn interrupt(&self, gate: &Gate) -> Value {
        let actions: Vec<_> = gate.actions.iter().map(|action| &action.id).collect();
        let mut action = json!({ "type": "string" });
        if !actions.is_empty() {
            action["enum"] = json!(actions);
        }
        let mut interrupt = json!({
            "id": gate.id,
            "reason": gate.kind,
            "message": gate.title,
            "responseSchema": {
                "type": "object",
                "properties": { "action": action, "value": {} },
                "required": ["action"],
            },
            "metadata": { "gate": gate, "url": self.app.gate_url(gate) },
        });
        if let Some(at) = gate.expires_at {
            interrupt["expiresAt"] =
                lillux::time::format_rfc3339((at.0 / 1000).cast_signed()).into();
        }
        interrupt
    }
}

fn run_error(problem: &Problem) -> Value {
    let problem = problem.json();
    json!({ "type": "RUN_ERROR", "message": problem["detail"], "code": problem["code"] })
}

/// The events as Server-Sent Events.
fn events(run: Run) -> impl Stream<Item = Result<Event, Infallible>> {
    let started = run.started();
    let start = (run, Some(started));
    stream::unfold(start, |(mut run, first)| async move {
        let event = match first {
            Some(first) => first,
            None => run.next().await?,
        };
        let event = Event::default().data(event.to_string());
        Some((Ok(event), (run, None)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: &str, payload: Value) -> Resume {
        Resume {
            interrupt_id: "g".to_owned(),
            status: status.to_owned(),
            payload,
            metadata: Value::Null,
        }
    }

    #[test]
    fn answer_of_an_interrupt_is_a_decision() {
        for (status, payload, is_valid) in [
            ("resolved", json!(true), true),
            ("resolved", json!(false), true),
            ("cancelled", Value::Null, true),
            (
                "resolved",
                json!({ "action": "approve", "value": { "a": 1 } }),
                true,
            ),
            ("resolved", Value::Null, false),
            ("resolved", json!("approve"), false),
            ("resolved", json!({ "value": 1 }), false),
            ("resolved", json!({ "action": "approve", "by": "x" }), false),
            ("later", json!(true), false),
        ] {
            let text = format!("{status} {payload}");
            assert_eq!(
                decision(&answer(status, payload)).is_ok(),
                is_valid,
                "{text}"
            );
        }
    }

    #[test]
    fn thread_with_any_id_has_a_session() {
        assert_eq!(session_id("order-17").as_str(), "order-17");
        let other = session_id("a b\n");
        assert!(other.as_str().starts_with("ag-ui-"));
        assert_eq!(other, session_id("a b\n"));
    }
}
