//! `rye gate list`, `approve`, `deny`, `answer`

pub(super) mod graphs;
mod meant;

use std::path::{Path, PathBuf};

use rye_engine::arguments::ARGUMENTS;
use rye_engine::meta_tools::{APPROVE, APPROVE_PROJECT, APPROVE_SESSION};
use rye_engine::protocol::{Gate, Purpose, Session};
use rye_engine::store::PostOutcome;
use serde_json::{Value, json};

use crate::cli::args::{GateArgs, GateCommand, Holds};
use crate::cli::context::Context;
use crate::cli::engine::{Wanted, decide, how_to_answer, with_engine};
use crate::cli::failure::Failure;
use crate::cli::gate_words;
use crate::cli::going_on::PROJECT;
use crate::cli::page::{DIM, GOOD, Page, one_line, paint};
use crate::cli::printer::{Outcome, Report};
use graphs::Asked;
use meant::Meant;

pub(crate) fn run(command: &GateCommand, context: &Context) -> Outcome {
    match command {
        GateCommand::List => list(context),
        GateCommand::Approve(args) => {
            let action = match args.holds {
                Holds::Call => APPROVE,
                Holds::Session => APPROVE_SESSION,
                Holds::Project => APPROVE_PROJECT,
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
    let mut asked = graphs::all(context)?;
    asked.retain(Asked::is_pending);
    with_engine(context, Wanted::default(), async |engine| {
        let mut gates = Vec::new();
        for gate in engine.pending_gates(None).await? {
            let session = engine.session_data(&gate.origin.session).await?;
            let elsewhere = session.and_then(|session| made_in(&session));
            gates.push((gate, elsewhere.filter(|project| project != here)));
        }
        let list = List {
            here: here.to_owned(),
            gates,
            asked,
        };
        Ok(Box::new(list) as Box<dyn Report>)
    })
}

/// The project that a session was made in.
fn made_in(session: &Session) -> Option<PathBuf> {
    let project = session.metadata.get(PROJECT).and_then(Value::as_str);
    project.or(session.workspace.as_deref()).map(PathBuf::from)
}

struct List {
    /// The project in which they are listed.
    here: PathBuf,
    /// Of agents and MCP clients' calls, with the project where that is another.
    gates: Vec<(Gate, Option<PathBuf>)>,
    /// Of graphs.
    asked: Vec<Asked>,
}

impl Report for List {
    fn json(&self) -> Value {
        let gates = self.gates.iter().map(|(gate, elsewhere)| {
            let mut gate = json!(gate);
            if let Some(project) = elsewhere {
                gate["project"] = json!(project.to_string_lossy());
            }
            gate
        });
        let asked = self.asked.iter().map(|asked| asked.json(&self.here));
        json!({ "gates": gates.chain(asked).collect::<Vec<_>>() })
    }

    fn show(&self, page: &mut Page) {
        if self.gates.is_empty() && self.asked.is_empty() {
            page.line("nothing waits for a decision");
        }
        for (gate, elsewhere) in &self.gates {
            let origin = elsewhere.as_deref().map(in_project);
            show(page, &gate.title, &gate.body, origin, &how_to_answer(gate));
        }
        for asked in &self.asked {
            let (gate, origin) = (&asked.question.gate, Some(asked.origin()));
            show(page, &gate.title, &gate.body, origin, &how_to_answer(gate));
        }
    }
}

fn in_project(project: &Path) -> String {
    format!("in {}", project.display())
}

fn show(page: &mut Page, title: &str, body: &str, origin: Option<String>, answer: &str) {
    for line in gate_words::lines(title, body, page.width()) {
        page.line(line);
    }
    if let Some(origin) = origin {
        page.line(paint(DIM, format_args!("  {}", one_line(&origin))));
    }
    page.line(paint(DIM, format_args!("  {answer}")));
}

/// Whether an answer counts, and whether it did before.
fn accepted(posted: PostOutcome) -> Result<bool, Failure> {
    match posted {
        PostOutcome::Conflict(first) => Err(conflict(&first.by, &first.action)),
        PostOutcome::GateClosed(_) => Err(gone()),
        PostOutcome::Written => Ok(false),
        PostOutcome::Duplicate => Ok(true),
    }
}

fn conflict(by: &str, action: &str) -> Failure {
    let message = format!("{by} decided before: {action}");
    Failure::failed("decision_gate_conflict", message)
}

fn fixed() -> Failure {
    Failure::usage("only what an agent wants to run can be approved with other arguments")
}

fn gone() -> Failure {
    Failure::failed("gone", "nobody waits for a decision there any more")
}

fn answer(args: &GateArgs, action: &str, value: Value, context: &Context) -> Outcome {
    match meant::meant(&args.gate, context)? {
        Meant::Graph(asked) => graphs::answer(&asked, action, value, context),
        Meant::Agent(gate) => answer_agent(gate, action, value, context),
    }
}

fn answer_agent(gate: Gate, action: &str, value: Value, context: &Context) -> Outcome {
    with_engine(context, Wanted::default(), async |engine| {
        let session = &gate.origin.session;
        let data = engine.session_data(session).await?;
        let is_call = data.is_some_and(|data| data.purpose == Purpose::Run);
        // The server takes only what the user signed.
        if is_call && engine.public_key().is_none() {
            return Err(no_key("a decision about an MCP client's call"));
        }
        let before = accepted(decide(engine, &gate.id, action, value).await?)?;
        let next = format!("rye session resume {session}, if no process runs it");
        let next = (!before && !is_call).then_some(next);
        let gate = engine.gate(&gate.id).await?.unwrap_or(gate);
        Ok(Box::new(Answered::of(&gate, action, before, next)) as Box<dyn Report>)
    })
}

fn no_key(what: &str) -> Failure {
    let message = format!("{what} is signed, and there is no key to sign it with");
    Failure::failed("no_key", message).hint("rye init")
}

/// What was decided, and about what.
struct Answered {
    title: String,
    body: String,
    /// As it stands now.
    gate: Value,
    action: String,
    /// Whether the same was decided before.
    before: bool,
    next: Option<String>,
}

impl Answered {
    fn of(gate: &Gate, action: &str, before: bool, next: Option<String>) -> Self {
        Self {
            title: gate.title.clone(),
            body: gate.body.clone(),
            gate: json!(gate),
            action: action.to_owned(),
            before,
            next,
        }
    }
}

impl Report for Answered {
    fn json(&self) -> Value {
        let (gate, id) = (&self.gate, &self.gate["id"]);
        json!({ "gate": id, "action": self.action, "before": self.before, "decision_gate": gate })
    }

    fn show(&self, page: &mut Page) {
        let before = if self.before { ", as before" } else { "" };
        page.line(paint(GOOD, format_args!("{}{before}", self.action)));
        for line in gate_words::lines(&self.title, &self.body, page.width()) {
            page.line(line);
        }
    }

    fn next(&self) -> Option<String> {
        self.next.clone()
    }
}
