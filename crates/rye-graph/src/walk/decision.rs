//! Decision nodes: open a gate and wait for the user.

use std::sync::Arc;

use rye_engine::audit::CHAIN_HASH;
use rye_engine::record;
use rye_engine::store::SessionStore;
use rye_protocol::json;
use rye_protocol::{
    Action, CallId, EffectClass, Gate, GateId, GateKind, GateOrigin, GateStatus, NodeError,
    NodeOutcome, PromptId, Resolution, RunEvent,
};
use serde_json::{Map, Value, json};

use super::{InterruptedStart, NodeResult, Walker};
use crate::definition::{Decision, ErrorPolicy, Node};
use crate::error::RecordError;
use crate::journal::Journal;
use crate::path::Scope;

/// Answers to the question about an interrupted call.
const INTERRUPTED_ACTIONS: [(&str, &str); 3] = [
    ("run_again", "Run it again"),
    ("skip", "Skip it"),
    ("result", "Continue with a result that you provide"),
];

/// The user's decision on an interrupted call.
pub(super) enum InterruptedChoice {
    RunAgain,
    UseResult(Value),
    Skip,
}

/// Error of a call whose outcome is unknown.
pub(super) fn interrupted_error() -> NodeError {
    let message = "the process died during the call; whether the call had an effect is unknown";
    NodeError::new("interrupted", message)
}

/// A gate to open.
pub(super) struct GateRequest {
    key: String,
    kind: GateKind,
    title: String,
    body: String,
    actions: Vec<(String, String)>,
    expires_at: Option<rye_protocol::Millis>,
}

impl<'g> Walker<'g> {
    pub(super) async fn decision(
        &mut self,
        node: &'g Node,
        decision: &'g Decision,
        interrupted: Option<InterruptedStart>,
    ) -> Result<NodeResult, RecordError> {
        let scope = Scope::new(&self.state, &self.inputs);
        let (title, body) = (
            decision.title.render_for_user(&scope),
            decision.body.render_for_user(&scope),
        );
        let missing = scope.missing.into_inner();
        self.warn(node, missing);
        self.record_begin(node, EffectClass::Idempotent, &Value::Null, interrupted);
        let deadline = decision.expires_in.map(|time| {
            let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            rye_protocol::Millis(record::now().0.saturating_add(time))
        });
        let request = GateRequest {
            key: node.name.clone(),
            kind: if decision.is_approval {
                GateKind::Approval
            } else {
                GateKind::Question
            },
            title: title.replace('\n', " "),
            body,
            actions: decision.actions.clone(),
            expires_at: deadline,
        };
        let result = match self.ask_and_wait(&request).await? {
            Ok(Resolution { action, by, .. }) if decision.is_approval && action == "deny" => {
                Err(NodeError::new("denied", format!("denied by {by}")))
            }
            Ok(Resolution {
                action, value, by, ..
            }) => Ok(json!({ "action": action, "value": value, "by": by })),
            Err(error) => Err(error),
        };
        Ok(NodeResult::new(result))
    }

    /// Decides what to do with an interrupted call; `None` means to repeat it.
    pub(super) async fn resolve_interrupted(
        &mut self,
        node: &Node,
        interrupted: InterruptedStart,
    ) -> Result<Option<NodeResult>, RecordError> {
        let InterruptedStart { effect, starts } = interrupted;
        let choice = if self.asks_about(node, effect) {
            self.ask_about_interrupted(&node.name, starts).await?
        } else {
            InterruptedChoice::Skip
        };
        Ok(match choice {
            InterruptedChoice::RunAgain => None,
            InterruptedChoice::UseResult(value) => Some(NodeResult::new(Ok(value))),
            InterruptedChoice::Skip => {
                let mut done = NodeResult::new(self.skipped(node));
                done.outcome = NodeOutcome::Interrupted;
                Some(done)
            }
        })
    }

    /// Whether to ask the user about an interrupted call. Without a handler for the error, the run
    /// would only fail, and the next attempt would repeat the call without asking.
    pub(super) fn asks_about(&self, node: &Node, effect: EffectClass) -> bool {
        effect == EffectClass::Ask || !self.handles_errors(node)
    }

    /// The result of an interrupted call that is skipped: the error, if the graph handles it.
    pub(super) fn skipped(&self, node: &Node) -> Result<Value, NodeError> {
        if self.handles_errors(node) {
            Err(interrupted_error())
        } else {
            Ok(Value::Null)
        }
    }

    fn handles_errors(&self, node: &Node) -> bool {
        node.on_error.is_some() || self.graph.error_policy == ErrorPolicy::Continue
    }

    /// Asks the user what to do with an interrupted call.
    pub(super) async fn ask_about_interrupted(
        &mut self,
        what: &str,
        starts: u32,
    ) -> Result<InterruptedChoice, RecordError> {
        let resolution = self
            .ask_and_wait(&interrupted_gate(what, what, starts))
            .await?;
        Ok(interrupted_choice(resolution))
    }

    /// Opens a gate and waits until it is closed. The gate survives a restart.
    async fn ask_and_wait(
        &mut self,
        request: &GateRequest,
    ) -> Result<Result<Resolution, NodeError>, RecordError> {
        loop {
            let (store, gate) = match self.open_gate(request).await? {
                Ok(opened) => opened,
                Err(error) => return Ok(Err(error)),
            };
            let status = record::wait_closed(&*store, &gate).await?;
            if self.accepts(&gate, &status) {
                return Ok(self.record_closed(&gate, status));
            }
        }
    }

    /// Whether a closed gate counts: a decision needs a valid receipt.
    pub(super) fn accepts(&self, gate: &Gate, status: &GateStatus) -> bool {
        match status {
            GateStatus::Resolved { resolution } => {
                matches!(self.trust.receipt(gate, resolution), Ok(true))
            }
            GateStatus::Expired { .. } | GateStatus::Pending => true,
            GateStatus::Withdrawn { .. } => false,
        }
    }

    /// Opens a gate. A decision about the same gate before a restart counts. If the question or
    /// the graph changed, the old gate is withdrawn and the new one shows the difference.
    pub(super) async fn open_gate(
        &mut self,
        request: &GateRequest,
    ) -> Result<Result<(Arc<dyn SessionStore>, Gate), NodeError>, RecordError> {
        let Some(journal) = &self.journal else {
            let message = "a decision node needs a run with a record";
            return Ok(Err(NodeError::new("no_record", message)));
        };
        let store = Arc::clone(&journal.store);
        let Some(first) = self.new_gate(journal, request) else {
            let message = "the step has no valid id";
            return Ok(Err(NodeError::new("bad_run", message)));
        };
        let mut gate = first.clone();
        for round in 2.. {
            let Some(former) = store.gate(&gate.id).await? else {
                break;
            };
            // The deadline stays the one of the gate that was opened first.
            if is_same(&former, &gate) && self.accepts(&former, &former.status) {
                if let (Some(listener), Some(journal)) = (&self.listener, &self.journal)
                    && former.status.is_pending()
                {
                    listener.notify(&journal.pending_gate(&former));
                }
                return Ok(Ok((store, former)));
            }
            if former.status.is_pending() {
                let status = GateStatus::Withdrawn {
                    reason: "changed".to_owned(),
                    at: record::now(),
                };
                let gate = former.id.clone();
                if let Some(journal) = &mut self.journal {
                    journal.withdraw_gate(former.clone(), status.clone());
                }
                self.record(RunEvent::GateClosed { gate, status });
            }
            gate = replacement(&first, &former, round);
        }
        if let Some(journal) = &mut self.journal {
            let id = gate.id.clone();
            let mut line = journal.push(RunEvent::Gate { gate: id });
            line.gate = Some(Box::new(gate.clone()));
            journal.open_gate(&gate);
            // Commit first: the listener may answer the gate at once.
            journal.commit().await?;
            if let Some(listener) = &self.listener {
                listener.notify(&line);
            }
        }
        Ok(Ok((store, gate)))
    }

    /// Records how a gate was closed and returns its resolution.
    pub(super) fn record_closed(
        &mut self,
        gate: &Gate,
        status: GateStatus,
    ) -> Result<Resolution, NodeError> {
        let gate = gate.id.clone();
        self.record(RunEvent::GateClosed {
            gate,
            status: status.clone(),
        });
        match status {
            GateStatus::Resolved { resolution } => Ok(resolution),
            GateStatus::Expired { .. } => Err(NodeError::new(
                "expired",
                "the gate expired without a decision",
            )),
            GateStatus::Withdrawn { .. } | GateStatus::Pending => {
                Err(NodeError::new("withdrawn", "the gate was withdrawn"))
            }
        }
    }

    fn new_gate(&self, journal: &Journal, request: &GateRequest) -> Option<Gate> {
        let (session, thread) = (journal.session.clone(), journal.thread.clone());
        let step = format!("step-{}", self.steps);
        let prompt: PromptId = step.parse().ok()?;
        let call: CallId = step.parse().ok()?;
        // A decision is valid only for this version of the graph.
        let chain_hash = (CHAIN_HASH.to_owned(), self.graph.hash.to_hex().into());
        let actions = request.actions.iter().cloned();
        Some(Gate {
            id: GateId::new(&session, &thread, &prompt, &request.key),
            kind: request.kind,
            title: request.title.clone(),
            body: request.body.clone(),
            actions: actions.map(|(id, label)| Action::new(id, label)).collect(),
            status: GateStatus::Pending,
            origin: GateOrigin {
                session,
                thread,
                prompt,
                call,
                tool: self.id.clone(),
                resume_key: request.key.clone(),
            },
            expires_at: request.expires_at,
            context: Map::from_iter([chain_hash]),
            created_at: record::now(),
        })
    }
}

/// The gate about an interrupted call. Each interruption gets its own gate, because an answer is
/// only valid for the situation that the user was shown.
pub(super) fn interrupted_gate(key: &str, what: &str, starts: u32) -> GateRequest {
    GateRequest {
        key: match starts {
            0 | 1 => format!("{key}:interrupted"),
            starts => format!("{key}:interrupted:{starts}"),
        },
        kind: GateKind::Question,
        title: format!("{what} was interrupted"),
        body: "The process died during the call. Whether the call had an effect is unknown."
            .to_owned(),
        actions: INTERRUPTED_ACTIONS
            .map(|(id, label)| (id.to_owned(), label.to_owned()))
            .to_vec(),
        expires_at: None,
    }
}

/// The choice in the resolution of an interrupted call's gate.
pub(super) fn interrupted_choice(resolution: Result<Resolution, NodeError>) -> InterruptedChoice {
    match resolution {
        Ok(resolution) if resolution.action == "run_again" => InterruptedChoice::RunAgain,
        Ok(resolution) if resolution.action == "result" => {
            InterruptedChoice::UseResult(match &resolution.value {
                Value::String(text) => {
                    json::parse(text).unwrap_or_else(|_| resolution.value.clone())
                }
                other => other.clone(),
            })
        }
        Ok(_) | Err(_) => InterruptedChoice::Skip,
    }
}

/// Whether two gates have the same question, answers and graph.
fn is_same(one: &Gate, other: &Gate) -> bool {
    one.kind == other.kind
        && one.title == other.title
        && one.body == other.body
        && one.actions == other.actions
        && one.context.get(CHAIN_HASH) == other.context.get(CHAIN_HASH)
        && one.origin == other.origin
}

/// Creates a gate that replaces `former` and shows why.
fn replacement(gate: &Gate, former: &Gate, round: u32) -> Gate {
    let mut gate = gate.clone();
    let (before, now) = (question_text(former), question_text(&gate));
    let what = if before != now {
        let diff = similar::TextDiff::from_lines(&before, &now);
        let diff = diff.unified_diff().context_radius(0).to_string();
        let lines = diff.lines().filter(|line| !line.starts_with("@@"));
        let lines: Vec<_> = lines.collect();
        format!("the question changed.\n{}", lines.join("\n"))
    } else if former.context.get(CHAIN_HASH) != gate.context.get(CHAIN_HASH) {
        "the graph changed.".to_owned()
    } else {
        "it is not signed by a trusted key.".to_owned()
    };
    let origin = &mut gate.origin;
    origin.resume_key = format!("{}:{round}", origin.resume_key);
    gate.id = GateId::new(
        &origin.session,
        &origin.thread,
        &origin.prompt,
        &origin.resume_key,
    );
    let space = if gate.body.is_empty() { "" } else { "\n\n" };
    let note = format!("The previous answer is void: {what}");
    gate.body = format!("{}{space}{note}", gate.body);
    gate
}

/// The question as text, one line per part.
fn question_text(gate: &Gate) -> String {
    let answers: Vec<_> = gate.actions.iter().map(|it| it.id.as_str()).collect();
    let answers = answers.join(", ");
    format!("{}\n{}\n{answers}\n", gate.title, gate.body)
}
