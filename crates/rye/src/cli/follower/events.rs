//! Events, in a line each.

use rye_engine::protocol::{Entry, Event, EventKind, Gate};
use serde_json::json;

use crate::cli::failure::Failure;
use crate::cli::printer::Printer;

/// That something is asked in a task, as an event of it.
pub(super) fn asked_below(gate: &Gate) -> Event {
    Event {
        sequence: None,
        session: gate.origin.session.clone(),
        thread: Some(gate.origin.thread.clone()),
        at: gate.created_at,
        kind: EventKind::DecisionGate {
            gate: Box::new(gate.clone()),
        },
    }
}

/// Prints an event in a line; with the entry that was written, where it tells of one.
pub(super) fn print_event(event: &Event, entry: Option<&Entry>) -> Result<(), Failure> {
    let wrong = |error: &dyn std::fmt::Display| Failure::failed("io", error);
    let mut data = serde_json::to_value(&event.kind).map_err(|error| wrong(&error))?;
    if let Some(data) = data.as_object_mut() {
        data.remove("type");
        if let Some(entry) = entry {
            let written = serde_json::to_value(&entry.kind).map_err(|error| wrong(&error))?;
            data.insert("written".to_owned(), written);
        }
    }
    let mut line = json!({
        "type": event.kind.name(),
        "session": event.session,
        "thread": event.thread,
        "at": event.at,
        "data": data,
    });
    if let Some(number) = event.sequence {
        line["sequence"] = number.into();
    }
    Printer::raw(format!("{line}\n").as_bytes()).map_err(|error| wrong(&error))
}
