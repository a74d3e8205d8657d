//! `rye run`: runs in the background.

mod graph;
mod list;
pub(crate) mod record;
mod verify;
mod which;

use std::fs::File;
use std::io::{self, Read as _};
use std::time::Duration;

use lillux::At as _;
use lillux::process::Killed;
use rye_executor::{Envelope, OutputListener};
use rye_graph::RunOptions;
use serde_json::{Value, json};

use super::execute;
use crate::cli::args::{RunCommand, TailArgs};
use crate::cli::context::Context;
use crate::cli::failure::{Exit, Failure};
use crate::cli::page::{BAD, BOLD, DIM, GOOD, HELP, Page, WARN, paint, plain};
use crate::cli::printer::{Outcome, Printer, Report, Written};
use crate::cli::table::Cell;
use list::List;
use record::{Run, Runs, State};
use which::Which;

/// How long a run that is to end has before it is killed.
const GRACE: Duration = Duration::from_secs(3);
/// How often what is being written is looked at; the end of the run is told at once.
const LOOK: Duration = Duration::from_millis(50);

pub(crate) fn run(command: &RunCommand, context: &Context) -> Outcome {
    let runs = Runs::of(context)?;
    match command {
        RunCommand::List => {
            let background = runs.all()?;
            let graphs = graph::all(&background, context)?;
            Ok(Box::new(List::of(background, graphs)))
        }
        RunCommand::Status(args) => match Which::find(&runs, &args.id, context)? {
            Which::Graph(run, _) => graph::status(*run, context),
            Which::Background(run) => Ok(Box::new(Status(*run))),
        },
        RunCommand::Tail(args) => {
            let find = || Which::find(&runs, &args.run.id, context);
            let mut which = find()?;
            while args.follow && which.has_yet_to_begin() {
                std::thread::sleep(LOOK);
                which = find()?;
            }
            match which {
                Which::Graph(run, background) => {
                    graph::tail(&run, background.as_deref(), args, context)
                }
                Which::Background(run) => tail(&run, args, context),
            }
        }
        RunCommand::Cancel(args) => match runs.find(&args.id) {
            Ok(run) => match graph::of_background(&run, context)? {
                Some(of_graph) if !graph::is_in_background(&of_graph, &run)? => {
                    graph::cancel(of_graph, context)
                }
                _ => cancel(run),
            },
            Err(failure) => graph::cancel(graph::find(&args.id, failure, context)?, context),
        },
        RunCommand::Rm(args) => {
            let background = runs.find(&args.id);
            let of_graph = match &background {
                Ok(run) => graph::of_background(run, context)?,
                Err(_) => graph::found(&args.id, context)?,
            };
            match (background, of_graph) {
                (Err(failure), None) => Err(failure),
                (background, of_graph) => remove(background.ok(), of_graph),
            }
        }
        RunCommand::Verify(args) => {
            let missing = Failure::failed(
                "not_found",
                format!("there is no run {} of a graph", args.id),
            );
            let of_graph = match runs.find(&args.id) {
                Ok(run) => graph::of_background(&run, context)?,
                Err(_) => graph::found(&args.id, context)?,
            };
            verify::run(of_graph.ok_or(missing.hint("rye run list"))?, context)
        }
        RunCommand::CarryOut(args) => carry_out(&runs.find(&args.id)?, context),
    }
}

/// Sees to a run: what the tool prints goes to standard output, which is the log.
fn carry_out(run: &Run, context: &Context) -> Outcome {
    run.take()?;
    let listener = OutputListener::new(|_, bytes| {
        // Without a log the result still tells.
        let _ = Printer::raw(bytes);
    });
    let request = run.asked.clone().request();
    let outcome = request.and_then(|mut request| {
        // A graph writes itself down under the same name.
        let id = run.id.clone();
        request.run = Some(rye_executor::RunContext { id, depth: 0 });
        let going = run
            .asked
            .resumes
            .map_or_else(RunOptions::default, |resumes| RunOptions {
                resume: Some(run.id.clone()),
                accept_changed: resumes.accept_changed,
                ..RunOptions::default()
            });
        execute::to_the_end(context, request, listener, going)
    });
    // Its processes were told to end as well, and may have been quicker.
    let failed = |envelope: &Envelope| envelope.error.is_some();
    if run.is_cancelled() && outcome.as_ref().map_or(true, failed) {
        let failure = cancelled();
        finish_without_result(run, &failure)?;
        return Err(failure);
    }
    match outcome {
        Ok(envelope) => {
            run.finish(&json!(envelope))?;
            match envelope.error {
                None => Ok(Box::new(Written)),
                Some(error) => Err(Failure::failed("tool_failed", error.message)),
            }
        }
        Err(failure) => {
            if !matches!(failure.exit, Exit::Interrupted | Exit::Terminated) {
                finish_without_result(run, &failure)?;
            }
            Err(failure)
        }
    }
}

/// Writes down that nothing came of a run, and why.
fn finish_without_result(run: &Run, failure: &Failure) -> Result<(), Failure> {
    let (item, error) = (&run.asked.item_id, failure.json());
    run.finish(&json!({ "status": "error", "item_id": item, "error": error }))
}

fn cancelled() -> Failure {
    Failure::new(Exit::Terminated, "cancelled", "it was cancelled")
}

fn tail(run: &Run, args: &TailArgs, context: &Context) -> Outcome {
    let path = run.log();
    let mut log = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !args.follow => None,
        opened => Some(opened.at("open", &path)?),
    };
    let (mut seen, mut is_over) = (Vec::new(), false);
    loop {
        // Asked before reading: what is written before the end is read after it.
        let state = run.state();
        let mut bytes = Vec::new();
        if let Some(log) = &mut log {
            log.read_to_end(&mut bytes).at("read", &path)?;
        }
        if context.printer.json {
            seen.append(&mut bytes);
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
            // Who wrote the result says the last words afterwards.
            Some(handle) if is_over => {
                let _ = handle.wait(Some(GRACE));
            }
            Some(handle) => {
                let _ = handle.wait(Some(LOOK));
            }
            None => std::thread::sleep(LOOK),
        }
    }
    if context.printer.json {
        let log = String::from_utf8_lossy(&seen).into_owned();
        let about = about(run);
        return Ok(Box::new(Tail(json!({ "run": about, "log": log }))));
    }
    Ok(Box::new(Written))
}

fn cancel(run: Run) -> Outcome {
    match run.state() {
        State::Cancelled => {}
        State::Running => {
            run.note_cancel()?;
            let Some(handle) = run.handle() else {
                let message = "it has not started yet";
                return Err(
                    Failure::failed("starting", message).hint(format!("rye run cancel {}", run.id))
                );
            };
            let killed = handle.kill(GRACE);
            let killed = killed.map_err(|error| Failure::failed("kill", error))?;
            // It was quicker.
            if killed == Killed::AlreadyDead && run.state() != State::Cancelled {
                return Err(ended(&run));
            }
            // Where it had to be killed, it could not write that down itself.
            if run.result().is_none() {
                finish_without_result(&run, &cancelled())?;
            }
        }
        State::Success | State::Error | State::Lost => return Err(ended(&run)),
    }
    Ok(Box::new(Status(run)))
}

fn remove(run: Option<Run>, of_graph: Option<rye_graph::RunHandle>) -> Outcome {
    let is_running = run
        .as_ref()
        .is_some_and(|run| run.state() == State::Running);
    let standing = of_graph.clone().map(rye_graph::RunHandle::read).transpose();
    // A record that cannot be read can still be removed.
    let standing = standing.ok().flatten().map(|run| run.state());
    let id = run.as_ref().map(|run| run.id.clone());
    let id = id.or_else(|| of_graph.as_ref().map(|run| run.id.clone()));
    let id = id.unwrap_or_default();
    if is_running || standing.is_some_and(rye_graph::RunState::is_live) {
        let failure = Failure::failed("running", format!("the run {id} is not over"));
        return Err(failure.hint(format!("rye run cancel {id}")));
    }
    if let Some(run) = run {
        run.remove()?;
    }
    if let Some(run) = of_graph {
        run.remove()?;
    }
    Ok(Box::new(Removed(id)))
}

fn ended(run: &Run) -> Failure {
    let message = format!("the run {} is over: {}", run.id, run.state().as_str());
    Failure::failed("not_running", message).hint(format!("rye run status {}", run.id))
}

/// A run for scripts.
fn about(run: &Run) -> Value {
    let result = run.result();
    json!({
        "id": run.id,
        "state": run.state(),
        "item_id": run.asked.item_id,
        "project": run.asked.project.to_string_lossy(),
        "started_at": run.asked.started_at,
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

/// A run that was started.
struct Started {
    id: String,
    item_id: String,
}

impl Report for Started {
    fn json(&self) -> Value {
        json!({ "run": { "id": self.id, "state": State::Running, "item_id": self.item_id } })
    }

    fn show(&self, page: &mut Page) {
        page.line(&self.id);
    }

    fn next(&self) -> Option<String> {
        Some(format!("rye run tail {} --follow", self.id))
    }
}

/// A run of which nothing is left.
struct Removed(String);

impl Report for Removed {
    fn json(&self) -> Value {
        json!({ "removed": self.0 })
    }

    fn show(&self, page: &mut Page) {
        page.line(format_args!("removed {}", self.0));
    }
}

struct Status(Run);

impl Report for Status {
    fn json(&self) -> Value {
        let result = self.0.result().map(|mut result| result["envelope"].take());
        json!({ "run": about(&self.0), "result": result })
    }

    fn show(&self, page: &mut Page) {
        let run = &self.0;
        page.line(paint(BOLD, &run.id));
        let mut about = |name: &str, value: &str| {
            let name = paint(DIM, format!("{name:<8}"));
            page.line(format_args!("  {name} {}", plain(value)));
        };
        about("state", run.state().as_str());
        about("tool", &run.asked.item_id);
        about("project", &run.asked.project.display().to_string());
        about("started", &run.asked.started_at);
        let Some(result) = run.result() else {
            return about("log", &run.log().display().to_string());
        };
        about("ended", result["ended_at"].as_str().unwrap_or_default());
        about("log", &run.log().display().to_string());
        let envelope = &result["envelope"];
        if let Some(message) = envelope["error"]["message"].as_str() {
            about("error", message);
        }
        if !envelope["data"].is_null() {
            let data = serde_json::to_string_pretty(&envelope["data"]).unwrap_or_default();
            page.line("");
            page.line(plain(&data));
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
