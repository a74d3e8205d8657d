//! Decisions: a person is asked, and the walk waits.

mod again;

use std::path::Path;

use rye_items::metadata::Effect;
use rye_protocol::{
    Action, CallId, Gate, GateId, GateKind, GateOrigin, GateStatus, PromptId, Resolution,
    SessionId, ThreadId,
};
use serde_json::{Map, Value, json};

use super::{Begun, Done, Walk};
use crate::event::{Event, NodeError, NodeOutcome};
use crate::gates::{self, GateFile, QUESTION};
use crate::model::{Decision, Node};
use crate::path::Scope;
use crate::record::RecordError;

/// What a person may say to a call that was cut short.
const AGAIN: [(&str, &str); 3] = [
    ("run_again", "run it again"),
    ("skip", "go on without it"),
    ("result", "go on with a result given by hand"),
];

/// What a person wants done about it.
pub(super) enum Wanted {
    Again,
    Given(Value),
    Nothing,
}

/// What is known of a call that was cut short: nothing.
pub(super) fn unknown() -> NodeError {
    let message = "its process died while it was at it: nobody knows whether it did anything";
    NodeError::new("interrupted", message)
}

/// A question to be asked.
pub(super) struct Asked {
    key: String,
    kind: GateKind,
    title: String,
    body: String,
    actions: Vec<(String, String)>,
    expires_at: Option<rye_protocol::Millis>,
}

impl<'g> Walk<'g> {
    pub(super) async fn decision(
        &mut self,
        node: &'g Node,
        decision: &'g Decision,
        begun: Option<Begun>,
    ) -> Result<Done, RecordError> {
        let scope = Scope::new(&self.state, &self.inputs);
        let (title, body) = (decision.title.shown(&scope), decision.body.shown(&scope));
        let missing = scope.missing.into_inner();
        self.warn(node, missing);
        self.begin(node, Effect::Idempotent, begun)?;
        let deadline = decision.expires_in.map(|time| {
            let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            rye_protocol::Millis(gates::now().0.saturating_add(time))
        });
        let asked = Asked {
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
        let result = match self.answer(&asked).await? {
            Ok(Resolution { action, by, .. }) if decision.is_approval && action == "deny" => {
                Err(NodeError::new("denied", format!("{by} said no")))
            }
            Ok(Resolution {
                action, value, by, ..
            }) => Ok(json!({ "action": action, "value": value, "by": by })),
            Err(error) => Err(error),
        };
        Ok(Done::of(result, Effect::AtMostOnce))
    }

    /// What to do with a call of which nothing more was heard. None is to run it again.
    pub(super) async fn interrupted(
        &mut self,
        node: &Node,
        begun: Begun,
    ) -> Result<Option<Done>, RecordError> {
        let Begun { effect, times } = begun;
        let wanted = match effect {
            Effect::Ask => self.asked_about(&node.name, times).await?,
            _ => Wanted::Nothing,
        };
        Ok(match wanted {
            Wanted::Again => None,
            Wanted::Given(value) => Some(Done::of(Ok(value), effect)),
            Wanted::Nothing => {
                let mut done = Done::of(Err(unknown()), effect);
                done.outcome = NodeOutcome::Interrupted;
                Some(done)
            }
        })
    }

    /// Asks what to do with a call that was begun so many times and cut short.
    pub(super) async fn asked_about(
        &mut self,
        what: &str,
        times: u32,
    ) -> Result<Wanted, RecordError> {
        let answer = self.answer(&cut_short(what, what, times)).await?;
        Ok(wanted(answer))
    }

    /// Asks, and waits for the answer. The question survives whoever asks it.
    async fn answer(
        &mut self,
        asked: &Asked,
    ) -> Result<Result<Resolution, NodeError>, RecordError> {
        let question = match self.ask(asked)? {
            Ok(question) => question,
            Err(error) => return Ok(Err(error)),
        };
        let status = question.ended(&*self.trust).await?;
        Ok(self.heard(&question, status))
    }

    /// Asks. Where the same was asked before, the answer to that counts; where it was
    /// something else, that answer is void, and what has changed is told.
    pub(super) fn ask(
        &mut self,
        asked: &Asked,
    ) -> Result<Result<GateFile, NodeError>, RecordError> {
        let Some(journal) = &self.journal else {
            let message = "a decision needs a run that is written down";
            return Ok(Err(NodeError::new("no_record", message)));
        };
        let folder = journal.folder().to_owned();
        let Some(first) = self.gate(journal.run(), asked) else {
            let message = "the run has a name that nobody can be asked under";
            return Ok(Err(NodeError::new("bad_run", message)));
        };
        let mut gate = first.clone();
        for round in 2.. {
            let known = self.before.gates.iter().find(|it| it.id == gate.id);
            let Some(former) = known
                .cloned()
                .or_else(|| GateFile::asked(&folder, &gate.id))
            else {
                break;
            };
            if again::is_same(&former, &gate) {
                // From the record it has the deadline that it had.
                if known.is_some_and(|known| known.context.contains_key(QUESTION)) {
                    return Ok(Ok(GateFile::ask(&folder, former)?));
                }
                break;
            }
            self.take_back(&folder, &former)?;
            gate = again::changed(&first, &former, round);
        }
        let question = GateFile::ask(&folder, gate.clone());
        let question = match (question, &mut self.journal) {
            (Err(error), Some(journal)) => return Err(journal.broke(error)),
            (question, _) => question?,
        };
        if let Some(asking) = &self.asking {
            asking.note();
        }
        let gate = Box::new(gate);
        self.tell(Event::Gate { gate });
        self.commit(true)?;
        Ok(Ok(question))
    }

    /// Nobody is to answer any more what is not asked.
    fn take_back(&mut self, folder: &Path, former: &Gate) -> Result<(), RecordError> {
        let status = GateFile::of(folder, former.clone()).withdraw("changed")?;
        let is_known = |it: &Gate| it.id == former.id;
        if self.before.gates.iter().any(is_known) {
            let gate = former.id.clone();
            self.tell(Event::Answered { gate, status });
        }
        Ok(())
    }

    /// Writes down how a question ended.
    pub(super) fn heard(
        &mut self,
        question: &GateFile,
        status: GateStatus,
    ) -> Result<Resolution, NodeError> {
        let gate = question.gate.id.clone();
        self.tell(Event::Answered {
            gate,
            status: status.clone(),
        });
        match status {
            GateStatus::Resolved { resolution } => Ok(resolution),
            GateStatus::Expired { .. } => Err(NodeError::new("expired", "nobody decided in time")),
            GateStatus::Withdrawn { .. } | GateStatus::Pending => {
                Err(NodeError::new("withdrawn", "the question was taken back"))
            }
        }
    }

    fn gate(&self, run: &str, asked: &Asked) -> Option<Gate> {
        let session: SessionId = run.parse().ok()?;
        let thread: ThreadId = "graph".parse().ok()?;
        let step = format!("step-{}", self.steps);
        let prompt: PromptId = step.parse().ok()?;
        let call: CallId = step.parse().ok()?;
        let mut context = Map::new();
        // An answer is to this graph and no other.
        context.insert("chain_hash".to_owned(), self.graph.hash.to_hex().into());
        let actions = asked.actions.iter().cloned();
        let mut gate = Gate {
            id: GateId::new(&session, &thread, &prompt, &asked.key),
            kind: asked.kind,
            title: asked.title.clone(),
            body: asked.body.clone(),
            actions: actions.map(|(id, label)| Action { id, label }).collect(),
            status: GateStatus::Pending,
            origin: GateOrigin {
                session,
                thread,
                prompt,
                call,
                tool: self.id.clone(),
                resume_key: asked.key.clone(),
            },
            expires_at: asked.expires_at,
            context,
            created_at: gates::now(),
        };
        let shown = gates::question_hash(&gate);
        gate.context.insert(QUESTION.to_owned(), shown.into());
        Some(gate)
    }
}

/// The question about a call that was begun so many times and cut short: each time is one
/// of its own, since an answer is to what was known when it was given.
pub(super) fn cut_short(key: &str, what: &str, times: u32) -> Asked {
    Asked {
        key: match times {
            0 | 1 => format!("{key}:interrupted"),
            times => format!("{key}:interrupted:{times}"),
        },
        kind: GateKind::Question,
        title: format!("{what} was cut short"),
        body: "Its process died while it was at it, and nobody knows whether it did anything."
            .to_owned(),
        actions: AGAIN
            .map(|(id, label)| (id.to_owned(), label.to_owned()))
            .to_vec(),
        expires_at: None,
    }
}

/// What an answer to that question says.
pub(super) fn wanted(answer: Result<Resolution, NodeError>) -> Wanted {
    match answer {
        Ok(said) if said.action == "run_again" => Wanted::Again,
        Ok(said) if said.action == "result" => Wanted::Given(match &said.value {
            Value::String(text) => {
                serde_json::from_str(text).unwrap_or_else(|_| said.value.clone())
            }
            other => other.clone(),
        }),
        Ok(_) | Err(_) => Wanted::Nothing,
    }
}
