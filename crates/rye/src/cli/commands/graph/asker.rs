//! Asks the user about the gates of a run, if there is a terminal.

use std::sync::mpsc::{self, Sender};
use std::thread;

use rye_engine::Decision;
use rye_engine::protocol::Gate;
use rye_engine::store::PostOutcome;
use rye_host::runs::Runs;
use serde_json::Value;

use crate::cli::context::Context;
use crate::cli::entry_line::describe_action;
use crate::cli::failure::Failure;
use crate::cli::observer::SOURCE;
use crate::cli::page::{DIM, one_line, paint};
use crate::cli::printer::Printer;

/// How often to ask again after an invalid answer.
const ATTEMPTS: usize = 3;

/// The action that continues with a result that the user provides.
const RESULT: &str = "result";

/// Asks about gates, one after the other, on a thread of its own: the run waits for the decision in
/// the store, where another process may make it as well.
pub(super) struct GateAsker(Sender<Gate>);

impl GateAsker {
    /// An asker; `None` if there is no terminal, or no key to sign decisions with.
    pub(super) fn start(context: &Context) -> Result<Option<Self>, Failure> {
        if !Printer::can_prompt() || context.signing_key()?.is_none() {
            return Ok(None);
        }
        let (runs, by, printer) = (Runs::open(context)?, context.user_name()?, context.printer);
        let (sender, gates) = mpsc::channel::<Gate>();
        thread::spawn(move || {
            for gate in gates {
                if let Err(failure) = ask(&runs, &gate, &by, printer) {
                    let hint = failure.hint.as_deref();
                    printer.warn_always(&failure.message, hint);
                }
            }
        });
        Ok(Some(Self(sender)))
    }

    /// Asks about a gate that was just shown to the user.
    pub(super) fn ask(&self, gate: &Gate) {
        // The thread lives as long as the process.
        let _ = self.0.send(gate.clone());
    }
}

/// Asks the user, and posts the decision. Without an answer, the gate stays open.
fn ask(runs: &Runs, gate: &Gate, by: &str, printer: Printer) -> Result<(), Failure> {
    let stored = runs.block_on(runs.store().gate(&gate.id))?;
    if stored.is_some_and(|stored| !stored.status.is_pending()) {
        return Ok(());
    }
    let Some((action, value)) = read_answer(gate, printer)? else {
        return Ok(());
    };
    let decision = Decision {
        action: action.into(),
        value,
        by: by.to_owned(),
        source: SOURCE.to_owned(),
    };
    match runs.decide(gate, decision)? {
        PostOutcome::Written | PostOutcome::Duplicate => Ok(()),
        PostOutcome::Conflict(first) => {
            let (decision, by) = (describe_action(&first.action), one_line(&first.by));
            let text = format!("the gate is already closed: {decision} by {by}");
            printer.print_stderr(&format!("{}\n", paint(DIM, text)));
            Ok(())
        }
        PostOutcome::GateClosed(_) => {
            printer.print_stderr(&format!("{}\n", paint(DIM, "the gate is already closed")));
            Ok(())
        }
    }
}

/// The action and the value of the answer; `None` if the user gave none.
fn read_answer(gate: &Gate, printer: Printer) -> Result<Option<(String, Value)>, Failure> {
    let unreadable = |error| Failure::failed("io", format_args!("cannot read the answer: {error}"));
    let actions: Vec<_> = gate.actions.iter().map(|it| it.id.as_str()).collect();
    if actions == ["approve", "deny"] {
        let answer = printer.confirm("Approve?").map_err(unreadable)?;
        let action = answer.map(|is_yes| if is_yes { "approve" } else { "deny" });
        return Ok(action.map(|action| (action.to_owned(), Value::Null)));
    }
    let read = |question: &str| printer.read_line(question).map_err(unreadable);
    if actions.is_empty() {
        let text = read("Answer: ")?.filter(|text| !text.is_empty());
        return Ok(text.map(|text| ("answer".to_owned(), Value::String(text))));
    }
    let question = format!("Answer [{}]: ", actions.join("/"));
    for _ in 0..ATTEMPTS {
        let Some(answer) = read(&question)? else {
            return Ok(None);
        };
        if !actions.contains(&answer.as_str()) {
            continue;
        }
        let value = match answer.as_str() {
            RESULT => read("Result, as JSON or text: ")?.map(Value::String),
            _ => Some(Value::Null),
        };
        return Ok(value.map(|value| (answer, value)));
    }
    Ok(None)
}
