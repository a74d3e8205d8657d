//! Graph runs: their status and their steps.

use std::path::PathBuf;

use rye_engine::protocol::{Gate, GateStatus, RunStatus, short_id};
use rye_graph::RunRecord;
use rye_host::TrustedKeys;
use rye_host::engine::answer_command;
use rye_host::runs::{RunState, RunView, Runs};
use serde_json::{Value, json};

use super::changes::Changes;
use super::{Json, run_json, timestamp};
use crate::cli::args::TailArgs;
use crate::cli::commands::graph::{progress::describe, resume_command};
use crate::cli::context::Context;
use crate::cli::entry_line::describe_action;
use crate::cli::failure::Failure;
use crate::cli::page::{BOLD, DIM, Page, paint, sanitize};
use crate::cli::printer::{AlreadyPrinted, Outcome, Report};

pub(super) fn status(
    runs: &Runs,
    run: RunView,
    record: RunRecord,
    context: &Context,
) -> Box<dyn Report> {
    let lines = record.lines().iter();
    let gates = lines.filter_map(|line| line.gate.as_deref().cloned());
    let project = run.project();
    let other_project = (project != context.settings.project()).then(|| project.to_owned());
    Box::new(GraphStatus {
        json: run_json(&run, runs),
        gates: current_gates(gates, record.steps()),
        run,
        record,
        other_project,
        keys: context.trusted_keys(),
    })
}

/// The pending gates of a step, or the one that was decided last.
fn current_gates(gates: impl Iterator<Item = Gate>, step: u64) -> Vec<Gate> {
    let step = format!("step-{step}");
    let mut gates: Vec<_> = gates
        .filter(|gate| gate.origin.prompt.as_str() == step)
        .collect();
    if gates.iter().any(|gate| gate.status.is_pending()) {
        gates.retain(|gate| gate.status.is_pending());
        return gates;
    }
    gates.pop().into_iter().collect()
}

struct GraphStatus {
    run: RunView,
    record: RunRecord,
    json: Value,
    /// The gates of the current step.
    gates: Vec<Gate>,
    /// The project, if it is not the current one.
    other_project: Option<PathBuf>,
    /// Names the people who decided.
    keys: TrustedKeys,
}

impl Report for GraphStatus {
    fn json(&self) -> Value {
        let record = &self.record;
        json!({
            "run": self.json,
            "inputs": record.inputs(),
            "graph_state": record.graph_state(),
            "output": record.output(),
            "graph_error": record.error(),
            "gates": self.gates,
        })
    }

    fn show(&self, page: &mut Page) {
        let (run, record) = (&self.run, &self.record);
        page.line(paint(BOLD, format_args!("run {}", short_id(run.id()))));
        let mut field = |name: &str, value: &str| {
            let name = paint(DIM, format!("{name:<8}"));
            page.line(format_args!("  {name} {}", sanitize(value)));
        };
        field("state", run.state_name());
        field("graph", record.graph());
        if let Some(project) = &self.other_project {
            field("project", &project.display().to_string());
        }
        field("started", &timestamp(run.session.created_at));
        field("steps", &record.steps().to_string());
        if let Some(node) = record.node() {
            field("node", node);
        }
        if let Some(error) = record.error() {
            field("error", &error.message);
        }
        let is_over = matches!(run.state(), RunState::Ended(RunStatus::Completed));
        for gate in self.gates.iter().filter(|_| !is_over) {
            field("gate", &gate.title);
            match &gate.status {
                GateStatus::Resolved { resolution } => {
                    let action = describe_action(&resolution.action);
                    let by = self.keys.approver(resolution);
                    field("decision", &format!("{action} by {by}"));
                }
                GateStatus::Expired { .. } => field("decision", "expired"),
                GateStatus::Withdrawn { .. } => field("decision", "withdrawn"),
                GateStatus::Pending => field("answer", &answer_command(gate)),
            }
        }
        let state = Value::Object(record.graph_state().clone());
        let shown = record.output().unwrap_or(&state);
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
pub(super) fn tail(runs: &Runs, mut run: RunView, args: &TailArgs, context: &Context) -> Outcome {
    let changes = args.follow.then(|| Changes::watch(runs, &run));
    let mut changes = changes.transpose()?;
    let mut printed = 0;
    loop {
        // Read the state first: steps recorded before the end are then printed below.
        let is_over = !run.state().is_live();
        let record = runs.graph(&run)?;
        let lines = record.as_ref().map_or(&[][..], RunRecord::lines);
        if context.printer.json {
            let run = run_json(&run, runs);
            return Ok(Box::new(Json(json!({ "run": run, "lines": lines }))));
        }
        let mut text = String::new();
        for line in lines.iter().skip(printed) {
            if let Some(line) = describe(line) {
                text.push_str(&line);
                text.push('\n');
            }
        }
        printed = lines.len();
        context.printer.print_stdout(&text).map_err(|error| {
            let message = format_args!("cannot write to standard output: {error}");
            Failure::failed("io", message)
        })?;
        let Some(changes) = changes.as_mut().filter(|_| !is_over) else {
            return Ok(Box::new(AlreadyPrinted));
        };
        changes.wait(&run)?;
        run = runs.find(run.id())?;
    }
}
