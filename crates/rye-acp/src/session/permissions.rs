//! Gates: asking the editor, and passing its answers on.

use agent_client_protocol::v1::Responder;
use agent_client_protocol::v1::schema::{
    Diff, PermissionOption, PermissionOptionKind, PromptResponse, RequestPermissionOutcome,
    RequestPermissionRequest, RequestPermissionResponse, SessionUpdate, ToolCall, ToolCallContent,
    ToolCallId, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields,
};
use agent_client_protocol::{Error, ErrorCode};
use rye_engine::protocol::{ActionId, EventKind, Gate, GateId, PromptId, Resolution, SessionId};
use rye_engine::store::{PostOutcome, SessionFilter};
use rye_engine::{DecideError, Decision, Engine};
use rye_host::engine::answer_command;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::SessionTask;
use super::prompts::{CHANNEL, PendingPrompt};
use crate::gates;
use crate::tool_call::{Request, absolute};
use crate::transcript::{call_id, note};

/// Key of the context of a question: the likely answers.
const OPTIONS: &str = "options";

/// The editor's answer to a permission request; none if the request was withdrawn.
pub(super) struct PermissionAnswer {
    gate: Box<Gate>,
    outcome: Option<Result<RequestPermissionResponse, Error>>,
}

/// A gate that the editor is asked about.
pub(super) struct AskedGate {
    /// Withdraws the request.
    withdrawn: CancellationToken,
    /// The call that the editor shows only for the sake of the gate.
    call: Option<ToolCallId>,
}

/// A question that the next prompt answers.
pub(super) struct Question {
    gate: Gate,
    /// The prompt whose turn waits.
    prompt: PromptId,
}

impl SessionTask {
    /// Asks about the gates that were pending before the session was opened here.
    pub(super) async fn ask_pending_gates(&mut self) {
        let running = SessionFilter {
            parent: Some(self.id.clone()),
            limit: usize::MAX,
            ..SessionFilter::default()
        };
        for task in self.engine().sessions(running).await.unwrap_or_default() {
            self.follow_task(task.id);
        }
        let pending = self.engine().pending_gates_in_tree(&self.id).await;
        for gate in pending.unwrap_or_default() {
            self.ask(gate).await;
        }
    }

    /// Applies an event that concerns a gate or a task, of this session or of a task.
    pub(super) async fn on_gate_event(&mut self, kind: EventKind) {
        match kind {
            EventKind::DecisionGate { gate } => self.ask(*gate).await,
            EventKind::DecisionGateResolved { gate, resolution } => {
                self.on_gate_closed(&gate, Some(&resolution));
            }
            EventKind::DecisionGateExpired { gate }
            | EventKind::DecisionGateWithdrawn { gate, .. } => self.on_gate_closed(&gate, None),
            EventKind::TaskStart { session } => self.follow_task(session),
            _ => {}
        }
    }

    /// Asks the user about a gate, once.
    async fn ask(&mut self, gate: Gate) {
        if self.asked.contains_key(&gate.id) {
            return;
        }
        // The event may be old.
        let stored = self.engine().gate(&gate.id).await;
        let Ok(Some(gate)) = stored.map(|gate| gate.filter(|it| it.status.is_pending())) else {
            return;
        };
        // Gates of other threads wait for those who work there.
        let owner = self.engine().owning_prompt(&gate, &self.id).await;
        let Ok(Some((thread, prompt))) = owner else {
            return;
        };
        if Some(&thread) != self.thread.as_ref() {
            return;
        }
        if self
            .caller
            .as_ref()
            .is_some_and(|caller| !caller.can_decide)
        {
            self.send(waiting_note(&gate));
            return;
        }
        let withdrawn = CancellationToken::new();
        let mut asked = AskedGate {
            withdrawn: withdrawn.clone(),
            call: None,
        };
        let Some(options) = gates::options(&gate).or_else(|| question_options(&gate)) else {
            self.asked.insert(gate.id.clone(), asked);
            return self.ask_in_text(gate, prompt);
        };
        // The editor does not know the calls of tasks, and a limit is no call at all.
        let is_own = gate.origin.session == self.id;
        let request = self.transcript.request(&gate.origin.call);
        let call = if let Some(request) = request.filter(|_| is_own) {
            let preview = preview(self.engine(), &self.id, &request).await;
            gates::call(&gate, call_id(&gate.origin.call), Some(&request), preview)
        } else {
            let id = ToolCallId::new(gate.id.as_str());
            let call = gates::call(&gate, id.clone(), None, Vec::new());
            self.show_call(&call, &gate.title);
            asked.call = Some(id);
            call
        };
        self.asked.insert(gate.id.clone(), asked);
        let request = RequestPermissionRequest::new(self.name.clone(), call, options);
        let answer = self.connection.send_request(request).block_task();
        let gate = Box::new(gate);
        self.permissions.push(Box::pin(async move {
            let outcome = withdrawn.run_until_cancelled(answer).await;
            PermissionAnswer { gate, outcome }
        }));
    }

    /// Shows a call that the editor does not know.
    fn show_call(&self, call: &ToolCallUpdate, title: &str) {
        let fields = &call.fields;
        let shown = ToolCall::new(call.tool_call_id.clone(), title)
            .kind(fields.kind.unwrap_or_default())
            .content(fields.content.clone().unwrap_or_default());
        self.send(SessionUpdate::ToolCall(shown));
    }

    /// Asks a question in the conversation: the next prompt is the answer.
    fn ask_in_text(&mut self, gate: Gate, prompt: PromptId) {
        let body = if gate.body.is_empty() {
            String::new()
        } else {
            format!("\n\n{}", gate.body)
        };
        self.send(note(&format!("**{}**{body}", gate.title)));
        self.suspend_prompt(&prompt);
        self.question = Some(Question { gate, prompt });
    }

    /// Passes a prompt on as the answer to a question.
    pub(super) async fn answer(
        &mut self,
        question: Question,
        text: String,
        responder: Responder<PromptResponse>,
    ) {
        let Question { gate, prompt } = question;
        self.prompts
            .push(PendingPrompt::new(prompt.clone(), responder));
        let value = Value::String(text);
        let decided = self.decide(&gate, "answer".into(), value).await;
        if let Err(error) = decided {
            self.send(note(&format!("**Error:** {error}")));
            self.suspend_prompt(&prompt);
            self.question = Some(Question { gate, prompt });
        }
    }

    /// Passes the editor's answer on.
    pub(super) async fn on_answer(&mut self, answer: PermissionAnswer) {
        let PermissionAnswer { gate, outcome } = answer;
        let option = match outcome {
            // The gate is closed.
            None => return,
            Some(Ok(response)) => match response.outcome {
                RequestPermissionOutcome::Selected(selected) => selected.option_id,
                // The user left without an answer, which is no decision.
                _ => return self.abort().await,
            },
            Some(Err(error)) => return self.on_request_failed(&gate, &error),
        };
        let (action, value) = match gates::options(&gate) {
            Some(_) => (ActionId::from(option.0.to_string()), Value::Null),
            None if &*option.0 == ActionId::Deny.as_str() => (ActionId::Deny, Value::Null),
            None => ("answer".into(), Value::String(option.0.to_string())),
        };
        if let Err(error) = self.decide(&gate, action, value).await {
            self.send(note(&format!("**Error:** {error}")));
            // The decision is still needed.
            self.asked.remove(&gate.id);
            if !matches!(error, DecideError::Store(_)) {
                self.ask(*gate).await;
            }
        }
    }

    /// The editor cannot ask; the gate stays pending.
    fn on_request_failed(&self, gate: &Gate, error: &Error) {
        if error.code == ErrorCode::REQUEST_CANCELLED {
            return;
        }
        tracing::debug!(gate = gate.id.as_str(), %error, "the editor did not ask");
        self.send(waiting_note(gate));
    }

    async fn decide(
        &mut self,
        gate: &Gate,
        action: ActionId,
        value: Value,
    ) -> Result<(), DecideError> {
        let decision = Decision {
            value,
            ..Decision::new(action, self.user_name(), CHANNEL)
        };
        let outcome = self.engine().decide(&gate.id, decision).await?;
        if let PostOutcome::Conflict(first) = outcome {
            let text = format!("Already decided by {}: {}.", first.by, first.action);
            self.send(note(&text));
        }
        Ok(())
    }

    /// A gate was decided, here or elsewhere, or is obsolete.
    fn on_gate_closed(&mut self, id: &GateId, resolution: Option<&Resolution>) {
        if self.question.as_ref().is_some_and(|it| it.gate.id == *id) {
            self.question = None;
        }
        // It stays known, so that an old event does not ask again.
        let Some(asked) = self.asked.get_mut(id) else {
            return;
        };
        asked.withdrawn.cancel();
        if let Some(call) = asked.call.take() {
            let is_approved = resolution.is_some_and(|it| it.action != ActionId::Deny);
            let fields = ToolCallUpdateFields::new().status(if is_approved {
                ToolCallStatus::Completed
            } else {
                ToolCallStatus::Failed
            });
            let update = ToolCallUpdate::new(call, fields);
            self.send(SessionUpdate::ToolCallUpdate(update));
        }
    }
}

/// How to decide elsewhere.
fn waiting_note(gate: &Gate) -> SessionUpdate {
    let command = answer_command(gate);
    let text = format!("Waiting for a decision: {}. Run `{command}`.", gate.title);
    note(&text)
}

/// What a call is about to change.
async fn preview(
    engine: &Engine,
    session: &SessionId,
    request: &Request<'_>,
) -> Vec<ToolCallContent> {
    let Some((path, content)) = request.written_file() else {
        return request.preview();
    };
    let old = match engine.session(session) {
        Some(open) => open.sandbox().read(path).await.ok(),
        None => None,
    };
    let old = old.and_then(|bytes| String::from_utf8(bytes).ok());
    let path = absolute(request.workspace, path);
    vec![Diff::new(path, content).old_text(old).into()]
}

/// The likely answers to a question, as options.
fn question_options(gate: &Gate) -> Option<Vec<PermissionOption>> {
    let answers = gate.context.get(OPTIONS)?.as_array()?;
    let answers = answers.iter().filter_map(Value::as_str).zip(1..);
    let option = |(answer, number): (&str, usize)| {
        let kind = PermissionOptionKind::AllowOnce;
        PermissionOption::new(number.to_string(), answer, kind)
    };
    let decline = PermissionOption::new(
        ActionId::Deny.as_str().to_owned(),
        "Do not answer",
        PermissionOptionKind::RejectOnce,
    );
    Some(answers.map(option).chain([decline]).collect())
}
