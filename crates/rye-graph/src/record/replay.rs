//! From a record to where its run stands.

use std::collections::BTreeMap;
use std::path::Path;

use rye_items::metadata::Effect;
use rye_protocol::Gate;
use serde_json::{Map, Value};

use super::{RecordError, Written, line_hash};
use crate::event::{Event, JournalLine, NodeError, RunStart, RunStatus};

/// What is wrong with a record that has no line.
pub(super) const EMPTY: &str =
    "nothing is written down: its process died before it did anything, or the record was emptied";

/// Where a run is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum At {
    /// Before a node.
    Before(String),
    /// Within one, of which nothing more was heard since it was begun, perhaps again.
    Within {
        node: String,
        effect: Effect,
        times: u32,
    },
    /// At one whose error nobody sees to: all that is left is to end.
    Failed { node: String, error: NodeError },
    /// Behind the last one.
    Behind,
}

/// What is known of an item of a foreach.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ItemState {
    /// So many times.
    Begun {
        effect: Option<Effect>,
        times: u32,
    },
    Done(Value),
    Failed(NodeError),
}

/// What is known of a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HookState {
    pub(crate) has_ended: bool,
    pub(crate) effect: Effect,
    /// How often it was begun.
    pub(crate) times: u32,
}

/// A run as its record tells it.
#[derive(Debug)]
pub(crate) struct Replayed {
    pub(crate) started: RunStart,
    pub(crate) state: Map<String, Value>,
    pub(crate) at: At,
    /// Steps that were begun.
    pub(crate) steps: u64,
    /// Steps that were done since it last came to an end of its own.
    pub(crate) taken: u64,
    /// What went wrong with the last of them.
    pub(crate) error: Option<NodeError>,
    pub(crate) output: Option<Value>,
    pub(crate) end: Option<(RunStatus, Option<NodeError>)>,
    /// Of the foreach that it is within.
    pub(crate) items: BTreeMap<usize, ItemState>,
    /// The gates that it waits at.
    pub(crate) gates: Vec<Gate>,
    /// Hooks that were begun, by their number and step.
    pub(crate) hooks: BTreeMap<(usize, u64), HookState>,
    /// Since when the machine runs that the last lines were written on.
    pub(crate) boot: String,
    pub(crate) lines: Vec<JournalLine>,
    pub(crate) seq: u64,
    pub(crate) hash: String,
    /// As much of the file as is whole.
    pub(crate) length: u64,
    /// Whether its last walk was cut short between any two lines.
    pub(crate) is_cut_short: bool,
    /// Items of the foreach of which lines tell that nobody signed.
    pub(crate) doubtful: Vec<(usize, Option<Effect>)>,
}

/// Whether a record tells of anything that was done: a first line that a dying process wrote
/// alone does not.
pub(super) fn was_acted_on(bytes: &[u8]) -> bool {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let mut whole = lines.filter(|line| line.ends_with(b"\n"));
    whole.any(|line| {
        let Ok(written) = serde_json::from_slice::<Written<'_>>(line) else {
            return true;
        };
        let event = serde_json::from_str(written.event.get());
        let is_nothing = matches!(event, Ok(Event::Started(_) | Event::Warning { .. }));
        written.signature.is_some() || !is_nothing
    })
}

impl Replayed {
    /// The node where it goes on.
    pub(crate) fn node(&self) -> Option<&str> {
        match &self.at {
            At::Before(node) | At::Within { node, .. } | At::Failed { node, .. } => Some(node),
            At::Behind => None,
        }
    }

    /// Reads a record. A last line that is not whole is passed over.
    pub(crate) fn read(run: &str, path: &Path, bytes: &[u8]) -> Result<Self, RecordError> {
        let altered = |line: usize, why: String| RecordError::Altered {
            run: run.to_owned(),
            line,
            why,
        };
        let mut replayed: Option<Self> = None;
        let (mut hash, mut length, mut number) = (String::new(), 0, 0);
        for text in bytes.split_inclusive(|byte| *byte == b'\n') {
            if !text.ends_with(b"\n") {
                break;
            }
            number += 1;
            let written: Written<'_> =
                serde_json::from_slice(text).map_err(|error| altered(number, error.to_string()))?;
            let expected = line_hash(&hash, written.seq, written.at, written.event.get()).to_hex();
            if expected != written.hash {
                return Err(altered(number, "it is not what its hash says".to_owned()));
            }
            hash = expected;
            length += text.len() as u64;
            let event: Event = serde_json::from_str(written.event.get())
                .map_err(|error| altered(number, error.to_string()))?;
            match (&mut replayed, event) {
                (None, Event::Started(started)) => {
                    replayed = Some(Self::begin(*started, written.at));
                }
                (None, _) => return Err(altered(number, "the record has no beginning".to_owned())),
                (Some(replayed), event) => replayed.apply(JournalLine {
                    seq: written.seq,
                    at: written.at,
                    event,
                }),
            }
        }
        let Some(mut replayed) = replayed else {
            return Err(altered(0, format!("{}: {EMPTY}", path.display())));
        };
        replayed.hash = hash;
        replayed.length = length;
        Ok(replayed)
    }

    /// Lines that nobody signed can make a run more careful, and nothing else: of an item that
    /// they tell of nobody knows whether it was done.
    pub(crate) fn beware(&mut self, open: &[u8]) {
        if !matches!(self.at, At::Within { .. }) {
            return;
        }
        for line in open.split(|byte| *byte == b'\n') {
            let Ok(written) = serde_json::from_slice::<Written<'_>>(line) else {
                continue;
            };
            let (index, effect) = match serde_json::from_str(written.event.get()) {
                Ok(Event::ItemBegin { index, effect }) => (index, effect),
                Ok(Event::ItemEnd { index, .. }) => (index, None),
                _ => continue,
            };
            self.items.entry(index).or_insert_with(|| {
                self.doubtful.push((index, effect));
                ItemState::Begun { effect, times: 1 }
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
            at: At::Before(started.start.clone()),
            boot: started.boot.clone(),
            started,
            steps: 0,
            taken: 0,
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
            is_cut_short: true,
            doubtful: Vec::new(),
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
                self.is_cut_short = true;
                self.boot.clone_from(boot);
                self.state.extend(state.clone());
                if let Some(node) = node {
                    self.at = At::Before(node.clone());
                }
                if let Some(changed) = changed {
                    self.started.text.clone_from(&changed.text);
                    self.started.graph_hash.clone_from(&changed.graph_hash);
                }
            }
            Event::Begin { step, node, effect } => self.begun(*step, node, *effect),
            Event::ItemBegin { index, effect } => {
                let times = match self.items.get(index) {
                    Some(ItemState::Begun { times, .. }) => times + 1,
                    _ => 1,
                };
                let effect = *effect;
                self.items
                    .insert(*index, ItemState::Begun { effect, times });
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
            Event::Answered { gate, .. } => self.gates.retain(|it| it.id != *gate),
            Event::Step { .. } => self.stepped(&line.event),
            Event::HookBegin {
                hook, step, effect, ..
            } => {
                let times = self.hooks.get(&(*hook, *step)).map_or(0, |it| it.times);
                let begun = HookState {
                    has_ended: false,
                    effect: *effect,
                    times: times + 1,
                };
                self.hooks.insert((*hook, *step), begun);
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
                    self.at = At::Before(node.clone());
                }
                self.taken = 0;
                self.is_cut_short = match status {
                    RunStatus::Cancelled => true,
                    // The record could not be written on, wherever it was.
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

    fn begun(&mut self, step: u64, node: &str, effect: Effect) {
        let times = match &self.at {
            At::Within { times, .. } if self.steps == step => times + 1,
            _ => 1,
        };
        self.steps = step;
        self.items.clear();
        self.at = At::Within {
            node: node.to_owned(),
            effect,
            times,
        };
    }

    fn stepped(&mut self, event: &Event) {
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
        // One that failed before it did anything was never begun.
        self.steps = *step;
        self.items.clear();
        self.gates.clear();
        self.taken += 1;
        self.state.extend(set.clone());
        self.error.clone_from(error);
        self.output.clone_from(output);
        self.at = match (error, next) {
            (Some(error), _) if *fatal => At::Failed {
                node: node.clone(),
                error: error.clone(),
            },
            (_, Some(next)) => At::Before(next.clone()),
            (_, None) => At::Behind,
        };
    }
}
