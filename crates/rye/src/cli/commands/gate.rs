//! `rye gate list`, `approve`, `deny`, `answer`

use rye_engine::protocol::{Gate, GateId};
use rye_engine::store::Posted;
use serde_json::{Value, json};

use crate::cli::args::{GateArgs, GateCommand};
use crate::cli::context::Context;
use crate::cli::engine::{Wanted, decide, how_to_answer, one_of, with_engine};
use crate::cli::failure::Failure;
use crate::cli::page::{BOLD, DIM, GOOD, Page, paint, plain};
use crate::cli::printer::{Outcome, Report};

pub(crate) fn run(command: &GateCommand, context: &Context) -> Outcome {
    match command {
        GateCommand::List => list(context),
        GateCommand::Approve(args) => answer(args, "approve", Value::Null, context),
        GateCommand::Deny(args) => answer(args, "deny", Value::Null, context),
        GateCommand::Answer(args) => {
            let value = args.value.clone().map_or(Value::Null, Value::String);
            answer(&args.gate, &args.action, value, context)
        }
    }
}

fn list(context: &Context) -> Outcome {
    with_engine(context, Wanted::default(), async |engine| {
        let gates = engine.pending_gates(None).await?;
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
            if !gate.body.is_empty() {
                page.line(format_args!("  {}", plain(&gate.body)));
            }
            page.line(paint(DIM, format_args!("  {}", how_to_answer(gate))));
        }
    }
}

fn answer(args: &GateArgs, action: &str, value: Value, context: &Context) -> Outcome {
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
        match posted {
            Posted::Conflict(first) => {
                let message = format!("{} decided before: {}", first.by, first.action);
                return Err(Failure::failed("decision_gate_conflict", message));
            }
            Posted::Gone(_) => {
                let message = "nobody waits for a decision there any more";
                return Err(Failure::failed("gone", message));
            }
            Posted::Written | Posted::Same => {}
        }
        let held = pending.iter().find(|it| it.id == gate);
        let session = held.map(|gate| gate.origin.session.to_string());
        let action = action.to_owned();
        Ok(Box::new(Answered {
            gate,
            action,
            session,
        }) as Box<dyn Report>)
    })
}

struct Answered {
    gate: GateId,
    action: String,
    session: Option<String>,
}

impl Report for Answered {
    fn json(&self) -> Value {
        json!({ "gate": self.gate, "action": self.action })
    }

    fn show(&self, page: &mut Page) {
        page.line(paint(GOOD, &self.action));
    }

    fn next(&self) -> Option<String> {
        let session = self.session.as_ref()?;
        Some(format!(
            "rye session resume {session}, if no process runs it"
        ))
    }
}
