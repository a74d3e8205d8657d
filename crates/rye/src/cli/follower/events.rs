//! Events as JSON lines.

use rye_engine::protocol::{Entry, Event, EventKind, Gate};
use serde_json::json;

use crate::cli::failure::Failure;
use crate::cli::printer::Printer;

/// The event for a gate that a task opened.
pub(super) fn gate_event(gate: &Gate) -> Event {
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

/// Prints an event as a line, with the content of the entry it refers to.
pub(super) fn print_event(event: &Event, entry: Option<&Entry>) -> Result<(), Failure> {
    let io_failure = |error: &dyn std::fmt::Display| Failure::failed("io", error);
    let mut data = serde_json::to_value(&event.kind).map_err(|error| io_failure(&error))?;
    if let Some(data) = data.as_object_mut() {
        data.remove("type");
        if let Some(entry) = entry {
            let content = serde_json::to_value(&entry.kind).map_err(|error| io_failure(&error))?;
            data.insert("content".to_owned(), content);
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
    Printer::raw(format!("{line}\n").as_bytes()).map_err(|error| io_failure(&error))
}
