//! `rye gate list`, `approve`, `deny`, `answer`

use rye_engine::bridge::{APPROVE, APPROVE_PROJECT, APPROVE_SESSION};
use rye_engine::proof;
use rye_engine::protocol::{Gate, GateId, Millis, Resolution};
use rye_engine::store::Posted;
use rye_graph::{Posted as Heard, Question, Runs};
use serde_json::{Value, json};

use crate::cli::args::{GateArgs, GateCommand, Holds};
use crate::cli::context::Context;
use crate::cli::engine::{Wanted, decide, how_to_answer, one_of, signing_key, with_engine};
use crate::cli::failure::Failure;
use crate::cli::page::{BOLD, DIM, GOOD, Page, paint, plain};
use crate::cli::printer::{Outcome, Report};

pub(crate) fn run(command: &GateCommand, context: &Context) -> Outcome {
    match command {
        GateCommand::List => list(context),
        GateCommand::Approve(args) => {
            let action = match args.holds {
                Holds::Call => APPROVE,
                Holds::Session => APPROVE_SESSION,
                Holds::Project => APPROVE_PROJECT,
            };
            answer(&args.gate, action, Value::Null, context)
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
        Ok(Box::new(List(gates)) as Box<dyn Report>)
    })
}

struct List(Vec<Gate>);

impl Report for List {
    fn json(&self) -> Value {
        json!({ "gates": self.0 })
    }

    fn show(&self, page: &mut Page) {
        if self.0.is_empty() {
            page.line("nothing waits for a decision");
        }
        for gate in &self.0 {
            page.line(paint(BOLD, plain(&gate.title)));
            for line in gate.body.lines() {
                page.line(format_args!("  {}", plain(line)));
            }
            page.line(paint(DIM, format_args!("  {}", how_to_answer(gate))));
        }
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
        by: std::env::var("USER").unwrap_or_else(|_| "somebody".to_owned()),
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
    Ok(Box::new(Answered {
        next: Some(format!(
            "rye graph run --resume {}, if no process walks it",
            gate.origin.session
        )),
        gate: gate.id.clone(),
        action: action.to_owned(),
    }))
}

/// Whether an answer counts.
fn accepted(posted: Posted) -> Result<(), Failure> {
    match posted {
        Posted::Conflict(first) => {
            let message = format!("{} decided before: {}", first.by, first.action);
            Err(Failure::failed("decision_gate_conflict", message))
        }
        Posted::Gone(_) => {
            let message = "nobody waits for a decision there any more";
            Err(Failure::failed("gone", message))
        }
        Posted::Written | Posted::Same => Ok(()),
    }
}

fn answer(args: &GateArgs, action: &str, value: Value, context: &Context) -> Outcome {
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
