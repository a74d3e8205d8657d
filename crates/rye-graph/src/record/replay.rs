//! From a record to where its run stands.

use std::collections::BTreeMap;
use std::path::Path;

use rye_items::metadata::Effect;
use rye_protocol::Gate;
use serde_json::{Map, Value};

use super::{RecordError, Written, line_hash};
use crate::event::{Event, Line, NodeError, Started, Status};

/// Where a run is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum At {
    /// Before a node.
    Before(String),
    /// Within one, of which nothing more was heard.
    Within { node: String, effect: Effect },
    /// Behind the last one.
    Behind,
}

/// What is known of an item of a foreach.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ItemState {
    Begun,
    Done(Value),
    Failed(NodeError),
}

/// A run as its record tells it.
#[derive(Debug)]
pub(crate) struct Replayed {
    pub(crate) started: Started,
    pub(crate) state: Map<String, Value>,
    pub(crate) at: At,
    /// Steps that were begun.
    pub(crate) steps: u64,
    pub(crate) output: Option<Value>,
    pub(crate) end: Option<(Status, Option<NodeError>)>,
    /// Of the foreach that it is within.
    pub(crate) items: BTreeMap<usize, ItemState>,
    /// The gate that it waits at.
    pub(crate) gate: Option<Gate>,
    /// Hooks that were begun, by their number and step, and whether they ended.
    pub(crate) hooks: BTreeMap<(usize, u64), (bool, Effect)>,
    /// Since when the machine runs that the last lines were written on.
    pub(crate) boot: String,
    pub(crate) lines: Vec<Line>,
    pub(crate) seq: u64,
    pub(crate) hash: String,
    /// As much of the file as is whole.
    pub(crate) length: u64,
}

impl Replayed {
    /// The node where it goes on.
    pub(crate) fn node(&self) -> Option<&str> {
        match &self.at {
            At::Before(node) | At::Within { node, .. } => Some(node),
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
                (Some(replayed), event) => replayed.apply(Line {
                    seq: written.seq,
                    at: written.at,
                    event,
                }),
            }
        }
        let Some(mut replayed) = replayed else {
            let why = format!("{} has no beginning", path.display());
            return Err(altered(0, why));
        };
        replayed.hash = hash;
        replayed.length = length;
        Ok(replayed)
    }

    fn begin(started: Started, at: i64) -> Self {
        let line = Line {
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
            output: None,
            end: None,
            items: BTreeMap::new(),
            gate: None,
            hooks: BTreeMap::new(),
            lines: vec![line],
            seq: 1,
            hash: String::new(),
            length: 0,
        }
    }

    fn apply(&mut self, line: Line) {
        self.seq = line.seq;
        match &line.event {
            Event::Resumed { boot, changed } => {
                self.end = None;
                self.boot.clone_from(boot);
                if let Some(changed) = changed {
                    self.started.text.clone_from(&changed.text);
                    self.started.graph_hash.clone_from(&changed.graph_hash);
                }
            }
            Event::Begin { step, node, effect } => {
                self.steps = *step;
                self.items.clear();
                self.at = At::Within {
                    node: node.clone(),
                    effect: *effect,
                };
            }
            Event::ItemBegin { index } => {
                self.items.insert(*index, ItemState::Begun);
            }
            Event::ItemEnd {
                index,
                result,
                error,
            } => {
                let state = match error {
                    Some(error) => ItemState::Failed(error.clone()),
                    None => ItemState::Done(result.clone()),
                };
                self.items.insert(*index, state);
            }
            Event::Gate { gate } => self.gate = Some((**gate).clone()),
            Event::Answered { .. } => self.gate = None,
            Event::Step {
                set, next, output, ..
            } => {
                self.items.clear();
                self.gate = None;
                self.state.extend(set.clone());
                self.output.clone_from(output);
                self.at = match next {
                    Some(next) => At::Before(next.clone()),
                    None => At::Behind,
                };
            }
            Event::HookBegin {
                hook, step, effect, ..
            } => {
                self.hooks.insert((*hook, *step), (false, *effect));
            }
            Event::HookEnd { hook, step, .. } => {
                if let Some(known) = self.hooks.get_mut(&(*hook, *step)) {
                    known.0 = true;
                }
            }
            Event::End {
                status,
                error,
                node,
                ..
            } => {
                if let (Some(node), true) = (node, *status == Status::Failed) {
                    self.at = At::Before(node.clone());
                }
                self.end = Some((*status, error.clone()));
            }
            Event::Started(_)
            | Event::Retry { .. }
            | Event::Warning { .. }
            | Event::Snapshot { .. } => {}
        }
        self.lines.push(line);
    }
}
