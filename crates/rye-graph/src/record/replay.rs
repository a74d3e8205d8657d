//! Replays a journal to restore the progress of a run.

use std::collections::BTreeMap;
use std::path::Path;

use rye_items::metadata::EffectClass;
use rye_protocol::Gate;
use serde_json::{Map, Value};

use super::{RecordError, StoredLine, line_hash};
use crate::event::{Event, JournalLine, NodeError, RunStart, RunStatus};

/// Message for an empty record.
pub(super) const EMPTY: &str =
    "the record is empty: its process died before the first step, or the record was emptied";

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

/// Journaled state of a foreach item.
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

/// Journaled state of a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HookState {
    pub(crate) has_ended: bool,
    pub(crate) effect: EffectClass,
    /// Number of starts.
    pub(crate) starts: u32,
}

/// State of a run, restored from its journal.
#[derive(Debug)]
pub(crate) struct Replay {
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
    /// Open gates.
    pub(crate) gates: Vec<Gate>,
    /// Started hooks, by index and step.
    pub(crate) hooks: BTreeMap<(usize, u64), HookState>,
    /// Boot id of the machine when the last lines were written.
    pub(crate) boot: String,
    pub(crate) lines: Vec<JournalLine>,
    pub(crate) seq: u64,
    pub(crate) hash: String,
    /// Length of the file up to the last complete line.
    pub(crate) length: u64,
    /// Whether the last process was interrupted at an arbitrary point.
    pub(crate) was_interrupted: bool,
    /// Items that only appear in unsigned lines.
    pub(crate) unsigned_items: Vec<(usize, Option<EffectClass>)>,
}

/// Whether a journal contains more than the unsigned start that a killed process may leave.
pub(super) fn has_effects(bytes: &[u8]) -> bool {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let mut whole = lines.filter(|line| line.ends_with(b"\n"));
    whole.any(|line| {
        let Ok(stored) = serde_json::from_slice::<StoredLine<'_>>(line) else {
            return true;
        };
        let event = serde_json::from_str(stored.event.get());
        let has_no_effect = matches!(event, Ok(Event::Started(_) | Event::Warning { .. }));
        stored.signature.is_some() || !has_no_effect
    })
}

impl Replay {
    /// The node to continue with.
    pub(crate) fn node(&self) -> Option<&str> {
        match &self.position {
            Position::Before(node)
            | Position::Within { node, .. }
            | Position::Failed { node, .. } => Some(node),
            Position::End => None,
        }
    }

    /// Replays a journal. An incomplete last line is ignored.
    pub(crate) fn from_bytes(run: &str, path: &Path, bytes: &[u8]) -> Result<Self, RecordError> {
        let altered = |line: usize, why: String| RecordError::Altered {
            run: run.to_owned(),
            line,
            why,
        };
        let mut replay: Option<Self> = None;
        let (mut hash, mut length, mut number) = (String::new(), 0, 0);
        for text in bytes.split_inclusive(|byte| *byte == b'\n') {
            if !text.ends_with(b"\n") {
                break;
            }
            number += 1;
            let stored: StoredLine<'_> =
                serde_json::from_slice(text).map_err(|error| altered(number, error.to_string()))?;
            let expected = line_hash(&hash, stored.seq, stored.at, stored.event.get()).to_hex();
            if expected != stored.hash {
                return Err(altered(number, "its hash does not match".to_owned()));
            }
            hash = expected;
            length += text.len() as u64;
            let event: Event = serde_json::from_str(stored.event.get())
                .map_err(|error| altered(number, error.to_string()))?;
            match (&mut replay, event) {
                (None, Event::Started(started)) => {
                    replay = Some(Self::begin(*started, stored.at));
                }
                (None, _) => return Err(altered(number, "the first event is missing".to_owned())),
                (Some(replay), event) => replay.apply(JournalLine {
                    seq: stored.seq,
                    at: stored.at,
                    event,
                }),
            }
        }
        let Some(mut replay) = replay else {
            return Err(altered(0, format!("{}: {EMPTY}", path.display())));
        };
        replay.hash = hash;
        replay.length = length;
        Ok(replay)
    }

    /// Applies unsigned lines. They can only mark items as interrupted, so that these are not
    /// repeated without asking.
    pub(crate) fn apply_unsigned(&mut self, unsigned: &[u8]) {
        if !matches!(self.position, Position::Within { .. }) {
            return;
        }
        for line in unsigned.split(|byte| *byte == b'\n') {
            let Ok(stored) = serde_json::from_slice::<StoredLine<'_>>(line) else {
                continue;
            };
            let (index, effect) = match serde_json::from_str(stored.event.get()) {
                Ok(Event::ItemBegin { index, effect }) => (index, effect),
                Ok(Event::ItemEnd { index, .. }) => (index, None),
                _ => continue,
            };
            self.items.entry(index).or_insert_with(|| {
                self.unsigned_items.push((index, effect));
                ItemState::Started { effect, starts: 1 }
            });
        }
    }

    fn begin(started: RunStart, at: i64) -> Self {
        let line = JournalLine {
            seq: 1,
            at,
            event: Event::Started(Box::new(started.clone())),
        };
        Self {
            state: started.state.clone(),
            position: Position::Before(started.start.clone()),
            boot: started.boot.clone(),
            started,
            steps: 0,
            steps_since_stop: 0,
            error: None,
            output: None,
            end: None,
            items: BTreeMap::new(),
            gates: Vec::new(),
            hooks: BTreeMap::new(),
            lines: vec![line],
            seq: 1,
            hash: String::new(),
            length: 0,
            was_interrupted: true,
            unsigned_items: Vec::new(),
        }
    }

    fn apply(&mut self, line: JournalLine) {
        self.seq = line.seq;
        match &line.event {
            Event::Resumed {
                boot,
                changed,
                node,
                state,
            } => {
                self.end = None;
                self.was_interrupted = true;
                self.boot.clone_from(boot);
                self.state.extend(state.clone());
                if let Some(node) = node {
                    self.position = Position::Before(node.clone());
                }
                if let Some(changed) = changed {
                    self.started.text.clone_from(&changed.text);
                    self.started.graph_hash.clone_from(&changed.graph_hash);
                }
            }
            Event::Begin { step, node, effect } => self.node_started(*step, node, *effect),
            Event::ItemBegin { index, effect } => {
                let starts = match self.items.get(index) {
                    Some(ItemState::Started { starts, .. }) => starts + 1,
                    _ => 1,
                };
                let effect = *effect;
                self.items
                    .insert(*index, ItemState::Started { effect, starts });
            }
            Event::ItemEnd {
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
            Event::Gate { gate } => {
                self.gates.retain(|it| it.id != gate.id);
                self.gates.push((**gate).clone());
            }
            Event::GateClosed { gate, .. } => self.gates.retain(|it| it.id != *gate),
            Event::Step { .. } => self.node_ended(&line.event),
            Event::HookBegin {
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
            Event::HookEnd { hook, step, .. } => {
                if let Some(known) = self.hooks.get_mut(&(*hook, *step)) {
                    known.has_ended = true;
                }
            }
            Event::End {
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
                    RunStatus::Cancelled => true,
                    // Without a node, the journal itself failed.
                    RunStatus::Failed => node.is_none(),
                    _ => false,
                };
                self.end = Some((*status, error.clone()));
            }
            Event::Started(_)
            | Event::Retry { .. }
            | Event::Warning { .. }
            | Event::Snapshot { .. } => {}
        }
        self.lines.push(line);
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

    fn node_ended(&mut self, event: &Event) {
        let Event::Step {
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
        self.gates.clear();
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
