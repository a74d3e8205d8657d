//! Runs of graphs, which are recorded in the project.

use std::path::PathBuf;
use std::time::Duration;

use lillux::process::KillOutcome;
use rye_engine::protocol::{Gate, GateStatus, Resolution, short_id};
use rye_graph::{JournalLine, RecordError, RunHandle, RunRecord, RunState, RunStatus, RunStore};
use rye_host::engine::answer_command;
use serde_json::{Value, json};

use super::{GRACE, POLL_INTERVAL};
use crate::cli::args::TailArgs;
use crate::cli::commands::gate::graphs::{resume_command, trust};
use crate::cli::commands::graph::progress::describe;
use crate::cli::context::Context;
use crate::cli::entry_line::describe_action;
use crate::cli::failure::Failure;
use crate::cli::page::{BAD, BOLD, DIM, GOOD, HELP, Page, WARN, paint, sanitize};
use crate::cli::printer::{AlreadyPrinted, Outcome, Report};
use crate::cli::table::Cell;

/// The runs of the current project without nested runs, and those that were started in the
/// background of other projects.
pub(super) fn all(background: &[super::Run], context: &Context) -> Result<Vec<RunRecord>, Failure> {
    let here = context.settings.project();
    let all = RunStore::new(here).all()?.into_iter();
    // Nested runs have a dot in their id.
    let own = all.filter(|run| !run.id.contains('.'));
    let others = background.iter().filter(|run| run.request.project != here);
    let others = others.filter_map(|run| RunStore::new(&run.request.project).find(&run.id).ok());
    Ok(own
        .chain(others)
        .filter_map(|run| run.load().ok())
        .collect())
}

/// The graph run that a background run belongs to, in any project.
pub(super) fn find_for_background(
    run: &super::Run,
    context: &Context,
) -> Result<Option<RunHandle>, Failure> {
    match find(&run.id, context)? {
        None if run.request.project != context.settings.project() => {
            Ok(RunStore::new(&run.request.project).find(&run.id).ok())
        }
        found => Ok(found),
    }
}

/// Finds a run of the current project by its id, or a unique prefix or suffix.
pub(super) fn find(id: &str, context: &Context) -> Result<Option<RunHandle>, Failure> {
    match RunStore::new(context.settings.project()).find(id) {
        Ok(found) => Ok(Some(found)),
        Err(RecordError::NotFound(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Like [`find`], with the failure to return if there is no such run.
pub(super) fn find_or(id: &str, failure: Failure, context: &Context) -> Result<RunHandle, Failure> {
    find(id, context)?.ok_or(failure)
}

/// Whether the background process is what to cancel. A graph that was started in the background
/// may have been resumed elsewhere, or may have ended while its process still exits.
pub(super) fn is_in_background(found: &RunHandle, run: &super::Run) -> Result<bool, Failure> {
    let is_running = run.state() == super::State::Running;
    Ok(match found.clone().load()?.state() {
        RunState::Ended(RunStatus::Completed) => false,
        RunState::Running | RunState::Waiting => is_running,
        RunState::Ended(_) | RunState::Lost => true,
    })
}

/// Formats a time.
pub(super) fn timestamp(millis: i64) -> String {
    lillux::time::format_rfc3339(millis.div_euclid(1000))
}

pub(super) fn state_cell(state: RunState) -> Cell {
    let style = match state {
        RunState::Running | RunState::Waiting => HELP,
        RunState::Ended(RunStatus::Completed) => GOOD,
        RunState::Ended(RunStatus::Failed | RunStatus::TimedOut) => BAD,
        RunState::Ended(_) | RunState::Lost => WARN,
    };
    Cell::styled(style, state.as_str())
}

/// A run as JSON.
pub(super) fn run_json(run: &RunRecord) -> Value {
    json!({
        "id": run.id(),
        "state": run.state().as_str(),
        "item_id": run.graph(),
        "project": run.handle().project().to_string_lossy(),
        "started_at": timestamp(run.started_at()),
        "steps": run.steps(),
        "node": run.node(),
        "record": run.handle().events().to_string_lossy(),
    })
}

pub(super) fn status(run: RunRecord, context: &Context) -> Outcome {
    let trust = trust(run.handle().project(), context)?;
    let gates = run.gate_files().map(|question| {
        let status = question.status(&trust);
        (question.gate, status)
    });
    let project = run.handle().project();
    let other_project = (project != context.settings.project()).then(|| project.to_owned());
    Ok(Box::new(GraphStatus {
        gates: gates.collect(),
        other_project,
        run,
    }))
}

struct GraphStatus {
    run: RunRecord,
    /// The gates of the run, with their current status.
    gates: Vec<(Gate, GateStatus)>,
    /// The project, if it is not the current one.
    other_project: Option<PathBuf>,
}

impl Report for GraphStatus {
    fn json(&self) -> Value {
        let run = &self.run;
        let gates = self.gates.iter().map(|(gate, status)| {
            let mut gate = json!(gate);
            gate["status"] = json!(status);
            gate
        });
        json!({
            "run": run_json(run),
            "inputs": run.inputs(),
            "graph_state": run.graph_state(),
            "output": run.output(),
            "graph_error": run.error(),
            "gates": gates.collect::<Vec<_>>(),
        })
    }

    fn show(&self, page: &mut Page) {
        let run = &self.run;
        page.line(paint(BOLD, format_args!("run {}", short_id(run.id()))));
        let mut field = |name: &str, value: &str| {
            let name = paint(DIM, format!("{name:<8}"));
            page.line(format_args!("  {name} {}", sanitize(value)));
        };
        field("state", run.state().as_str());
        field("graph", run.graph());
        if let Some(project) = &self.other_project {
            field("project", &project.display().to_string());
        }
        field("started", &timestamp(run.started_at()));
        field("steps", &run.steps().to_string());
        if let Some(node) = run.node() {
            field("node", node);
        }
        if let Some(error) = run.error() {
            field("error", &error.message);
        }
        for (gate, status) in &self.gates {
            field("gate", &gate.title);
            match status {
                GateStatus::Resolved { resolution } => {
                    let Resolution { action, by, .. } = resolution;
                    field("decision", &format!("{} by {by}", describe_action(action)));
                }
                GateStatus::Expired { .. } => field("decision", "expired"),
                _ => field("answer", &answer_command(gate)),
            }
        }
        field("record", &run.handle().events().display().to_string());
        let state = Value::Object(run.graph_state().clone());
        let shown = run.output().unwrap_or(&state);
        let text = serde_json::to_string_pretty(shown).unwrap_or_default();
        page.line("");
        page.line(sanitize(&text));
    }

    fn next_command(&self) -> Option<String> {
        match self.run.state() {
            RunState::Ended(RunStatus::Completed) => None,
            RunState::Running | RunState::Waiting => {
                Some(format!("rye run tail {} --follow", short_id(self.run.id())))
            }
            RunState::Lost | RunState::Ended(_) => {
                Some(resume_command(self.run.id(), self.other_project.as_deref()))
            }
        }
    }
}

/// Prints the steps of a run; with `--follow`, until it ends.
pub(super) fn tail(
    run: &RunRecord,
    background: Option<&super::Run>,
    args: &TailArgs,
    context: &Context,
) -> Outcome {
    if context.printer.json {
        let lines: Vec<&JournalLine> = run.lines().iter().collect();
        let run = run_json(run);
        return Ok(Box::new(Tail(json!({ "run": run, "lines": lines }))));
    }
    let mut printed = 0;
    let mut now;
    let mut current = run;
    loop {
        // Read the state first: lines written before the end are then printed below.
        let is_starting = background.is_some_and(|run| run.state() == super::State::Running);
        let is_over = !current.state().is_live() && !is_starting;
        let mut text = String::new();
        for line in current.lines().iter().skip(printed).filter_map(describe) {
            text.push_str(&line);
            text.push('\n');
        }
        printed = current.lines().len();
        context.printer.print_stdout(&text).map_err(|error| {
            let message = format_args!("cannot write to standard output: {error}");
            Failure::failed("io", message)
        })?;
        if !args.follow || is_over {
            return Ok(Box::new(AlreadyPrinted));
        }
        let events = [current.handle().events()];
        if lillux::watch::wait_for_change(&events, Some(Duration::from_secs(1))).is_err() {
            std::thread::sleep(POLL_INTERVAL);
        }
        now = current.handle().clone().load()?;
        current = &now;
    }
}

/// Cancels a run: signals the process that runs it. The process completes its step and saves the
/// state.
pub(super) fn cancel(found: RunHandle, context: &Context) -> Outcome {
    let run = found.clone().load()?;
    let id = short_id(run.id());
    if !run.state().is_live() {
        let message = format!("run {id} has already ended: {}", run.state().as_str());
        let failure = Failure::failed("not_running", message);
        return Err(failure.hint(format!("rye run status {id}")));
    }
    if let Some(handle) = found.process() {
        let killed = handle.kill(GRACE);
        let killed = killed.map_err(|error| Failure::failed("kill", error))?;
        if killed == KillOutcome::AlreadyDead {
            let message = format!("run {id} has already ended");
            return Err(Failure::failed("not_running", message));
        }
    }
    status(found.load()?, context)
}

struct Tail(Value);

impl Report for Tail {
    fn json(&self) -> Value {
        self.0.clone()
    }

    fn show(&self, _: &mut Page) {}
}
