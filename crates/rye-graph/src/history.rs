//! Restores the progress of a run from its session.

use std::collections::BTreeMap;
use std::sync::Arc;

use lillux::Hash;
use rye_engine::audit::{self, FindingKind};
use rye_engine::store::SessionStore;
use rye_protocol::{
    EffectClass, Entry, EntryKind, GateStatus, NodeError, RunEvent, RunStart, RunStatus, Session,
    SessionId,
};
use serde_json::{Map, Value};

use crate::error::RecordError;
use crate::journal::JournalLine;
use crate::trust::TrustPolicy;

/// Position of a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Position {
    /// Before a node starts.
    Before(String),
    /// A node was started, possibly several times, and did not end.
    Within {
        node: String,
        effect: EffectClass,
        starts: u32,
    },
    /// A node failed and no node handles the error.
    Failed { node: String, error: NodeError },
    /// After the last node.
    End,
}

/// Recorded state of a foreach item.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ItemState {
    /// Started this number of times without an end.
    Started {
        effect: Option<EffectClass>,
        starts: u32,
    },
    Done(Value),
    Failed(NodeError),
}

/// Recorded state of a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HookState {
    pub(crate) has_ended: bool,
    pub(crate) effect: EffectClass,
    /// Number of starts.
    pub(crate) starts: u32,
}

/// State of a run, restored from its history.
#[derive(Debug)]
pub(crate) struct Replay {
    run: SessionId,
    pub(crate) started: RunStart,
    pub(crate) state: Map<String, Value>,
    pub(crate) position: Position,
    /// Number of started steps.
    pub(crate) steps: u64,
    /// Steps since the run last stopped in an orderly way.
    pub(crate) steps_since_stop: u64,
    /// Error of the last step.
    pub(crate) error: Option<NodeError>,
    pub(crate) output: Option<Value>,
    pub(crate) end: Option<(RunStatus, Option<NodeError>)>,
    /// Items of the interrupted foreach.
    pub(crate) items: BTreeMap<usize, ItemState>,
    /// Started hooks, by index and step.
    pub(crate) hooks: BTreeMap<(usize, u64), HookState>,
    pub(crate) lines: Vec<JournalLine>,
    /// Whether the last process was interrupted at an arbitrary point.
    pub(crate) was_interrupted: bool,
}

impl Replay {
    /// Replays a history; `None` if the graph has not started yet.
    pub(crate) fn from_entries(entries: Vec<Entry>) -> Option<Self> {
        let mut replay: Option<Self> = None;
        for entry in entries {
            let EntryKind::Run { events } = entry.kind else {
                continue;
            };
            for event in events {
                match (&mut replay, event) {
                    (None, RunEvent::Started(started)) => {
                        replay = Some(Self::begin(
                            *started,
                            entry.session.clone(),
                            entry.created_at.0,
                        ));
                    }
                    (Some(replay), event) => replay.apply(event, entry.created_at.0),
                    (None, _) => {}
                }
            }
        }
        replay
    }

    /// The node to continue with.
    pub(crate) fn node(&self) -> Option<&str> {
        match &self.position {
            Position::Before(node)
            | Position::Within { node, .. }
            | Position::Failed { node, .. } => Some(node),
            Position::End => None,
        }
    }

    fn begin(started: RunStart, run: SessionId, at: u64) -> Self {
        let mut replay = Self {
            run,
            state: started.state.clone(),
            position: Position::Before(started.start.clone()),
            started,
            steps: 0,
            steps_since_stop: 0,
            error: None,
            output: None,
            end: None,
            items: BTreeMap::new(),
            hooks: BTreeMap::new(),
            lines: Vec::new(),
            was_interrupted: true,
        };
        let event = RunEvent::Started(Box::new(replay.started.clone()));
        replay.push(event, at);
        replay
    }

    fn push(&mut self, event: RunEvent, at: u64) {
        self.lines.push(JournalLine {
            run: self.run.clone(),
            seq: self.lines.len() as u64 + 1,
            at,
            event,
            gate: None,
        });
    }

    fn apply(&mut self, event: RunEvent, at: u64) {
        match &event {
            RunEvent::Resumed {
                changed,
                node,
                state,
            } => {
                self.end = None;
                self.was_interrupted = true;
                self.state.extend(state.clone());
                if let Some(node) = node {
                    self.position = Position::Before(node.clone());
                }
                if let Some(changed) = changed {
                    self.started.text.clone_from(&changed.text);
                    self.started.graph_hash.clone_from(&changed.graph_hash);
                }
            }
            RunEvent::Begin {
                step, node, effect, ..
            } => self.node_started(*step, node, *effect),
            RunEvent::ItemBegin { index, effect } => {
                let starts = match self.items.get(index) {
                    Some(ItemState::Started { starts, .. }) => starts + 1,
                    _ => 1,
                };
                let effect = *effect;
                self.items
                    .insert(*index, ItemState::Started { effect, starts });
            }
            RunEvent::ItemEnd {
                index,
                result,
                error,
                ..
            } => {
                let state = match error {
                    Some(error) => ItemState::Failed(error.clone()),
                    None => ItemState::Done(result.clone()),
                };
                self.items.insert(*index, state);
            }
            RunEvent::Step { .. } => self.node_ended(&event),
            RunEvent::HookBegin {
                hook, step, effect, ..
            } => {
                let starts = self.hooks.get(&(*hook, *step)).map_or(0, |it| it.starts);
                let hook_state = HookState {
                    has_ended: false,
                    effect: *effect,
                    starts: starts + 1,
                };
                self.hooks.insert((*hook, *step), hook_state);
            }
            RunEvent::HookEnd { hook, step, .. } => {
                if let Some(known) = self.hooks.get_mut(&(*hook, *step)) {
                    known.has_ended = true;
                }
            }
            RunEvent::End {
                status,
                error,
                node,
                ..
            } => {
                if let (Some(node), RunStatus::Failed) = (node, status) {
                    self.position = Position::Before(node.clone());
                }
                self.steps_since_stop = 0;
                self.was_interrupted = match status {
                    RunStatus::Cancelled | RunStatus::Interrupted => true,
                    // Without a node, the store failed.
                    RunStatus::Failed => node.is_none(),
                    _ => false,
                };
                self.end = Some((*status, error.clone()));
            }
            _ => {}
        }
        self.push(event, at);
    }

    fn node_started(&mut self, step: u64, node: &str, effect: EffectClass) {
        let starts = match &self.position {
            Position::Within { starts, .. } if self.steps == step => starts + 1,
            _ => 1,
        };
        self.steps = step;
        self.items.clear();
        self.position = Position::Within {
            node: node.to_owned(),
            effect,
            starts,
        };
    }

    fn node_ended(&mut self, event: &RunEvent) {
        let RunEvent::Step {
            step,
            node,
            set,
            error,
            output,
            next,
            fatal,
            ..
        } = event
        else {
            return;
        };
        // A node that failed before its call has no start event.
        self.steps = *step;
        self.items.clear();
        self.steps_since_stop += 1;
        self.state.extend(set.clone());
        self.error.clone_from(error);
        self.output.clone_from(output);
        self.position = match (error, next) {
            (Some(error), _) if *fatal => Position::Failed {
                node: node.clone(),
                error: error.clone(),
            },
            (_, Some(next)) => Position::Before(next.clone()),
            (_, None) => Position::End,
        };
    }
}

/// A run of a graph, loaded from its session.
#[derive(Debug)]
pub struct RunRecord {
    session: Session,
    replay: Replay,
}

impl RunRecord {
    /// Loads a run; `None` if there is no such run or it has not started yet.
    pub async fn load(
        store: &dyn SessionStore,
        id: &SessionId,
    ) -> Result<Option<Self>, RecordError> {
        let Some(snapshot) = store.snapshot(id).await? else {
            return Ok(None);
        };
        let leaf = snapshot.threads.into_iter().next().and_then(|it| it.leaf);
        let entries = match &leaf {
            Some(leaf) => store.path(id, leaf).await?,
            None => Vec::new(),
        };
        let Some(mut replay) = Replay::from_entries(entries) else {
            return Ok(None);
        };
        for line in &mut replay.lines {
            if let RunEvent::Gate { gate } = &line.event {
                line.gate = store.gate(gate).await?.map(Box::new);
            }
        }
        let session = snapshot.session;
        Ok(Some(Self { session, replay }))
    }

    /// The session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    pub(crate) fn replay(&self) -> &Replay {
        &self.replay
    }

    /// Id of the graph.
    pub fn graph(&self) -> &str {
        &self.replay.started.graph
    }

    /// Source text of the graph that the run uses.
    pub fn text(&self) -> &str {
        &self.replay.started.text
    }

    /// Inputs of the run.
    pub fn inputs(&self) -> &Value {
        &self.replay.started.inputs
    }

    /// Current state of the graph.
    pub fn graph_state(&self) -> &Map<String, Value> {
        &self.replay.state
    }

    /// Output of the graph.
    pub fn output(&self) -> Option<&Value> {
        self.replay.output.as_ref()
    }

    /// The error with which the run stopped.
    pub fn error(&self) -> Option<&NodeError> {
        self.replay.end.as_ref()?.1.as_ref()
    }

    /// The current node, or the node to continue with.
    pub fn node(&self) -> Option<&str> {
        self.replay.node()
    }

    /// Number of started steps.
    pub fn steps(&self) -> u64 {
        self.replay.steps
    }

    /// The history, with the gates that it opened.
    pub fn lines(&self) -> &[JournalLine] {
        &self.replay.lines
    }

    /// Whether the graph that the run uses has this hash.
    pub fn has_graph(&self, hash: &Hash) -> bool {
        self.replay.started.graph_hash == hash.to_hex()
    }
}

/// Checks that the history of a run is unmodified and signed by a trusted key. Without a signing
/// key, an unsigned history is accepted.
pub async fn check_record(
    store: &Arc<dyn SessionStore>,
    id: &SessionId,
    trust: &dyn TrustPolicy,
    has_key: bool,
) -> Result<(), RecordError> {
    let run = || id.to_string();
    let archive = store.archive(id).await?;
    let archive = archive.ok_or_else(|| RecordError::NotFound(run()))?;
    let mut verdict = audit::check(&archive, |name| trust.key(name));
    let is_unsigned = verdict.keys.is_empty();
    if !has_key && is_unsigned {
        return Ok(());
    }
    // The run ignores decisions that are not signed.
    let unsigned_gates: Vec<String> = archive
        .gates
        .iter()
        .filter(|gate| match &gate.status {
            GateStatus::Resolved { resolution } => resolution.receipt.is_none(),
            _ => false,
        })
        .map(|gate| gate.id.to_string())
        .collect();
    verdict.findings.retain(|finding| {
        finding.kind != FindingKind::Signature || !unsigned_gates.contains(&finding.location)
    });
    let untrusted = |kind| kind == FindingKind::UnknownKey;
    match verdict.findings.first() {
        _ if is_unsigned => Err(RecordError::Unsigned(run())),
        Some(first) if verdict.findings.iter().all(|it| untrusted(it.kind)) => {
            Err(RecordError::UntrustedKey {
                run: run(),
                why: first.reason.clone(),
            })
        }
        Some(first) => Err(RecordError::Altered {
            run: run(),
            why: format!("{}: {}", first.location, first.reason),
        }),
        None if !has_key => Err(RecordError::NoKey(run())),
        None => Ok(()),
    }
}
