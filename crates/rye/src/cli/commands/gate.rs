//! `rye gate list`, `approve`, `deny`, `answer`

pub(super) mod graphs;
mod meant;

use std::path::{Path, PathBuf};

use rye_engine::arguments::ARGUMENTS;
use rye_engine::bridge::{APPROVE, APPROVE_PROJECT, APPROVE_SESSION};
use rye_engine::protocol::{Gate, Session};
use rye_engine::store::Posted;
use serde_json::{Value, json};

use crate::cli::args::{GateArgs, GateCommand, Holds};
use crate::cli::call_gates::{ANSWERS, Answer, CallGate, CallGates, Given};
use crate::cli::context::Context;
use crate::cli::engine::{Wanted, decide, how_to_answer, person, with_engine};
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
            calls: CallGates::of(context)?.pending()?,
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
    /// Of agents, with the project where that is another.
    gates: Vec<(Gate, Option<PathBuf>)>,
    /// Of graphs.
    asked: Vec<Asked>,
    /// Of MCP clients.
    calls: Vec<CallGate>,
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
        let calls = self.calls.iter().map(CallGate::json);
        json!({ "gates": gates.chain(asked).chain(calls).collect::<Vec<_>>() })
    }

    fn show(&self, page: &mut Page) {
        if self.gates.is_empty() && self.asked.is_empty() && self.calls.is_empty() {
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
        for gate in &self.calls {
            let answer = format!("rye gate approve {}", gate.id);
            let elsewhere = Some(gate.project.as_path()).filter(|it| *it != self.here);
            let origin = elsewhere.map(in_project);
            show(page, &gate.title, &gate.body, origin, &answer);
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

fn answer_call(gate: &CallGate, action: &str, value: &Value, context: &Context) -> Outcome {
    let id = gate.id.as_str();
    if value.get(ARGUMENTS).is_some() {
        return Err(fixed());
    }
    if [APPROVE_SESSION, APPROVE_PROJECT].contains(&action) {
        let message = "an approval of an MCP client's call is for that call alone";
        return Err(Failure::usage(message).hint(format!("rye gate approve {id}")));
    }
    if !ANSWERS.contains(&action) {
        let message = format!("the answer to {id} is {}", ANSWERS.join(" or "));
        return Err(Failure::usage(message).hint(format!("rye gate approve {id}")));
    }
    let answer = Answer {
        action: action.to_owned(),
        by: person(),
        at: lillux::time::now().iso,
    };
    match CallGates::of(context)?.give(id, &answer)? {
        Given::Written => {
            let mut json = gate.json();
            json["status"] = json!({ "type": "resolved", "resolution": answer });
            Ok(Box::new(Answered {
                title: gate.title.clone(),
                body: gate.body.clone(),
                gate: json,
                action: action.to_owned(),
                before: false,
                next: None,
            }))
        }
        Given::Conflict(first) => Err(conflict(&first.by, &first.action)),
        Given::Gone => Err(gone()),
    }
}

/// Whether an answer counts, and whether it did before.
fn accepted(posted: Posted) -> Result<bool, Failure> {
    match posted {
        Posted::Conflict(first) => Err(conflict(&first.by, &first.action)),
        Posted::Gone(_) => Err(gone()),
        Posted::Written => Ok(false),
        Posted::Same => Ok(true),
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
        Meant::Call(gate, _) => answer_call(&gate, action, &value, context),
        Meant::Graph(asked) => graphs::answer(&asked, action, value, context),
        Meant::Agent(gate) => answer_agent(gate, action, value, context),
    }
}

fn answer_agent(gate: Gate, action: &str, value: Value, context: &Context) -> Outcome {
    with_engine(context, Wanted::default(), async |engine| {
        let before = accepted(decide(engine, &gate.id, action, value).await?)?;
        let session = &gate.origin.session;
        let next = format!("rye session resume {session}, if no process runs it");
        let next = (!before).then_some(next);
        let gate = engine.gate(&gate.id).await?.unwrap_or(gate);
        Ok(Box::new(Answered::of(&gate, action, before, next)) as Box<dyn Report>)
    })
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
