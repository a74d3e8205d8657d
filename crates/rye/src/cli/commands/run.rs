//! `rye run`: background runs and graph runs, a view of their sessions.

mod changes;
mod graph;

use std::fs::File;
use std::io::{self, Read as _};
use std::time::Duration;

use lillux::PathContext as _;
use rye_engine::protocol::{Millis, RunStatus, short_id};
use rye_executor::{Approval, OutputListener};
use rye_host::runs::background::{self, CarryOut, StartedRun};
use rye_host::runs::{GRACE, RunState, RunView, Runs};
use serde_json::{Value, json};

use super::{execute, session};
use crate::cli::args::{CarryOutArgs, RunCommand, TailArgs, VerifySessionArgs};
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::page::{BAD, BOLD, DIM, GOOD, HELP, Page, WARN, paint, sanitize};
use crate::cli::printer::{AlreadyPrinted, Outcome, Printer, Report};
use crate::cli::table::{Cell, Table};
use changes::Changes;

pub(crate) fn run(command: &RunCommand, context: &Context) -> Outcome {
    if let RunCommand::CarryOut(args) = command {
        return carry_out(args, context);
    }
    let runs = Runs::open(context)?;
    match command {
        RunCommand::List => Ok(Box::new(List(runs.all()?))),
        RunCommand::Status(args) => status(&runs, runs.find(&args.id)?, context),
        RunCommand::Tail(args) => {
            let run = runs.find(&args.run.id)?;
            if run.is_graph() {
                graph::tail(&runs, run, args, context)
            } else {
                tail(&runs, run, args, context)
            }
        }
        RunCommand::Cancel(args) => {
            let run = runs.find(&args.id)?;
            background::cancel(&runs, &run)?;
            status(&runs, runs.find(run.id())?, context)
        }
        RunCommand::Rm(args) => {
            let run = runs.find(&args.id)?;
            if run.state().is_live() {
                let short = short_id(run.id());
                let failure = Failure::failed("running", format!("run {short} has not ended"));
                return Err(failure.hint(format!("rye run cancel {short}")));
            }
            runs.remove(&run)?;
            Ok(Box::new(RemovedRun(run.id().to_owned())))
        }
        RunCommand::Verify(args) => {
            let source = runs.find(&args.id)?.id().to_owned();
            drop(runs);
            session::verify(&VerifySessionArgs { source }, context)
        }
        RunCommand::CarryOut(args) => carry_out(args, context),
    }
}

/// Executes a recorded run. The tool's output goes to standard output, which is the log.
fn carry_out(args: &CarryOutArgs, context: &Context) -> Outcome {
    // Forks, so before the store starts threads.
    let supervisor = execute::supervisor_or_start(&mut None)?;
    let timeout = args.timeout.map(Duration::try_from_secs_f64);
    let options = CarryOut {
        timeout: timeout.and_then(Result::ok),
        approval: if args.for_client {
            Approval::None
        } else {
            Approval::ByUser
        },
        resume: args.resume,
        accept_changed: args.accept_changed,
        listener: OutputListener::new(|_, bytes| {
            // A failure to write the log does not fail the run.
            let _ = Printer::raw(bytes);
        }),
    };
    background::carry_out(&args.id, options, supervisor, context)?;
    Ok(Box::new(AlreadyPrinted))
}

fn status(runs: &Runs, run: RunView, context: &Context) -> Outcome {
    if run.is_graph()
        && let Some(record) = runs.graph(&run)?
    {
        return Ok(graph::status(runs, run, record, context));
    }
    let (_, result) = runs.call(&run)?;
    let log = runs.log(run.id()).display().to_string();
    Ok(Box::new(Status { run, result, log }))
}

fn tail(runs: &Runs, mut run: RunView, args: &TailArgs, context: &Context) -> Outcome {
    let path = runs.log(run.id());
    let mut log = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !args.follow => None,
        opened => Some(opened.at("open", &path)?),
    };
    let changes = args.follow.then(|| Changes::watch(runs, &run));
    let mut changes = changes.transpose()?;
    let mut output = Vec::new();
    let mut process = None;
    loop {
        let is_over = !run.state().is_live();
        process = run.process().or(process);
        // The process writes its last output after it has recorded the end of the run.
        if let Some(process) = process.as_ref().filter(|_| is_over) {
            let _ = process.wait(Some(GRACE));
        }
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
        let Some(changes) = changes.as_mut().filter(|_| !is_over) else {
            break;
        };
        changes.wait(&run)?;
        run = runs.find(run.id())?;
    }
    if context.printer.json {
        let log = String::from_utf8_lossy(&output).into_owned();
        let run = run_json(&run, runs);
        return Ok(Box::new(Json(json!({ "run": run, "log": log }))));
    }
    Ok(Box::new(AlreadyPrinted))
}

/// Formats a time.
fn timestamp(at: Millis) -> String {
    let seconds = i64::try_from(at.0 / 1000).unwrap_or_default();
    lillux::time::format_rfc3339(seconds)
}

impl Report for StartedRun {
    fn json(&self) -> Value {
        self.json()
    }

    fn show(&self, page: &mut Page) {
        page.line(&self.id);
    }

    fn next_command(&self) -> Option<String> {
        Some(format!("rye run tail {} --follow", short_id(&self.id)))
    }
}

/// A run as JSON.
fn run_json(run: &RunView, runs: &Runs) -> Value {
    let mut json = json!({
        "id": run.id(),
        "state": run.state_name(),
        "item_id": run.run.item,
        "project": run.project().to_string_lossy(),
        "started_at": timestamp(run.session.created_at),
        "ended_at": run.run.ended_at.map(timestamp),
    });
    if run.is_graph() {
        json["steps"] = json!(run.run.steps);
        json["node"] = json!(run.run.node);
    } else {
        json["log"] = json!(runs.log(run.id()).to_string_lossy());
    }
    json
}

fn state_cell(run: &RunView) -> Cell {
    styled_state(run.state(), run.state_name())
}

pub(super) fn styled_state(state: RunState, name: &str) -> Cell {
    let style = match state {
        RunState::Running | RunState::Waiting => HELP,
        RunState::Ended(RunStatus::Completed) => GOOD,
        RunState::Ended(RunStatus::Failed | RunStatus::TimedOut) => BAD,
        RunState::Ended(_) | RunState::Lost => WARN,
    };
    Cell::styled(style, name)
}

/// All runs, newest first.
struct List(Vec<RunView>);

impl Report for List {
    fn json(&self) -> Value {
        let runs = self.0.iter().map(|run| {
            json!({
                "id": run.id(),
                "state": run.state_name(),
                "item_id": run.run.item,
                "project": run.project().to_string_lossy(),
                "started_at": timestamp(run.session.created_at),
                "ended_at": run.run.ended_at.map(timestamp),
                "steps": run.is_graph().then_some(run.run.steps),
                "node": run.run.node,
            })
        });
        json!({ "runs": runs.collect::<Vec<_>>() })
    }

    fn show(&self, page: &mut Page) {
        if self.0.is_empty() {
            page.line("no runs");
            page.line(paint(DIM, "next: rye execute --async ID"));
            return;
        }
        let mut table = Table::new(["RUN", "STATE", "STARTED", "TOOL"]);
        for run in &self.0 {
            let ids = self.0.iter().map(RunView::id);
            let id = rye_host::lookup::unique_short_id(run.id(), ids);
            let started = Cell::styled(DIM, timestamp(run.session.created_at));
            table.row([
                id.into(),
                state_cell(run),
                started,
                run.run.item.as_str().into(),
            ]);
        }
        page.table(&table);
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

/// The state of a single call.
struct Status {
    run: RunView,
    result: Option<Value>,
    log: String,
}

impl Report for Status {
    fn json(&self) -> Value {
        let run = &self.run;
        json!({
            "run": {
                "id": run.id(),
                "state": run.state_name(),
                "item_id": run.run.item,
                "project": run.project().to_string_lossy(),
                "started_at": timestamp(run.session.created_at),
                "ended_at": run.run.ended_at.map(timestamp),
                "log": self.log,
            },
            "result": self.result,
        })
    }

    fn show(&self, page: &mut Page) {
        let run = &self.run;
        page.line(paint(BOLD, format_args!("run {}", short_id(run.id()))));
        let mut field = |name: &str, value: &str| {
            let name = paint(DIM, format!("{name:<8}"));
            page.line(format_args!("  {name} {}", sanitize(value)));
        };
        field("state", run.state_name());
        field("tool", &run.run.item);
        field("project", &run.project().display().to_string());
        field("started", &timestamp(run.session.created_at));
        if let Some(ended) = run.run.ended_at {
            field("ended", &timestamp(ended));
        }
        field("log", &self.log);
        let Some(result) = &self.result else {
            return;
        };
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

/// A JSON document.
struct Json(Value);

impl Report for Json {
    fn json(&self) -> Value {
        self.0.clone()
    }

    fn show(&self, _: &mut Page) {}
}
