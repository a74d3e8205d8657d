//! Decision nodes: open a gate and wait for the user.

mod reask;

use std::path::Path;

use rye_items::metadata::EffectClass;
use rye_protocol::{
    Action, CallId, Gate, GateId, GateKind, GateOrigin, GateStatus, PromptId, Resolution,
    SessionId, ThreadId,
};
use serde_json::{Map, Value, json};

use super::{InterruptedStart, NodeResult, Walker};
use crate::definition::{Decision, Node};
use crate::event::{Event, NodeError, NodeOutcome};
use crate::gates::{self, GateFile, QUESTION_HASH};
use crate::path::Scope;
use crate::record::RecordError;

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
        self.begin(node, EffectClass::Idempotent, interrupted)?;
        let deadline = decision.expires_in.map(|time| {
            let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            rye_protocol::Millis(gates::now().0.saturating_add(time))
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
        Ok(NodeResult::new(result, EffectClass::AtMostOnce))
    }

    /// Decides what to do with an interrupted call; `None` means to repeat it.
    pub(super) async fn resolve_interrupted(
        &mut self,
        node: &Node,
        interrupted: InterruptedStart,
    ) -> Result<Option<NodeResult>, RecordError> {
        let InterruptedStart { effect, starts } = interrupted;
        let choice = match effect {
            EffectClass::Ask => self.ask_about_interrupted(&node.name, starts).await?,
            _ => InterruptedChoice::Skip,
        };
        Ok(match choice {
            InterruptedChoice::RunAgain => None,
            InterruptedChoice::UseResult(value) => Some(NodeResult::new(Ok(value), effect)),
            InterruptedChoice::Skip => {
                let mut done = NodeResult::new(Err(interrupted_error()), effect);
                done.outcome = NodeOutcome::Interrupted;
                Some(done)
            }
        })
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
        let gate_file = match self.open_gate(request)? {
            Ok(gate_file) => gate_file,
            Err(error) => return Ok(Err(error)),
        };
        let status = gate_file.wait_closed(&*self.trust).await?;
        Ok(self.record_closed(&gate_file, status))
    }

    /// Opens a gate. A resolution of the same gate before a restart counts. If the question or
    /// the graph changed, the old gate is withdrawn and the new one shows the difference.
    pub(super) fn open_gate(
        &mut self,
        request: &GateRequest,
    ) -> Result<Result<GateFile, NodeError>, RecordError> {
        let Some(journal) = &self.journal else {
            let message = "a decision node needs a run with a record";
            return Ok(Err(NodeError::new("no_record", message)));
        };
        let run_dir = journal.run_dir().to_owned();
        let Some(first) = self.new_gate(journal.run(), request) else {
            let message = "the run id is not a valid session id";
            return Ok(Err(NodeError::new("bad_run", message)));
        };
        let mut gate = first.clone();
        for round in 2.. {
            let known = self.progress.gates.iter().find(|it| it.id == gate.id);
            let Some(former) = known
                .cloned()
                .or_else(|| GateFile::load(&run_dir, &gate.id))
            else {
                break;
            };
            if reask::is_same(&former, &gate) {
                // The journaled gate keeps its original deadline.
                if known.is_some_and(|known| known.context.contains_key(QUESTION_HASH)) {
                    return Ok(Ok(GateFile::create(&run_dir, former)?));
                }
                break;
            }
            self.withdraw_gate(&run_dir, &former)?;
            gate = reask::with_changes(&first, &former, round);
        }
        let gate_file = GateFile::create(&run_dir, gate.clone());
        let gate_file = match (gate_file, &mut self.journal) {
            (Err(error), Some(journal)) => return Err(journal.fail(error)),
            (gate_file, _) => gate_file?,
        };
        if let Some(pending_index) = &self.pending_index {
            pending_index.add();
        }
        let gate = Box::new(gate);
        self.record(Event::Gate { gate });
        self.commit(true)?;
        Ok(Ok(gate_file))
    }

    /// Withdraws a gate whose question changed.
    fn withdraw_gate(&mut self, run_dir: &Path, former: &Gate) -> Result<(), RecordError> {
        let status = GateFile::from_journal(run_dir, former.clone()).withdraw("changed")?;
        let is_known = |it: &Gate| it.id == former.id;
        if self.progress.gates.iter().any(is_known) {
            let gate = former.id.clone();
            self.record(Event::GateClosed { gate, status });
        }
        Ok(())
    }

    /// Journals how a gate was closed and returns its resolution.
    pub(super) fn record_closed(
        &mut self,
        gate_file: &GateFile,
        status: GateStatus,
    ) -> Result<Resolution, NodeError> {
        let gate = gate_file.gate.id.clone();
        self.record(Event::GateClosed {
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

    fn new_gate(&self, run: &str, request: &GateRequest) -> Option<Gate> {
        let session: SessionId = run.parse().ok()?;
        let thread: ThreadId = "graph".parse().ok()?;
        let step = format!("step-{}", self.steps);
        let prompt: PromptId = step.parse().ok()?;
        let call: CallId = step.parse().ok()?;
        let mut context = Map::new();
        // A resolution is valid only for this version of the graph.
        context.insert("chain_hash".to_owned(), self.graph.hash.to_hex().into());
        let actions = request.actions.iter().cloned();
        let mut gate = Gate {
            id: GateId::new(&session, &thread, &prompt, &request.key),
            kind: request.kind,
            title: request.title.clone(),
            body: request.body.clone(),
            actions: actions.map(|(id, label)| Action { id, label }).collect(),
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
            context,
            created_at: gates::now(),
        };
        let shown = gates::question_hash(&gate);
        gate.context.insert(QUESTION_HASH.to_owned(), shown.into());
        Some(gate)
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
                    serde_json::from_str(text).unwrap_or_else(|_| resolution.value.clone())
                }
                other => other.clone(),
            })
        }
        Ok(_) | Err(_) => InterruptedChoice::Skip,
    }
}
