//! `rye run`: runs in the background and runs of graphs.

mod graph;
mod list;
mod lookup;
pub(crate) mod record;
mod verify;

use std::fs::File;
use std::io::{self, Read as _};
use std::time::Duration;

use lillux::PathContext as _;
use lillux::process::KillOutcome;
use rye_engine::protocol::short_id;
use rye_executor::{ExecutionResult, OutputListener};
use rye_graph::RunOptions;
use rye_host::lookup::not_found;
use serde_json::{Value, json};

use super::execute;
use crate::cli::args::{RunCommand, TailArgs};
use crate::cli::context::Context;
use crate::cli::failure::{Exit, Failure};
use crate::cli::page::{BAD, BOLD, DIM, GOOD, HELP, Page, WARN, paint, sanitize};
use crate::cli::printer::{AlreadyPrinted, Outcome, Printer, Report};
use crate::cli::table::Cell;
use list::List;
use lookup::FoundRun;
use record::{Run, Runs, State};

/// How long a cancelled run has before it is killed.
const GRACE: Duration = Duration::from_secs(3);
/// Poll interval for output that is being written; the end of a run is noticed at once.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

pub(crate) fn run(command: &RunCommand, context: &Context) -> Outcome {
    let runs = Runs::new(context)?;
    match command {
        RunCommand::List => {
            let background = runs.all()?;
            let graphs = graph::all(&background, context)?;
            Ok(Box::new(List::new(background, graphs)))
        }
        RunCommand::Status(args) => match FoundRun::find(&runs, &args.id, context)? {
            FoundRun::Graph(run, _) => graph::status(*run, context),
            FoundRun::Background(run) => Ok(Box::new(Status(*run))),
        },
        RunCommand::Tail(args) => {
            let find = || FoundRun::find(&runs, &args.run.id, context);
            let mut found = find()?;
            while args.follow && found.is_starting_graph() {
                std::thread::sleep(POLL_INTERVAL);
                found = find()?;
            }
            match found {
                FoundRun::Graph(run, background) => {
                    graph::tail(&run, background.as_deref(), args, context)
                }
                FoundRun::Background(run) => tail(&run, args, context),
            }
        }
        RunCommand::Cancel(args) => match runs.find(&args.id) {
            Ok(run) => match graph::find_for_background(&run, context)? {
                Some(graph_run) if !graph::is_in_background(&graph_run, &run)? => {
                    graph::cancel(graph_run, context)
                }
                _ => cancel(run),
            },
            Err(failure) => graph::cancel(graph::find_or(&args.id, failure, context)?, context),
        },
        RunCommand::Rm(args) => {
            let background = runs.find(&args.id);
            let graph_run = match &background {
                Ok(run) => graph::find_for_background(run, context)?,
                Err(_) => graph::find(&args.id, context)?,
            };
            match (background, graph_run) {
                (Err(failure), None) => Err(failure),
                (background, graph_run) => remove(background.ok(), graph_run),
            }
        }
        RunCommand::Verify(args) => {
            let graph_run = match runs.find(&args.id) {
                Ok(run) => graph::find_for_background(&run, context)?,
                Err(_) => graph::find(&args.id, context)?,
            };
            let missing = || not_found("graph run", &args.id, "rye run list");
            verify::run(graph_run.ok_or_else(missing)?, context)
        }
        RunCommand::CarryOut(args) => execute_recorded(&runs.find(&args.id)?, context),
    }
}

/// Executes a recorded run. The tool's output goes to standard output, which is the log.
fn execute_recorded(run: &Run, context: &Context) -> Outcome {
    run.record_process()?;
    let listener = OutputListener::new(|_, bytes| {
        // A failure to write the log does not fail the run.
        let _ = Printer::raw(bytes);
    });
    let request = run.request.clone().into_executor_request();
    let outcome = request.and_then(|mut request| {
        // The record of a graph run has the same id.
        let id = run.id.clone();
        request.run = Some(rye_executor::RunContext { id, depth: 0 });
        let going = run
            .request
            .resume
            .map_or_else(RunOptions::default, |resume| RunOptions {
                resume: Some(run.id.clone()),
                accept_changed: resume.accept_changed,
                ..RunOptions::default()
            });
        execute::execute_to_end(context, request, listener, going)
    });
    // The processes of a cancelled run get the signal too, and may fail before this one.
    let failed = |result: &ExecutionResult| result.error.is_some();
    if run.is_cancelled() && outcome.as_ref().map_or(true, failed) {
        let failure = cancelled();
        finish_without_result(run, &failure)?;
        return Err(failure);
    }
    match outcome {
        Ok(result) => {
            run.finish(&json!(result))?;
            match result.error {
                None => Ok(Box::new(AlreadyPrinted)),
                Some(error) => Err(Failure::failed("tool_failed", error.message)),
            }
        }
        Err(failure) => {
            if !matches!(failure.kind, Exit::Interrupted | Exit::Terminated) {
                finish_without_result(run, &failure)?;
            }
            Err(failure)
        }
    }
}

/// Records that a run ended without a result.
fn finish_without_result(run: &Run, failure: &Failure) -> Result<(), Failure> {
    let (item, error) = (&run.request.item_id, failure.json());
    run.finish(&json!({ "status": "error", "item_id": item, "error": error }))
}

fn cancelled() -> Failure {
    Failure::new(Exit::Terminated, "cancelled", "the run was cancelled")
}

fn tail(run: &Run, args: &TailArgs, context: &Context) -> Outcome {
    let path = run.log();
    let mut log = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !args.follow => None,
        opened => Some(opened.at("open", &path)?),
    };
    let (mut output, mut is_over) = (Vec::new(), false);
    loop {
        // Read the state first: output written before the end is then read below.
        let state = run.state();
        let mut bytes = Vec::new();
        if let Some(log) = &mut log {
            log.read_to_end(&mut bytes).at("read", &path)?;
        }
        if context.printer.json {
            output.append(&mut bytes);
        } else {
            Printer::raw(&bytes).map_err(|error| {
                let message = format_args!("cannot write to standard output: {error}");
                Failure::failed("io", message)
            })?;
        }
        if !args.follow || is_over {
            break;
        }
        is_over = state != State::Running;
        match run.handle() {
            // The process writes its last output after the result.
            Some(handle) if is_over => {
                let _ = handle.wait(Some(GRACE));
            }
            Some(handle) => {
                let _ = handle.wait(Some(POLL_INTERVAL));
            }
            None => std::thread::sleep(POLL_INTERVAL),
        }
    }
    if context.printer.json {
        let log = String::from_utf8_lossy(&output).into_owned();
        let run = run_json(run);
        return Ok(Box::new(Tail(json!({ "run": run, "log": log }))));
    }
    Ok(Box::new(AlreadyPrinted))
}

fn cancel(run: Run) -> Outcome {
    match run.state() {
        State::Cancelled => {}
        State::Running => {
            run.record_cancel()?;
            let Some(handle) = run.handle() else {
                let message = format!("run {} has not started yet", short_id(&run.id));
                let hint = format!("rye run cancel {}", short_id(&run.id));
                return Err(Failure::failed("starting", message).hint(hint));
            };
            let killed = handle.kill(GRACE);
            let killed = killed.map_err(|error| Failure::failed("kill", error))?;
            // The run ended before the signal.
            if killed == KillOutcome::AlreadyDead && run.state() != State::Cancelled {
                return Err(already_ended(&run));
            }
            // A killed run could not record that itself.
            if run.result().is_none() {
                finish_without_result(&run, &cancelled())?;
            }
        }
        State::Success | State::Error | State::Lost => return Err(already_ended(&run)),
    }
    Ok(Box::new(Status(run)))
}

fn remove(run: Option<Run>, graph_run: Option<rye_graph::RunHandle>) -> Outcome {
    let is_running = run
        .as_ref()
        .is_some_and(|run| run.state() == State::Running);
    let status = graph_run
        .clone()
        .map(rye_graph::RunHandle::load)
        .transpose();
    // An unreadable record can still be removed.
    let status = status.ok().flatten().map(|run| run.state());
    let id = run.as_ref().map(|run| run.id.clone());
    let id = id.or_else(|| graph_run.as_ref().map(|run| run.id.clone()));
    let id = id.unwrap_or_default();
    if is_running || status.is_some_and(rye_graph::RunState::is_live) {
        let short = short_id(&id);
        let failure = Failure::failed("running", format!("run {short} has not ended"));
        return Err(failure.hint(format!("rye run cancel {short}")));
    }
    if let Some(run) = run {
        run.remove()?;
    }
    if let Some(run) = graph_run {
        run.remove()?;
    }
    Ok(Box::new(RemovedRun(id)))
}

fn already_ended(run: &Run) -> Failure {
    let id = short_id(&run.id);
    let message = format!("run {id} has already ended: {}", run.state().as_str());
    Failure::failed("not_running", message).hint(format!("rye run status {id}"))
}

/// A run as JSON.
fn run_json(run: &Run) -> Value {
    let result = run.result();
    json!({
        "id": run.id,
        "state": run.state(),
        "item_id": run.request.item_id,
        "project": run.request.project.to_string_lossy(),
        "started_at": run.request.started_at,
        "ended_at": result.as_ref().map(|result| &result["ended_at"]),
        "log": run.log().to_string_lossy(),
    })
}

fn state_cell(state: State) -> Cell {
    let style = match state {
        State::Running => HELP,
        State::Success => GOOD,
        State::Error => BAD,
        State::Cancelled | State::Lost => WARN,
    };
    Cell::styled(style, state.as_str())
}

/// The report of a run that was started.
struct StartedRun {
    id: String,
    item_id: String,
}

impl Report for StartedRun {
    fn json(&self) -> Value {
        json!({ "run": { "id": self.id, "state": State::Running, "item_id": self.item_id } })
    }

    fn show(&self, page: &mut Page) {
        page.line(&self.id);
    }

    fn next_command(&self) -> Option<String> {
        Some(format!("rye run tail {} --follow", short_id(&self.id)))
    }
}

/// The report of a run that was removed.
struct RemovedRun(String);

impl Report for RemovedRun {
    fn json(&self) -> Value {
        json!({ "removed": self.0 })
    }

    fn show(&self, page: &mut Page) {
        page.line(format_args!("removed run {}", short_id(&self.0)));
    }
}

struct Status(Run);

impl Report for Status {
    fn json(&self) -> Value {
        let result = self.0.result().map(|mut result| result["result"].take());
        json!({ "run": run_json(&self.0), "result": result })
    }

    fn show(&self, page: &mut Page) {
        let run = &self.0;
        page.line(paint(BOLD, format_args!("run {}", short_id(&run.id))));
        let mut field = |name: &str, value: &str| {
            let name = paint(DIM, format!("{name:<8}"));
            page.line(format_args!("  {name} {}", sanitize(value)));
        };
        field("state", run.state().as_str());
        field("tool", &run.request.item_id);
        field("project", &run.request.project.display().to_string());
        field("started", &run.request.started_at);
        let Some(result) = run.result() else {
            return field("log", &run.log().display().to_string());
        };
        field("ended", result["ended_at"].as_str().unwrap_or_default());
        field("log", &run.log().display().to_string());
        let result = &result["result"];
        if let Some(message) = result["error"]["message"].as_str() {
            field("error", message);
        }
        if !result["data"].is_null() {
            let data = serde_json::to_string_pretty(&result["data"]).unwrap_or_default();
            page.line("");
            page.line(sanitize(&data));
        }
    }
}

struct Tail(Value);

impl Report for Tail {
    fn json(&self) -> Value {
        self.0.clone()
    }

    fn show(&self, _: &mut Page) {}
}
