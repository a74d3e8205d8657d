//! Starts a new run or resumes an existing one.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use lillux::Hash;
use lillux::keys::SigningKey;
use rye_engine::record::{NewRecord, Recorder};
use rye_engine::store::SessionStore;
use rye_executor::primitive::CallFailure;
use rye_protocol::{
    GraphChange, Parent, Purpose, Run, RunEvent, RunStart, RunStatus, SessionId, short_id,
};
use serde_json::{Map, Value, json};

use super::failure;
use crate::definition::Graph;
use crate::error::RecordError;
use crate::history::{Position, Replay, RunRecord, check_record};
use crate::journal::Journal;
use crate::walk::{Progress, RunResult, Walker};

/// Id of the thread of a run.
const THREAD: &str = "graph";

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
pub(crate) enum Entry {
    /// Continue from this position.
    Continue(Position),
    /// The run is complete already.
    Finished(Box<RunResult>),
}

/// What a run is recorded with.
pub(crate) struct RunSetup<'a> {
    pub(crate) store: Arc<dyn SessionStore>,
    pub(crate) project: &'a Path,
    pub(crate) run_id: &'a str,
    pub(crate) options: &'a RunOptions,
    pub(crate) key: Option<Arc<SigningKey>>,
}

impl RunSetup<'_> {
    fn session(&self) -> Result<SessionId, CallFailure> {
        let id = self.run_id.parse();
        id.map_err(|error: rye_protocol::IdError| CallFailure::new("bad_run", error.to_string()))
    }

    /// The session of a new run. The id of a nested run is the id of its parent, a dot and its
    /// step.
    fn new_record(&self, graph: &str, depth: u32) -> Result<NewRecord, CallFailure> {
        let parent = self.run_id.rsplit_once('.').filter(|_| depth > 0);
        let parent = parent.and_then(|(parent, _)| {
            Some(Parent {
                session: parent.parse().ok()?,
                thread: THREAD.parse().ok()?,
            })
        });
        Ok(NewRecord {
            id: self.session()?,
            purpose: Purpose::Workflow,
            run: Run::new(graph),
            project: self.project.to_string_lossy().into_owned(),
            parent,
            depth,
            thread: THREAD,
        })
    }
}

/// Creates or opens the session of a run and determines where it starts.
pub(crate) async fn start_or_resume(
    walker: &mut Walker<'_>,
    setup: &RunSetup<'_>,
    metadata: &mut Map<String, Value>,
) -> Result<Entry, CallFailure> {
    let id = setup.session()?;
    let fail = |error: RecordError| failure(&error);
    let opened = Recorder::open(Arc::clone(&setup.store), &id, setup.key.clone());
    let opened = opened.await.map_err(|error| fail(error.into()))?;
    let recorder = match opened {
        Some(recorder) => {
            let entries = recorder
                .entries()
                .await
                .map_err(|error| fail(error.into()))?;
            if let Some(replay) = Replay::from_entries(entries) {
                return resume(walker, setup, recorder, replay, metadata).await;
            }
            // Another process has created the session, but the graph has not started.
            recorder
        }
        None if setup.options.resume.is_some() => {
            return Err(fail(RecordError::NotFound(setup.run_id.to_owned())));
        }
        None => {
            let new = setup.new_record(&walker.id, walker.depth)?;
            let created = Recorder::create(Arc::clone(&setup.store), new, setup.key.clone());
            created.await.map_err(|error| fail(error.into()))?
        }
    };
    let graph = walker.graph;
    let start = match &setup.options.node {
        Some(node) => match known_node(graph, node) {
            Ok(node) => node,
            Err(failure) => return Err(release(recorder, failure).await),
        },
        None => graph.nodes[graph.start].name.clone(),
    };
    let state = setup.options.state.clone();
    walker.journal = Some(Journal::new(recorder, 0, Some(start.clone()), 0));
    walker.record(RunEvent::Started(Box::new(RunStart {
        graph: walker.id.clone(),
        graph_hash: graph.hash.to_hex(),
        text: String::from_utf8_lossy(&graph.text).into_owned(),
        inputs: walker.inputs.clone(),
        state: state.clone(),
        start: start.clone(),
    })));
    walker.state = state;
    Ok(Entry::Continue(Position::Before(start)))
}

/// Releases the session of a run that cannot start.
async fn release(recorder: Recorder, failure: CallFailure) -> CallFailure {
    // The failure matters more than a lease that cannot be released.
    let _ = recorder.release().await;
    failure
}

/// Resumes a run.
async fn resume(
    walker: &mut Walker<'_>,
    setup: &RunSetup<'_>,
    recorder: Recorder,
    replay: Replay,
    metadata: &mut Map<String, Value>,
) -> Result<Entry, CallFailure> {
    let plan = plan_resume(walker, setup, &recorder, &replay, metadata).await;
    let (position, changed) = match plan {
        Ok(Some(plan)) => plan,
        // The enclosing graph may repeat the call if its process died before it recorded the
        // result.
        Ok(None) => {
            let result = finished_result(&replay);
            recorder
                .release()
                .await
                .map_err(|error| failure(&error.into()))?;
            let gone = || failure(&RecordError::NotFound(setup.run_id.to_owned()));
            return Ok(Entry::Finished(Box::new(result.ok_or_else(gone)?)));
        }
        Err(failure) => return Err(release(recorder, failure).await),
    };
    let options = setup.options;
    walker.progress = Progress {
        // Item results apply only to the interrupted node.
        items: match options.node {
            Some(_) => BTreeMap::new(),
            None => replay.items.clone(),
        },
        hooks: replay.hooks.clone(),
        was_interrupted: replay.was_interrupted,
        error: replay.error.clone(),
        output: replay.output.clone(),
    };
    let node = replay.node().map(str::to_owned);
    let seq = replay.lines.len() as u64;
    walker.journal = Some(Journal::new(recorder, seq, node, replay.steps));
    walker.record(RunEvent::Resumed {
        changed,
        node: options.node.clone(),
        state: options.state.clone(),
    });
    walker.inputs = replay.started.inputs;
    walker.state = replay.state;
    walker.state.extend(options.state.clone());
    walker.steps = replay.steps;
    walker.steps_since_stop = replay.steps_since_stop;
    Ok(Entry::Continue(position))
}

/// Checks that a run can be resumed, and where; `None` if it is complete already.
async fn plan_resume(
    walker: &Walker<'_>,
    setup: &RunSetup<'_>,
    recorder: &Recorder,
    replay: &Replay,
    metadata: &mut Map<String, Value>,
) -> Result<Option<(Position, Option<GraphChange>)>, CallFailure> {
    let (options, run_id) = (setup.options, setup.run_id);
    let id = &recorder.session().id;
    let checked = check_record(&setup.store, id, &*walker.trust, setup.key.is_some());
    checked.await.map_err(|error| failure(&error))?;
    if replay.started.graph != walker.id {
        let message = format!("run {run_id} belongs to the graph {}", replay.started.graph);
        return Err(CallFailure::new("other_graph", message));
    }
    if options.resume.is_none() && finished_result(replay).is_some() {
        return Ok(None);
    }
    let graph = walker.graph;
    let changed = check_resumable(
        replay,
        run_id,
        &graph.text,
        &graph.hash,
        options.accept_changed,
    );
    let changed = changed.map_err(|error| {
        if let Some(diff) = error.diff {
            metadata.insert("diff".into(), json!(diff));
        }
        error.failure
    })?;
    let mut position = replay.position.clone();
    if let Some(node) = &options.node {
        position = Position::Before(known_node(graph, node)?);
    } else if let Some(node) = replay.node() {
        known_node(graph, node)?;
    }
    Ok(Some((position, changed)))
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
        let run = self.session().id.as_str();
        check_resumable(self.replay(), run, graph, hash, accept_changed).map(drop)
    }
}

/// Checks that the run is not complete and that its graph is unchanged, or that the change is
/// accepted.
fn check_resumable(
    replay: &Replay,
    run: &str,
    text: &[u8],
    hash: &Hash,
    accept_changed: bool,
) -> Result<Option<GraphChange>, ResumeError> {
    let started = &replay.started;
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
