//! Starts a new run or resumes an existing one.

use std::collections::BTreeMap;

use lillux::Hash;
use lillux::keys::SigningKey;
use rye_executor::primitive::CallFailure;
use rye_protocol::short_id;
use serde_json::{Map, Value, json};

use super::{boot_id, failure, run_start};
use crate::definition::Graph;
use crate::event::{Event, GraphChange, RunStatus};
use crate::record::{Journal, Position, Replay, RunRecord, RunStore};
use crate::walk::{Progress, RunResult, Walker};

/// Number of node names that an error lists.
const MAX_LISTED: usize = 20;

/// Options of a run.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// Full id of the run to resume.
    pub resume: Option<String>,
    /// Resume even if the graph changed.
    pub accept_changed: bool,
    /// Pause after this number of steps.
    pub steps: Option<u64>,
    /// Start at this node.
    pub node: Option<String>,
    /// Initial state, or state values to override.
    pub state: Map<String, Value>,
}

/// Where the execution starts.
pub(super) enum Entry {
    /// Continue from this position.
    Continue(Position),
    /// The run is complete already.
    Finished(Box<RunResult>),
}

/// Creates or opens the journal of a run and determines where it starts.
pub(super) fn start_or_resume(
    walker: &mut Walker<'_>,
    runs: &RunStore,
    run_id: &str,
    options: &RunOptions,
    key: Option<SigningKey>,
    metadata: &mut Map<String, Value>,
) -> Result<Entry, CallFailure> {
    let run_dir = runs.run_dir(run_id);
    runs.create_dirs(Some(run_id))
        .map_err(|error| failure(&error))?;
    if options.resume.is_some() || runs.has_started(run_id, key.is_some()) {
        return resume(walker, runs, run_id, options, key, metadata);
    }
    let graph = walker.graph;
    let start = match &options.node {
        Some(node) => known_node(graph, node)?,
        None => graph.nodes[graph.start].name.clone(),
    };
    let (inputs, state) = (walker.inputs.clone(), options.state.clone());
    let start_event = run_start(
        graph,
        run_id,
        &walker.id,
        inputs,
        state.clone(),
        start.clone(),
    );
    runs.write_gitignore().map_err(|error| failure(&error))?;
    let journal = Journal::create(&run_dir, &runs.store(), key, start_event);
    let (journal, line) = journal.map_err(|error| failure(&error))?;
    walker.journal = Some(journal);
    walker.notify(&line);
    walker.state = state;
    Ok(Entry::Continue(Position::Before(start)))
}

/// Resumes a run.
fn resume(
    walker: &mut Walker<'_>,
    runs: &RunStore,
    run_id: &str,
    options: &RunOptions,
    key: Option<SigningKey>,
    metadata: &mut Map<String, Value>,
) -> Result<Entry, CallFailure> {
    let handle = runs.find(run_id).map_err(|error| failure(&error))?;
    let opened = handle.open(runs, &*walker.trust, key.is_some());
    let (file, replay) = opened.map_err(|error| failure(&error))?;
    if replay.started.graph != walker.id {
        let message = format!("run {run_id} belongs to the graph {}", replay.started.graph);
        return Err(CallFailure::new("other_graph", message));
    }
    // The enclosing graph may repeat the call if its process died before it journaled the result.
    if options.resume.is_none()
        && let Some(result) = finished_result(&replay)
    {
        return Ok(Entry::Finished(Box::new(result)));
    }
    let graph = walker.graph;
    let changed = check_resumable(&replay, &graph.text, &graph.hash, options.accept_changed);
    let changed = changed.map_err(|error| {
        if let Some(diff) = error.diff {
            metadata.insert("diff".into(), json!(diff));
        }
        error.failure
    })?;
    let mut position = replay.position.clone();
    if let Some(node) = &options.node {
        position = Position::Before(known_node(walker.graph, node)?);
    } else if let Some(node) = replay.node() {
        known_node(walker.graph, node)?;
    }
    let journal = Journal::reopen(handle.run_dir(), &runs.store(), key, &replay, file);
    let mut journal = journal.map_err(|error| failure(&error))?;
    let boot = boot_id();
    walker.progress = Progress {
        // Item results apply only to the interrupted node.
        items: match options.node {
            Some(_) => BTreeMap::new(),
            None => replay.items.clone(),
        },
        hooks: replay.hooks.clone(),
        may_miss_lines: replay.boot != boot,
        was_interrupted: replay.was_interrupted,
        gates: replay.gates.clone(),
        error: replay.error.clone(),
        output: replay.output.clone(),
    };
    let line = journal.push(Event::Resumed {
        boot,
        changed,
        node: options.node.clone(),
        state: options.state.clone(),
    });
    for (index, effect) in replay.unsigned_items {
        journal.push(Event::ItemBegin { index, effect });
    }
    walker.journal = Some(journal);
    walker.notify(&line);
    walker.inputs = replay.started.inputs;
    walker.state = replay.state;
    walker.state.extend(options.state.clone());
    walker.steps = replay.steps;
    walker.steps_since_stop = replay.steps_since_stop;
    Ok(Entry::Continue(position))
}

/// The result of a run that ended in an orderly way.
fn finished_result(replay: &Replay) -> Option<RunResult> {
    let (status, error) = replay.end.clone()?;
    if replay.was_interrupted || status == RunStatus::Paused {
        return None;
    }
    let mut own = replay.state.clone();
    own.retain(|name, _| !name.starts_with('_'));
    Some(RunResult {
        status,
        output: replay.output.clone().unwrap_or(Value::Object(own)),
        error,
        node: replay.node().map(str::to_owned),
        state: replay.state.clone(),
        steps: replay.steps,
        warnings: Vec::new(),
    })
}

fn known_node(graph: &Graph, name: &str) -> Result<String, CallFailure> {
    if graph.index(name).is_some() {
        return Ok(name.to_owned());
    }
    let failure = CallFailure::new("no_such_node", format!("the graph has no node `{name}`"));
    let near = crate::problem::nearest(name, graph.node_names());
    let names: Vec<_> = graph.node_names().take(MAX_LISTED).collect();
    let hint = near.map_or_else(
        || format!("nodes: {}", names.join(", ")),
        |near| format!("did you mean `{near}`?"),
    );
    Err(failure.with_hint(hint))
}

/// Why a run cannot be resumed.
#[derive(Debug)]
pub struct ResumeError {
    /// The failure to report.
    pub failure: CallFailure,
    /// Unified diff of the graph, if it changed.
    pub diff: Option<String>,
}

impl RunRecord {
    /// Checks whether the run can be resumed with the current version of its graph.
    pub fn check_resumable(
        &self,
        graph: &[u8],
        hash: &Hash,
        accept_changed: bool,
    ) -> Result<(), ResumeError> {
        check_resumable(self.replay(), graph, hash, accept_changed).map(drop)
    }
}

/// Checks that the run is not complete and that its graph is unchanged, or that the change is
/// accepted.
fn check_resumable(
    replay: &Replay,
    text: &[u8],
    hash: &Hash,
    accept_changed: bool,
) -> Result<Option<GraphChange>, ResumeError> {
    let started = &replay.started;
    let run = &started.run;
    if let Some((RunStatus::Completed, _)) = replay.end {
        let failure = CallFailure::new("run_completed", format!("run {run} is complete"));
        return Err(ResumeError {
            failure: failure.with_hint(format!("rye run status {}", short_id(run))),
            diff: None,
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
    let message = format!("the graph changed since run {run} started");
    let hint = format!("rye graph run --resume {} --accept-changed", short_id(run));
    Err(ResumeError {
        failure: CallFailure::new("graph_changed", message).with_hint(hint),
        diff: Some(unified_diff(&started.text, &text)),
    })
}

/// Unified diff of two versions of a graph, without signatures.
fn unified_diff(before: &str, now: &str) -> String {
    let content = |text: &str| -> String {
        let lines = text.split_inclusive('\n');
        lines.filter(|line| !line.contains("rye:signed:")).collect()
    };
    let (before, now) = (content(before), content(now));
    let diff = similar::TextDiff::from_lines(&before, &now);
    diff.unified_diff().context_radius(1).to_string()
}
