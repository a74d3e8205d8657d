//! `rye gate list`, `approve`, `deny`, `answer`

use std::path::{Path, PathBuf};

use rye_engine::arguments::ARGUMENTS;
use rye_engine::bridge::{APPROVE, APPROVE_PROJECT, APPROVE_SESSION};
use rye_engine::proof;
use rye_engine::protocol::{Gate, GateId, Millis, Resolution};
use rye_engine::store::Posted;
use rye_graph::{Posted as Heard, Question, Runs};
use serde_json::{Value, json};

use crate::cli::args::{GateArgs, GateCommand, Holds};
use crate::cli::call_gates::{ANSWERS, Answer, CallGate, CallGates, Given, OF_CALLS};
use crate::cli::context::Context;
use crate::cli::engine::{Wanted, decide, how_to_answer, one_of, person, signing_key, with_engine};
use crate::cli::failure::Failure;
use crate::cli::page::{BOLD, DIM, GOOD, Page, one_line, paint, plain};
use crate::cli::printer::{Outcome, Report};

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
    let asked = Runs::of(context.settings.project())
        .questions()?
        .into_iter();
    let asked: Vec<_> = asked.filter(|it| it.status().is_pending()).collect();
    with_engine(context, Wanted::default(), async |engine| {
        let mut gates = engine.pending_gates(None).await?;
        gates.extend(asked.into_iter().map(|question| question.gate));
        let list = List {
            gates,
            calls: CallGates::of(context)?.pending()?,
            here: context.settings.project().to_owned(),
        };
        Ok(Box::new(list) as Box<dyn Report>)
    })
}

struct List {
    /// Of agents and of graphs.
    gates: Vec<Gate>,
    /// Of MCP clients.
    calls: Vec<CallGate>,
    /// The project in which they are listed.
    here: PathBuf,
}

impl Report for List {
    fn json(&self) -> Value {
        let gates = self.gates.iter().map(|gate| json!(gate));
        let calls = self.calls.iter().map(CallGate::json);
        json!({ "gates": gates.chain(calls).collect::<Vec<_>>() })
    }

    fn show(&self, page: &mut Page) {
        if self.gates.is_empty() && self.calls.is_empty() {
            page.line("nothing waits for a decision");
        }
        for gate in &self.gates {
            show(page, &gate.title, None, &gate.body, &how_to_answer(gate));
        }
        for gate in &self.calls {
            let answer = format!("rye gate approve {}", gate.id);
            let elsewhere = Some(gate.project.as_path()).filter(|it| *it != self.here);
            show(page, &gate.title, elsewhere, &gate.body, &answer);
        }
    }
}

fn show(page: &mut Page, title: &str, elsewhere: Option<&Path>, body: &str, answer: &str) {
    page.line(paint(BOLD, one_line(title)));
    if let Some(project) = elsewhere {
        page.line(format_args!(
            "  in {}",
            one_line(&project.to_string_lossy())
        ));
    }
    for line in body.lines() {
        page.line(format_args!("  {}", plain(line)));
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

/// A question of a graph, if it is one that is meant.
fn question(meant: &str, context: &Context) -> Result<Option<Question>, Failure> {
    let mut all = Runs::of(context.settings.project()).questions()?;
    if let Some(exact) = all.iter().position(|it| it.gate.id.as_str() == meant) {
        return Ok(Some(all.swap_remove(exact)));
    }
    let is_meant = |it: &Question| it.gate.id.as_str().contains(meant);
    all.retain(|it| is_meant(it) && it.status().is_pending());
    if all.is_empty() {
        return Ok(None);
    }
    let ids = all.iter().map(|it| it.gate.id.as_str());
    let id = one_of(ids, meant, "waiting gate", "rye gate list")?.to_owned();
    Ok(all.into_iter().find(|it| it.gate.id.as_str() == id))
}

/// Answers a question of a graph. Whoever walks it hears of it by itself.
fn answer_graph(question: &Question, action: &str, value: Value, context: &Context) -> Outcome {
    let gate = &question.gate;
    if value.get(ARGUMENTS).is_some() {
        return Err(fixed());
    }
    let actions: Vec<_> = gate.actions.iter().map(|it| it.id.as_str()).collect();
    if !actions.is_empty() && !actions.contains(&action) {
        let message = format!(
            "`{action}` is no answer to it; there are {}",
            actions.join(", ")
        );
        return Err(Failure::usage(message).hint(how_to_answer(gate)));
    }
    let millis = u64::try_from(lillux::time::now().epoch_ms).unwrap_or_default();
    let mut resolution = Resolution {
        action: action.to_owned(),
        value,
        by: person(),
        at: Millis(millis),
        source: "cli".to_owned(),
        receipt: None,
    };
    if let Some(key) = signing_key(context)? {
        let receipt = proof::receipt(gate, &resolution, &key);
        resolution.receipt = Some(Box::new(receipt));
    }
    let posted = match question.answer(&resolution)? {
        Heard::Written => Posted::Written,
        Heard::Same => Posted::Same,
        Heard::Conflict(first) => Posted::Conflict(*first),
        Heard::Gone(status) => Posted::Gone(status),
    };
    accepted(posted)?;
    // A part of a run goes on with the whole.
    let run = gate.origin.session.as_str();
    let run = run.split('.').next().unwrap_or(run);
    let found = Runs::of(context.settings.project()).find(run)?.read()?;
    let next = (!found.standing().is_live()).then(|| format!("rye graph run --resume {run}"));
    Ok(Box::new(Answered {
        next,
        gate: gate.id.clone(),
        action: action.to_owned(),
    }))
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
    if let Some(question) = question(&args.gate, context)? {
        return answer_graph(&question, action, value, context);
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
