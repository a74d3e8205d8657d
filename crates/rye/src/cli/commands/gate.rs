//! `rye gate`: lists pending gates and answers them.

pub(super) mod graphs;
mod lookup;

use std::path::{Path, PathBuf};

use rye_engine::arguments::ARGUMENTS;
use rye_engine::protocol::{Gate, Purpose, Session};
use rye_engine::store::PostOutcome;
use rye_engine::tool::{APPROVE, APPROVE_PROJECT, APPROVE_SESSION};
use rye_host::engine::{EngineOptions, answer_command, decide, with_engine};
use serde_json::{Value, json};

use crate::cli::args::{ApprovalScope, GateArgs, GateCommand};
use crate::cli::context::Context;
use crate::cli::entry_line::describe_action;
use crate::cli::failure::Failure;
use crate::cli::gate_render;
use crate::cli::observer::SOURCE;
use crate::cli::page::{DIM, GOOD, Page, one_line, paint};

use crate::cli::printer::{Outcome, Report};
use graphs::GraphGate;
use lookup::FoundGate;

pub(crate) fn run(command: &GateCommand, context: &Context) -> Outcome {
    match command {
        GateCommand::List => list(context),
        GateCommand::Approve(args) => {
            let action = match args.scope {
                ApprovalScope::Call => APPROVE,
                ApprovalScope::Session => APPROVE_SESSION,
                ApprovalScope::Project => APPROVE_PROJECT,
            };
            let value = match &args.arguments {
                Some(arguments) => json!({ ARGUMENTS: arguments }),
                None => Value::Null,
            };
            answer(&args.gate, action, value, context)
        }
        GateCommand::Deny(args) => answer(args, "deny", Value::Null, context),
        GateCommand::Answer(args) => {
            let value = args.value.clone().map_or(Value::Null, Value::String);
            answer(&args.gate, &args.action, value, context)
        }
    }
}

fn list(context: &Context) -> Outcome {
    let here = context.settings.project();
    let mut graph_gates = graphs::all(context)?;
    graph_gates.retain(GraphGate::is_pending);
    with_engine(context, EngineOptions::default(), async |engine| {
        let mut gates = Vec::new();
        for gate in engine.pending_gates(None).await? {
            let session = engine.session_data(&gate.origin.session).await?;
            let project = session.and_then(|session| session_project(&session));
            gates.push((gate, project.filter(|project| project != here)));
        }
        let list = List {
            here: here.to_owned(),
            gates,
            graph_gates,
        };
        Ok(Box::new(list) as Box<dyn Report>)
    })
}

/// The project that a session was created in.
fn session_project(session: &Session) -> Option<PathBuf> {
    let project = session.project.as_deref();
    project.or(session.workspace.as_deref()).map(PathBuf::from)
}

struct List {
    /// The current project.
    here: PathBuf,
    /// Gates of agents and MCP calls, with their project if it is not the current one.
    gates: Vec<(Gate, Option<PathBuf>)>,
    /// Gates of graph runs.
    graph_gates: Vec<GraphGate>,
}

impl Report for List {
    fn json(&self) -> Value {
        let gates = self.gates.iter().map(|(gate, project)| {
            let mut gate = json!(gate);
            if let Some(project) = project {
                gate["project"] = json!(project.to_string_lossy());
            }
            gate
        });
        let graph_gates = self.graph_gates.iter().map(|gate| gate.json(&self.here));
        json!({ "gates": gates.chain(graph_gates).collect::<Vec<_>>() })
    }

    fn show(&self, page: &mut Page) {
        if self.gates.is_empty() && self.graph_gates.is_empty() {
            page.line("no pending gates");
        }
        for (gate, project) in &self.gates {
            let origin = project.as_deref().map(in_project);
            show_gate(page, gate, origin);
        }
        for graph_gate in &self.graph_gates {
            show_gate(page, &graph_gate.question.gate, Some(graph_gate.origin()));
        }
    }
}

fn in_project(project: &Path) -> String {
    format!("in {}", project.display())
}

fn show_gate(page: &mut Page, gate: &Gate, origin: Option<String>) {
    let title = format!("{}  {}", gate.id.short(), gate.title);
    for line in gate_render::lines(&title, &gate.body, page.width()) {
        page.line(line);
    }
    if let Some(origin) = origin {
        page.line(paint(DIM, format_args!("  {}", one_line(&origin))));
    }
    let command = answer_command(gate);
    page.line(paint(DIM, format_args!("  {command}")));
}

/// Whether the same decision was already made; fails if another one was.
fn is_repeated(posted: PostOutcome) -> Result<bool, Failure> {
    match posted {
        PostOutcome::Conflict(first) => Err(conflict(&first.by, &first.action)),
        PostOutcome::GateClosed(_) => Err(closed()),
        PostOutcome::Written => Ok(false),
        PostOutcome::Duplicate => Ok(true),
    }
}

fn conflict(by: &str, action: &str) -> Failure {
    let decision = describe_action(action);
    let message = format!("the gate is already closed: {decision} by {by}");
    Failure::failed("decision_gate_conflict", message)
}

fn fixed_arguments() -> Failure {
    Failure::usage("--arguments only applies to tool calls of agents")
}

fn closed() -> Failure {
    Failure::failed("gate_closed", "the gate is already closed").hint("rye gate list")
}

fn answer(args: &GateArgs, action: &str, value: Value, context: &Context) -> Outcome {
    match lookup::find(&args.gate, context)? {
        FoundGate::Graph(gate) => graphs::answer(&gate, action, value, context),
        FoundGate::Agent(gate) => answer_agent(gate, action, value, context),
    }
}

fn answer_agent(gate: Gate, action: &str, value: Value, context: &Context) -> Outcome {
    with_engine(context, EngineOptions::default(), async |engine| {
        let session = &gate.origin.session;
        let data = engine.session_data(session).await?;
        let is_call = data.is_some_and(|data| data.purpose == Purpose::Run);
        // The MCP server only accepts decisions that are signed with the user's key.
        if is_call && engine.public_key().is_none() {
            return Err(no_key("a decision about an MCP call"));
        }
        let repeated = is_repeated(decide(engine, &gate.id, action, value, SOURCE).await?)?;
        let next = format!("rye session resume {}", session.short());
        let next = (!repeated && !is_call).then_some(next);
        let gate = engine.gate(&gate.id).await?.unwrap_or(gate);
        Ok(Box::new(Answer::new(&gate, action, repeated, next)) as Box<dyn Report>)
    })
}

fn no_key(what: &str) -> Failure {
    let message = format!("{what} must be signed, but you have no signing key");
    Failure::failed("no_key", message).hint("rye init")
}

/// A decision that was made.
struct Answer {
    title: String,
    body: String,
    /// The gate after the decision, as JSON.
    gate: Value,
    action: String,
    /// Whether the same decision was made before.
    repeated: bool,
    next: Option<String>,
}

impl Answer {
    fn new(gate: &Gate, action: &str, repeated: bool, next: Option<String>) -> Self {
        Self {
            title: gate.title.clone(),
            body: gate.body.clone(),
            gate: json!(gate),
            action: action.to_owned(),
            repeated,
            next,
        }
    }
}

impl Report for Answer {
    fn json(&self) -> Value {
        let (gate, id) = (&self.gate, &self.gate["id"]);
        json!({ "gate": id, "action": self.action, "repeated": self.repeated, "decision_gate": gate })
    }

    fn show(&self, page: &mut Page) {
        let repeated = if self.repeated { " (repeated)" } else { "" };
        let decision = describe_action(&self.action);
        page.line(paint(GOOD, format_args!("{decision}{repeated}")));
        for line in gate_render::lines(&self.title, &self.body, page.width()) {
            page.line(line);
        }
    }

    fn next_command(&self) -> Option<String> {
        self.next.clone()
    }
}
