//! Follows a session on the terminal: progress on standard error, events on standard output.

use std::io;

use rye_engine::BoxFuture;
use rye_engine::protocol::{Entry, Event, EventKind, Gate};
use rye_host::{Approval, Failure, SessionObserver, event_json};

use super::entry_line::line;
use super::gate_render;
use super::page::{DIM, one_line, paint};
use super::printer::Printer;

/// Name of this interface in the record of a decision.
pub(crate) const SOURCE: &str = "cli";

/// The user at the terminal, or the script that reads the events.
pub(crate) struct TerminalObserver {
    pub(crate) printer: Printer,
    /// Print each event as a JSON line.
    pub(crate) events: bool,
}

impl SessionObserver for TerminalObserver {
    fn event(&self, event: &Event, entry: Option<&Entry>) -> Result<(), Failure> {
        if !self.events {
            // The engine is waiting, for example for the store.
            if let (EventKind::Error { error }, None) = (&event.kind, event.sequence) {
                self.printer.warn_always(&error.message, None);
            }
            return Ok(());
        }
        let line = event_json(event, entry).map_err(|error| Failure::failed("io", error))?;
        let written = Printer::raw(format!("{line}\n").as_bytes());
        written.map_err(|error| Failure::failed("io", error))
    }

    fn entry(&self, entry: &Entry) {
        self.progress(&line(entry));
    }

    fn progress(&self, text: &str) {
        if !self.printer.quiet && !self.events {
            let line = format!("{}\n", paint(DIM, one_line(text)));
            self.printer.print_stderr(&line);
        }
    }

    fn warn(&self, text: &str, hint: Option<&str>, is_important: bool) {
        if is_important || !self.printer.quiet {
            self.printer.warn_always(text, hint);
        }
    }

    fn ask<'a>(&'a self, gate: &'a Gate) -> BoxFuture<'a, Result<Approval, Failure>> {
        Box::pin(async move {
            if !Printer::can_prompt() {
                return Ok(Approval::Unavailable);
            }
            let width = Printer::stderr_width();
            let question = gate_render::lines(&gate.title, &gate.body, width).join("\n");
            let printer = self.printer;
            printer.print_stderr(&format!("{question}\n"));
            let answer = tokio::task::spawn_blocking(move || printer.confirm("Approve?"));
            let answer = answer.await.map_err(io::Error::other).flatten();
            match answer.map_err(|error| Failure::failed("io", error))? {
                Some(true) => Ok(Approval::Approve),
                Some(false) => Ok(Approval::Deny),
                None => Ok(Approval::Left),
            }
        })
    }
}
