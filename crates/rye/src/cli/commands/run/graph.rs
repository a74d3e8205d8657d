//! RunStore of graphs, which the project keeps itself.

use std::path::PathBuf;
use std::time::Duration;

use lillux::process::Killed;
use rye_engine::protocol::{Gate, GateStatus, Resolution};
use rye_graph::{JournalLine, RecordError, RunHandle, RunRecord, RunState, RunStatus, RunStore};
use serde_json::{Value, json};

use super::{GRACE, LOOK};
use crate::cli::args::TailArgs;
use crate::cli::commands::gate::graphs::{resume, trust};
use crate::cli::commands::graph::progress::told;
use crate::cli::context::Context;
use crate::cli::engine::how_to_answer;
use crate::cli::failure::Failure;
use crate::cli::page::{BAD, BOLD, DIM, GOOD, HELP, Page, WARN, paint, plain};
use crate::cli::printer::{Outcome, Report, Written};
use crate::cli::table::Cell;

/// All of the project, but for those that are parts of others; and those that were begun in
/// the background of other projects.
pub(super) fn all(background: &[super::Run], context: &Context) -> Result<Vec<RunRecord>, Failure> {
    let here = context.settings.project();
    let all = RunStore::new(here).all()?.into_iter();
    // One whose record cannot be read is told of by its name.
    let own = all.filter(|run| !run.id.contains('.'));
    let others = background.iter().filter(|run| run.asked.project != here);
    let others = others.filter_map(|run| RunStore::new(&run.asked.project).find(&run.id).ok());
    Ok(own
        .chain(others)
        .filter_map(|run| run.read().ok())
        .collect())
}

/// That of a graph which was begun in the background, in whichever project.
pub(super) fn of_background(
    run: &super::Run,
    context: &Context,
) -> Result<Option<RunHandle>, Failure> {
    match found(&run.id, context)? {
        None if run.asked.project != context.settings.project() => {
            Ok(RunStore::new(&run.asked.project).find(&run.id).ok())
        }
        found => Ok(found),
    }
}

/// The one whose id begins so, if there is one.
pub(super) fn found(id: &str, context: &Context) -> Result<Option<RunHandle>, Failure> {
    match RunStore::new(context.settings.project()).find(id) {
        Ok(found) => Ok(Some(found)),
        Err(RecordError::NotFound(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The same, or the failure to find any run.
pub(super) fn find(id: &str, failure: Failure, context: &Context) -> Result<RunHandle, Failure> {
    found(id, context)?.ok_or(failure)
}

/// Whether the run in the background is all that there is to end: begun there, a graph may
/// have gone on elsewhere, or be at its end while its process leaves.
pub(super) fn is_in_background(found: &RunHandle, run: &super::Run) -> Result<bool, Failure> {
    let is_running = run.state() == super::State::Running;
    Ok(match found.clone().read()?.state() {
        RunState::Ended(RunStatus::Completed) => false,
        RunState::Running | RunState::Waiting => is_running,
        RunState::Ended(_) | RunState::Lost => true,
    })
}

/// A moment as people and scripts read it.
pub(super) fn moment(millis: i64) -> String {
    lillux::time::seconds(millis.div_euclid(1000))
}

pub(super) fn standing_cell(standing: RunState) -> Cell {
    let style = match standing {
        RunState::Running | RunState::Waiting => HELP,
        RunState::Ended(RunStatus::Completed) => GOOD,
        RunState::Ended(RunStatus::Failed | RunStatus::TimedOut) => BAD,
        RunState::Ended(_) | RunState::Lost => WARN,
    };
    Cell::styled(style, standing.as_str())
}

/// A run for scripts.
pub(super) fn about(run: &RunRecord) -> Value {
    json!({
        "id": run.id(),
        "state": run.state().as_str(),
        "item_id": run.graph(),
        "project": run.found().project().to_string_lossy(),
        "started_at": moment(run.started_at()),
        "steps": run.steps(),
        "node": run.node(),
        "record": run.found().events().to_string_lossy(),
    })
}

pub(super) fn status(run: RunRecord, context: &Context) -> Outcome {
    let trust = trust(run.found().project(), context)?;
    let asked = run.gate_files().map(|question| {
        let status = question.status(&trust);
        (question.gate, status)
    });
    let project = run.found().project();
    let elsewhere = (project != context.settings.project()).then(|| project.to_owned());
    Ok(Box::new(Shown {
        asked: asked.collect(),
        elsewhere,
        run,
    }))
}

struct Shown {
    run: RunRecord,
    /// What it asks, and how that stands.
    asked: Vec<(Gate, GateStatus)>,
    /// Its project, where that is another.
    elsewhere: Option<PathBuf>,
}

impl Report for Shown {
    fn json(&self) -> Value {
        let run = &self.run;
        let gates = self.asked.iter().map(|(gate, status)| {
            let mut gate = json!(gate);
            gate["status"] = json!(status);
            gate
        });
        json!({
            "run": about(run),
            "inputs": run.inputs(),
            "graph_state": run.graph_state(),
            "output": run.output(),
            "graph_error": run.error(),
            "gates": gates.collect::<Vec<_>>(),
        })
    }

    fn show(&self, page: &mut Page) {
        let run = &self.run;
        page.line(paint(BOLD, run.id()));
        let mut about = |name: &str, value: &str| {
            let name = paint(DIM, format!("{name:<8}"));
            page.line(format_args!("  {name} {}", plain(value)));
        };
        about("state", run.state().as_str());
        about("graph", run.graph());
        if let Some(project) = &self.elsewhere {
            about("project", &project.display().to_string());
        }
        about("started", &moment(run.started_at()));
        about("steps", &run.steps().to_string());
        if let Some(node) = run.node() {
            about("node", node);
        }
        if let Some(error) = run.error() {
            about("error", &error.message);
        }
        for (gate, status) in &self.asked {
            about("asks", &gate.title);
            match status {
                GateStatus::Resolved { resolution } => {
                    let Resolution { action, by, .. } = resolution;
                    about("answered", &format!("{action}, by {by}"));
                }
                GateStatus::Expired { .. } => about("answered", "nobody did in time"),
                _ => about("answer", &how_to_answer(gate)),
            }
        }
        about("record", &run.found().events().display().to_string());
        let state = Value::Object(run.graph_state().clone());
        let shown = run.output().unwrap_or(&state);
        let text = serde_json::to_string_pretty(shown).unwrap_or_default();
        page.line("");
        page.line(plain(&text));
    }

    fn next(&self) -> Option<String> {
        match self.run.state() {
            RunState::Ended(RunStatus::Completed) => None,
            RunState::Running | RunState::Waiting => {
                Some(format!("rye run tail {} --follow", self.run.id()))
            }
            RunState::Lost | RunState::Ended(_) => {
                Some(resume(self.run.id(), self.elsewhere.as_deref()))
            }
        }
    }
}

/// Tells what a run did, and with `--follow` what it does.
pub(super) fn tail(
    run: &RunRecord,
    background: Option<&super::Run>,
    args: &TailArgs,
    context: &Context,
) -> Outcome {
    if context.printer.json {
        let lines: Vec<&JournalLine> = run.lines().iter().collect();
        return Ok(Box::new(Tail(json!({ "run": about(run), "lines": lines }))));
    }
    let mut seen = 0;
    let mut now;
    let mut current = run;
    loop {
        // Asked before what is new is told: what is written before the end is told after it.
        let is_about_to = background.is_some_and(|run| run.state() == super::State::Running);
        let is_over = !current.state().is_live() && !is_about_to;
        let mut text = String::new();
        for words in current.lines().iter().skip(seen).filter_map(told) {
            text.push_str(&words);
            text.push('\n');
        }
        seen = current.lines().len();
        context.printer.beside(&text).map_err(|error| {
            let message = format_args!("cannot write to standard output: {error}");
            Failure::failed("io", message)
        })?;
        if !args.follow || is_over {
            return Ok(Box::new(Written));
        }
        let events = [current.found().events()];
        if lillux::watch::paths(&events, Some(Duration::from_secs(1))).is_err() {
            std::thread::sleep(LOOK);
        }
        now = current.found().clone().read()?;
        current = &now;
    }
}

/// Asks the process that walks a run to end. Its step ends, and the state is kept.
pub(super) fn cancel(found: RunHandle, context: &Context) -> Outcome {
    let run = found.clone().read()?;
    let id = run.id().to_owned();
    if !run.state().is_live() {
        let message = format!("the run {id} is over: {}", run.state().as_str());
        let failure = Failure::failed("not_running", message);
        return Err(failure.hint(format!("rye run status {id}")));
    }
    if let Some(handle) = found.process() {
        let killed = handle.kill(GRACE);
        let killed = killed.map_err(|error| Failure::failed("kill", error))?;
        if killed == Killed::AlreadyDead {
            let message = format!("the run {id} is over");
            return Err(Failure::failed("not_running", message));
        }
    }
    status(found.read()?, context)
}

struct Tail(Value);

impl Report for Tail {
    fn json(&self) -> Value {
        self.0.clone()
    }

    fn show(&self, _: &mut Page) {}
}
