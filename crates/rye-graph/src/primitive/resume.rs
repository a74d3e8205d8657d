//! Where a walk begins: at the start, at a node, or where an earlier one was.

use std::collections::BTreeMap;

use lillux::Hash;
use lillux::keys::SigningKey;
use rye_executor::primitive::CallFailure;
use rye_protocol::short_id;
use serde_json::{Map, Value, json};

use super::{boot, failed, started};
use crate::event::{Event, GraphChange, RunStatus};
use crate::model::Graph;
use crate::record::{At, Journal, Replayed, RunRecord, RunStore};
use crate::walk::{Before, RunResult, Walk};

/// So many nodes are named to who names none that there is.
const NAMED: usize = 20;

/// How a graph is gone through.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// Go on with this run, whose whole id this is.
    pub resume: Option<String>,
    /// Go on though the graph is not what it was.
    pub accept_changed: bool,
    /// Take so many steps, and pause.
    pub steps: Option<u64>,
    /// Begin at this node.
    pub node: Option<String>,
    /// Begin with this state.
    pub state: Map<String, Value>,
}

pub(super) enum Entered {
    /// From here on.
    At(At),
    /// There is nothing left to do.
    Over(Box<RunResult>),
}

/// Opens the record of a walk, and finds out where it begins.
pub(super) fn enter(
    walk: &mut Walk<'_>,
    runs: &RunStore,
    name: &str,
    going: &RunOptions,
    key: Option<SigningKey>,
    metadata: &mut Map<String, Value>,
) -> Result<Entered, CallFailure> {
    let folder = runs.folder(name);
    runs.create(Some(name)).map_err(|error| failed(&error))?;
    if going.resume.is_some() || runs.has_begun(name, key.is_some()) {
        return again(walk, runs, name, going, key, metadata);
    }
    let graph = walk.graph;
    let start = match &going.node {
        Some(node) => known_node(graph, node)?,
        None => graph.nodes[graph.start].name.clone(),
    };
    let (inputs, state) = (walk.inputs.clone(), going.state.clone());
    let started = started(graph, name, &walk.id, inputs, state.clone(), start.clone());
    runs.hide().map_err(|error| failed(&error))?;
    let journal = Journal::create(&folder, &runs.store(), key, started);
    let (journal, line) = journal.map_err(|error| failed(&error))?;
    walk.journal = Some(journal);
    walk.told(&line);
    walk.state = state;
    Ok(Entered::At(At::Before(start)))
}

/// Goes on with a run.
fn again(
    walk: &mut Walk<'_>,
    runs: &RunStore,
    name: &str,
    going: &RunOptions,
    key: Option<SigningKey>,
    metadata: &mut Map<String, Value>,
) -> Result<Entered, CallFailure> {
    let found = runs.find(name).map_err(|error| failed(&error))?;
    let opened = found.open(runs, &*walk.trust, key.is_some());
    let (file, replayed) = opened.map_err(|error| failed(&error))?;
    if replayed.started.graph != walk.id {
        let message = format!("the run {name} is one of {}", replayed.started.graph);
        return Err(CallFailure::new("other_graph", message));
    }
    // Asked for once more by the graph that it is a part of, whose process died before it
    // could write down what came of it.
    if going.resume.is_none()
        && let Some(over) = over(&replayed)
    {
        return Ok(Entered::Over(Box::new(over)));
    }
    let graph = walk.graph;
    let changed = check_resumable(&replayed, &graph.text, &graph.hash, going.accept_changed);
    let changed = changed.map_err(|refusal| {
        if let Some(difference) = refusal.difference {
            metadata.insert("difference".into(), json!(difference));
        }
        refusal.why
    })?;
    let mut at = replayed.at.clone();
    if let Some(node) = &going.node {
        at = At::Before(known_node(walk.graph, node)?);
    } else if let Some(node) = replayed.node() {
        known_node(walk.graph, node)?;
    }
    let journal = Journal::reopen(found.folder(), &runs.store(), key, &replayed, file);
    let mut journal = journal.map_err(|error| failed(&error))?;
    let now = boot();
    walk.before = Before {
        // Those of the node that it was within, and of no other.
        items: match going.node {
            Some(_) => BTreeMap::new(),
            None => replayed.items.clone(),
        },
        hooks: replayed.hooks.clone(),
        may_miss: replayed.boot != now,
        is_cut_short: replayed.is_cut_short,
        gates: replayed.gates.clone(),
        error: replayed.error.clone(),
        output: replayed.output.clone(),
    };
    let line = journal.push(Event::Resumed {
        boot: now,
        changed,
        node: going.node.clone(),
        state: going.state.clone(),
    });
    for (index, effect) in replayed.doubtful {
        journal.push(Event::ItemBegin { index, effect });
    }
    walk.journal = Some(journal);
    walk.told(&line);
    walk.inputs = replayed.started.inputs;
    walk.state = replayed.state;
    walk.state.extend(going.state.clone());
    walk.steps = replayed.steps;
    walk.taken = replayed.taken;
    Ok(Entered::At(at))
}

/// How a run ended that came to an end of its own.
fn over(replayed: &Replayed) -> Option<RunResult> {
    let (status, error) = replayed.end.clone()?;
    if replayed.is_cut_short || status == RunStatus::Paused {
        return None;
    }
    let mut own = replayed.state.clone();
    own.retain(|name, _| !name.starts_with('_'));
    Some(RunResult {
        status,
        output: replayed.output.clone().unwrap_or(Value::Object(own)),
        error,
        node: replayed.node().map(str::to_owned),
        state: replayed.state.clone(),
        steps: replayed.steps,
        warnings: Vec::new(),
    })
}

fn known_node(graph: &Graph, name: &str) -> Result<String, CallFailure> {
    if graph.index(name).is_some() {
        return Ok(name.to_owned());
    }
    let failed = CallFailure::new("no_such_node", format!("the graph has no node `{name}`"));
    let near = crate::problem::nearest(name, graph.names());
    let names: Vec<_> = graph.names().take(NAMED).collect();
    let hint = near.map_or_else(
        || format!("there are {}", names.join(", ")),
        |near| format!("did you mean `{near}`?"),
    );
    Err(failed.with_hint(hint))
}

/// Why a run does not go on.
#[derive(Debug)]
pub struct ResumeError {
    /// It.
    pub why: CallFailure,
    /// What is different about its graph, where that is why.
    pub difference: Option<String>,
}

impl RunRecord {
    /// Whether it could go on with its graph as it is now, for those who want to know before
    /// they try.
    pub fn check_resumable(
        &self,
        graph: &[u8],
        hash: &Hash,
        accept_changed: bool,
    ) -> Result<(), ResumeError> {
        check_resumable(self.replayed(), graph, hash, accept_changed).map(drop)
    }
}

/// A run that is over does not go on. One whose graph is another than the one that was begun
/// does not either, and what is different is told, unless somebody accepts it.
fn check_resumable(
    replayed: &Replayed,
    text: &[u8],
    hash: &Hash,
    accept_changed: bool,
) -> Result<Option<GraphChange>, ResumeError> {
    let started = &replayed.started;
    let run = &started.run;
    if let Some((RunStatus::Completed, _)) = replayed.end {
        let why = CallFailure::new("run_is_over", format!("the run {run} has come to its end"));
        return Err(ResumeError {
            why: why.with_hint(format!("rye run status {}", short_id(run))),
            difference: None,
        });
    }
    let graph_hash = hash.to_hex();
    if graph_hash == started.graph_hash {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(text).into_owned();
    if accept_changed {
        return Ok(Some(GraphChange { graph_hash, text }));
    }
    let message = format!("the graph is not the one that the run {run} began with");
    let hint = format!("rye graph run --resume {} --accept-changed", short_id(run));
    Err(ResumeError {
        why: CallFailure::new("graph_changed", message).with_hint(hint),
        difference: Some(difference(&started.text, &text)),
    })
}

/// The lines that differ, but for signatures.
fn difference(before: &str, now: &str) -> String {
    let content = |text: &str| -> String {
        let lines = text.split_inclusive('\n');
        lines.filter(|line| !line.contains("rye:signed:")).collect()
    };
    let (before, now) = (content(before), content(now));
    let diff = similar::TextDiff::from_lines(&before, &now);
    diff.unified_diff().context_radius(1).to_string()
}
