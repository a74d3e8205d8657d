//! Where a walk begins: at the start, at a node, or where an earlier one was.

use lillux::keys::SigningKey;
use rye_executor::primitive::Failed;
use serde_json::{Map, Value, json};

use super::{boot, failed, started};
use crate::event::{Changed, Event, Status};
use crate::model::Graph;
use crate::record::{At, Journal, Replayed, Runs};
use crate::walk::{Before, Walk};

/// How a graph is gone through.
#[derive(Debug, Clone, Default)]
pub struct Going {
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
    Over(Value),
}

/// Opens the record of a walk, and finds out where it begins.
pub(super) fn enter(
    walk: &mut Walk<'_>,
    runs: &Runs,
    name: &str,
    going: &Going,
    key: Option<SigningKey>,
    metadata: &mut Map<String, Value>,
) -> Result<Entered, Failed> {
    let folder = runs.folder(name);
    if going.resume.is_some() || runs.has_begun(name) {
        return again(walk, runs, name, going, key, metadata);
    }
    let graph = walk.graph;
    let start = match &going.node {
        Some(node) => known_node(graph, node)?,
        None => graph.nodes[graph.start].name.clone(),
    };
    let (inputs, state) = (walk.inputs.clone(), going.state.clone());
    let started = started(graph, name, &walk.id, inputs, state.clone(), start.clone());
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
    runs: &Runs,
    name: &str,
    going: &Going,
    key: Option<SigningKey>,
    metadata: &mut Map<String, Value>,
) -> Result<Entered, Failed> {
    let found = runs.find(name).map_err(|error| failed(&error))?;
    let (file, replayed) = found.open().map_err(|error| failed(&error))?;
    if replayed.started.graph != walk.id {
        let message = format!("the run {name} is one of {}", replayed.started.graph);
        return Err(Failed::new("other_graph", message));
    }
    if let Some((Status::Completed, _)) = replayed.end {
        if going.resume.is_none() {
            // Asked for once more by the graph that it is a part of.
            let output = replayed.output.clone();
            return Ok(Entered::Over(output.unwrap_or_else(|| visible(&replayed))));
        }
        let message = format!("the run {name} has come to its end");
        return Err(Failed::new("run_is_over", message).hint(format!("rye run status {name}")));
    }
    let changed = changed(walk.graph, &replayed, going, metadata)?;
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
        items: replayed.items.clone(),
        hooks: replayed.hooks.clone(),
        may_miss: replayed.boot != now,
        output: replayed.output.clone(),
    };
    let line = journal.push(Event::Resumed { boot: now, changed });
    walk.journal = Some(journal);
    walk.told(&line);
    walk.inputs = replayed.started.inputs;
    walk.state = replayed.state;
    walk.state.extend(going.state.clone());
    walk.steps = replayed.steps;
    Ok(Entered::At(at))
}

fn visible(replayed: &Replayed) -> Value {
    let own = replayed
        .state
        .iter()
        .filter(|(name, _)| !name.starts_with('_'));
    Value::Object(
        own.map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
    )
}

fn known_node(graph: &Graph, name: &str) -> Result<String, Failed> {
    if graph.index(name).is_some() {
        return Ok(name.to_owned());
    }
    let failed = Failed::new("no_such_node", format!("the graph has no node `{name}`"));
    Err(match crate::problem::nearest(name, graph.names()) {
        Some(near) => failed.hint(format!("did you mean `{near}`?")),
        None => failed,
    })
}

/// Whether the graph is another than the one that was begun. That is refused, with what is
/// different, unless somebody accepts it.
fn changed(
    graph: &Graph,
    replayed: &Replayed,
    going: &Going,
    metadata: &mut Map<String, Value>,
) -> Result<Option<Changed>, Failed> {
    let started = &replayed.started;
    let graph_hash = graph.hash.to_hex();
    if graph_hash == started.graph_hash {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&graph.text).into_owned();
    if going.accept_changed {
        return Ok(Some(Changed { graph_hash, text }));
    }
    let difference = difference(&started.text, &text);
    metadata.insert("difference".into(), json!(difference));
    let run = &started.run;
    let message = format!("the graph is not the one that the run {run} began with");
    let hint = format!("rye graph run --resume {run} --accept-changed");
    Err(Failed::new("graph_changed", message).hint(hint))
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
