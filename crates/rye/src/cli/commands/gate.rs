//! `rye gate list`, `approve`, `deny`, `answer`

pub(super) mod graphs;

use std::path::{Path, PathBuf};

use rye_engine::arguments::ARGUMENTS;
use rye_engine::bridge::{APPROVE, APPROVE_PROJECT, APPROVE_SESSION};
use rye_engine::protocol::{Gate, GateId, Session};
use rye_engine::store::Posted;
use serde_json::{Value, json};

use crate::cli::args::{GateArgs, GateCommand, Holds};
use crate::cli::call_gates::{ANSWERS, Answer, CallGate, CallGates, Given, OF_CALLS};
use crate::cli::context::Context;
use crate::cli::engine::{Wanted, decide, how_to_answer, one_of, person, with_engine};
use crate::cli::failure::Failure;
use crate::cli::gate_words;
use crate::cli::going_on::PROJECT;
use crate::cli::page::{DIM, GOOD, Page, one_line, paint};
use crate::cli::printer::{Outcome, Report};
use graphs::Asked;

pub(crate) fn run(command: &GateCommand, context: &Context) -> Outcome {
    match command {
        GateCommand::List => list(context),
        GateCommand::Approve(args) => {
            if args.holds != Holds::Call && call_gate(&args.gate, context)?.is_some() {
                let message = "an approval of an MCP client's call is for that call alone";
                return Err(
                    Failure::usage(message).hint(format!("rye gate approve {}", args.gate.gate))
                );
            }
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

/// The waiting call of an MCP client that is meant.
fn call_gate(args: &GateArgs, context: &Context) -> Result<Option<String>, Failure> {
    let pending = CallGates::of(context)?.pending()?;
    let ids = pending.iter().map(|gate| gate.id.as_str());
    // One that has an answer is not among them; its whole id still tells what it was.
    let is_whole = args.gate.starts_with(OF_CALLS);
    match one_of(ids, &args.gate, "waiting gate", "rye gate list") {
        Ok(id) => Ok(Some(id.to_owned())),
        Err(_) if is_whole => Ok(Some(args.gate.clone())),
        Err(failure) if failure.code == "ambiguous" => Err(failure),
        Err(_) => Ok(None),
    }
}

fn answer_call(id: &str, action: &str, value: &Value, context: &Context) -> Outcome {
    if value.get(ARGUMENTS).is_some() {
        return Err(fixed());
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
        Given::Written => Ok(Box::new(Answered {
            gate: GateId::from(id.to_owned()),
            action: action.to_owned(),
            next: None,
        })),
        Given::Conflict(first) => Err(conflict(&first.by, &first.action)),
        Given::Gone => Err(gone()),
    }
}

/// Whether an answer counts.
fn accepted(posted: Posted) -> Result<(), Failure> {
    match posted {
        Posted::Conflict(first) => Err(conflict(&first.by, &first.action)),
        Posted::Gone(_) => Err(gone()),
        Posted::Written | Posted::Same => Ok(()),
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
    if let Some(id) = call_gate(args, context)? {
        return answer_call(&id, action, &value, context);
    }
    if let Some(asked) = graphs::meant(&args.gate, context)? {
        return graphs::answer(&asked, action, value, context);
    }
    with_engine(context, Wanted::default(), async |engine| {
        let pending = engine.pending_gates(None).await?;
        let ids = pending.iter().map(|gate| gate.id.as_str());
        // One that has ended is not among them; its whole id still tells how.
        let gate = match one_of(ids, &args.gate, "waiting gate", "rye gate list") {
            Ok(id) => GateId::from(id.to_owned()),
            Err(_) if args.gate.starts_with("gate:") => GateId::from(args.gate.clone()),
            Err(failure) => return Err(failure),
        };
        let posted = decide(engine, &gate, action, value).await?;
        accepted(posted)?;
        let held = pending.iter().find(|it| it.id == gate);
        let session = held.map(|gate| gate.origin.session.to_string());
        let action = action.to_owned();
        let next =
            session.map(|session| format!("rye session resume {session}, if no process runs it"));
        Ok(Box::new(Answered { gate, action, next }) as Box<dyn Report>)
    })
}

struct Answered {
    gate: GateId,
    action: String,
    next: Option<String>,
}

impl Report for Answered {
    fn json(&self) -> Value {
        json!({ "gate": self.gate, "action": self.action })
    }

    fn show(&self, page: &mut Page) {
        page.line(paint(GOOD, &self.action));
    }

    fn next(&self) -> Option<String> {
        self.next.clone()
    }
}
