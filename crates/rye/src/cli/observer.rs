//! Follows a session on the terminal: progress on standard error, events on standard output.

use std::io;
use std::io::IsTerminal as _;
use std::sync::{Mutex, PoisonError};

use rye_engine::BoxFuture;
use rye_engine::protocol::{Entry, Event, EventKind, Gate};
use rye_host::{AnswerUpdate, Approval, Failure, SessionObserver, event_json};

use super::entry_line::line;
use super::gate_render;
use super::page::{DIM, one_line, paint, sanitize};
use super::printer::Printer;

/// Name of this interface in the record of a decision.
pub(crate) const SOURCE: &str = "cli";

/// The user at the terminal, or the script that reads the events.
pub(crate) struct TerminalObserver {
    pub(crate) printer: Printer,
    /// Print each event as a JSON line.
    pub(crate) events: bool,
    /// Print the answer while it is generated, instead of at the end.
    pub(crate) stream: Option<AnswerStream>,
}

/// Prints an answer on a terminal while the model generates it.
#[derive(Debug, Default)]
pub(crate) struct AnswerStream(Mutex<StreamState>);

#[derive(Debug, Default)]
struct StreamState {
    /// The printed part of the current message.
    printed: String,
    /// Whether the cursor is behind text.
    in_line: bool,
    /// Whether a whole answer was printed.
    has_answer: bool,
}

impl AnswerStream {
    /// A stream, if standard output is a terminal.
    pub(crate) fn for_terminal() -> Option<Self> {
        io::stdout().is_terminal().then(Self::default)
    }

    /// The text to print for an update.
    fn update(&self, update: AnswerUpdate<'_>) -> String {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match update {
            AnswerUpdate::Start => {
                state.printed.clear();
                state.end_line().to_owned()
            }
            AnswerUpdate::Delta(text) => {
                // Space before the first word would be an empty line.
                let text = if state.printed.is_empty() {
                    text.trim_start()
                } else {
                    text
                };
                state.add(text)
            }
            AnswerUpdate::Complete(text) => {
                let text = text.trim();
                let (before, rest) = match text.strip_prefix(state.printed.as_str()) {
                    Some(rest) => ("", rest),
                    // The model ended with space.
                    None if state.printed.trim_end() == text => ("", ""),
                    // Some text was not received: print all of it.
                    None => (state.end_line(), text),
                };
                let rest = format!("{before}{}", state.add(rest));
                state.printed.clear();
                state.has_answer = true;
                rest + state.end_line()
            }
        }
    }

    /// Ends the current line, if there is text in it.
    fn end_line(&self) -> &'static str {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.end_line()
    }
}

impl StreamState {
    fn add(&mut self, text: &str) -> String {
        self.printed.push_str(text);
        if let Some(last) = text.chars().next_back() {
            self.in_line = last != '\n';
        }
        sanitize(text).into_owned()
    }

    fn end_line(&mut self) -> &'static str {
        if std::mem::take(&mut self.in_line) {
            "\n"
        } else {
            ""
        }
    }
}

impl TerminalObserver {
    /// Whether an answer was printed. Without one, as after a retry of a prompt that has ended,
    /// the report prints it.
    pub(crate) fn has_printed_answer(&self) -> bool {
        let stream = self.stream.as_ref().map(|stream| &stream.0);
        stream.is_some_and(|it| it.lock().unwrap_or_else(PoisonError::into_inner).has_answer)
    }

    /// Ends the line of an unfinished answer, so that other text can follow.
    pub(crate) fn end_line(&self) {
        if let Some(stream) = &self.stream {
            // Output that cannot be written will fail again with the report.
            let _ = self.printer.print_stdout(stream.end_line());
        }
    }
}

impl SessionObserver for TerminalObserver {
    fn event(&self, event: &Event, entry: Option<&Entry>) -> Result<(), Failure> {
        if !self.events {
            // The engine is waiting, for example for the store.
            if let (EventKind::Error { error }, None) = (&event.kind, event.sequence) {
                self.end_line();
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

    fn answer(&self, update: AnswerUpdate<'_>) {
        if let Some(stream) = &self.stream {
            let _ = self.printer.print_stdout(&stream.update(update));
        }
    }

    fn progress(&self, text: &str) {
        if !self.printer.quiet && !self.events {
            self.end_line();
            let line = format!("{}\n", paint(DIM, one_line(text)));
            self.printer.print_stderr(&line);
        }
    }

    fn warn(&self, text: &str, hint: Option<&str>, is_important: bool) {
        if is_important || !self.printer.quiet {
            self.end_line();
            self.printer.warn_always(text, hint);
        }
    }

    fn ask<'a>(&'a self, gate: &'a Gate) -> BoxFuture<'a, Result<Approval, Failure>> {
        Box::pin(async move {
            if !Printer::can_prompt() {
                return Ok(Approval::Unavailable);
            }
            self.end_line();
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

#[cfg(test)]
mod tests {
    use super::*;
    use AnswerUpdate::{Complete, Delta, Start};

    #[test]
    fn streamed_answer_is_printed_once_and_complete() {
        for (updates, printed) in [
            (
                &[Start, Delta("a b"), Delta(" c"), Complete("a b c")][..],
                "a b c\n",
            ),
            // Space at the ends, and in the middle of the stream.
            (
                &[Start, Delta("\n a"), Delta("\n"), Complete("\n a\n")],
                "a\n",
            ),
            (&[Start, Delta("a\n\n"), Complete("a\n\nb")], "a\n\nb\n"),
            // Nothing was streamed, or only the beginning.
            (&[Complete("a")], "a\n"),
            (&[Start, Delta("a"), Complete("a b")], "a b\n"),
            // A part is missing.
            (
                &[Start, Delta("a"), Delta("c"), Complete("a b c")],
                "ac\na b c\n",
            ),
            // The model starts again.
            (
                &[Start, Delta("a"), Start, Delta("b"), Complete("b")],
                "a\nb\n",
            ),
            // Control characters, also when they are split.
            (
                &[
                    Start,
                    Delta("\u{1b}"),
                    Delta("[2Ja"),
                    Complete("\u{1b}[2Ja"),
                ],
                "\\u{1b}[2Ja\n",
            ),
        ] {
            let stream = AnswerStream::default();
            let text: String = updates.iter().map(|it| stream.update(*it)).collect();
            assert_eq!(text, printed, "{updates:?}");
        }
    }
}
