//! The one place that writes to standard output and standard error.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, IsTerminal as _, Write as _};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use anstream::{AutoStream, ColorChoice};
use rustix::termios::{QueueSelector, tcflush};
use serde_json::{Map, Value};

use super::failure::{Exit, Failure};
use super::page::{self, Page, one_line, plain};

/// Held while something is written to standard output as it is, so that lines stay whole.
static LINES: Mutex<()> = Mutex::new(());

/// What a call that was carried out has to say, to scripts and to people.
pub(crate) trait Report {
    /// The fields beside `status`, an object.
    fn json(&self) -> Value;

    /// The same, to be read.
    fn show(&self, page: &mut Page);

    /// The bad outcome, where there is one: it makes the status and the exit code,
    /// and people read it below the page.
    fn failure(&self) -> Option<Failure> {
        None
    }

    /// Whether [`Report::json`] is the whole document, with its own `status`.
    fn is_whole(&self) -> bool {
        false
    }

    /// The command that a person may want next, where output is for a script to read.
    fn next(&self) -> Option<String> {
        None
    }

    /// Whether the command has written all there is to say already, by [`Printer::raw`].
    fn is_written(&self) -> bool {
        false
    }
}

/// A report that went past the printer, by [`Printer::raw`].
pub(crate) struct Written;

impl Report for Written {
    fn json(&self) -> Value {
        Value::Null
    }

    fn show(&self, _: &mut Page) {}

    fn is_written(&self) -> bool {
        true
    }
}

/// How a command ends.
pub(crate) type Outcome = Result<Box<dyn Report>, Failure>;

/// Writes as the global options ask.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Printer {
    pub(crate) json: bool,
    pub(crate) quiet: bool,
    pub(crate) color: ColorChoice,
}

impl Printer {
    /// Prints how the call ended and gives the exit code.
    pub(crate) fn finish(self, outcome: Outcome) -> ExitCode {
        let (fields, page, failure) = match outcome {
            Ok(report) if report.is_written() => return Exit::Done.into(),
            Ok(report) => {
                let failure = report.failure();
                if self.json && report.is_whole() {
                    let words = failure.as_ref().map(Failure::words).unwrap_or_default();
                    let exit = failure.map_or(Exit::Done, |failure| failure.exit);
                    return self.emit(&format!("{}\n", report.json()), &words, exit);
                }
                if let Some(next) = report.next().filter(|_| !self.quiet) {
                    self.error_words(&format!(
                        "{}\n",
                        page::paint(page::DIM, format_args!("next: {next}"))
                    ));
                }
                if self.json {
                    (report.json(), Page::new(None), failure)
                } else {
                    let mut page = Page::new(width(io::stdout()));
                    report.show(&mut page);
                    (Value::Null, page, failure)
                }
            }
            Err(failure) => (Value::Null, Page::new(None), Some(failure)),
        };
        let words = failure.as_ref().map(Failure::words).unwrap_or_default();
        let text = if self.json {
            document(fields, failure.as_ref())
        } else {
            page.text
        };
        let exit = failure.map_or(Exit::Done, |failure| failure.exit);
        self.emit(&text, &words, exit)
    }

    /// Prints a failure in other words for people than its own.
    pub(crate) fn refuse(self, failure: &Failure, words: &str) -> ExitCode {
        let text = if self.json {
            document(Value::Null, Some(failure))
        } else {
            String::new()
        };
        self.emit(&text, words, failure.exit)
    }

    /// Prints what was asked for as it is: help, version, completions.
    pub(crate) fn text(self, text: &str) -> ExitCode {
        self.emit(text, "", Exit::Done)
    }

    /// Says what a person should know though the call goes on.
    pub(crate) fn warn(self, text: &str, hint: Option<&str>) {
        if !self.quiet {
            self.warn_always(text, hint);
        }
    }

    /// The same where a person must know though they want to hear nothing.
    pub(crate) fn warn_always(self, text: &str, hint: Option<&str>) {
        let (warn, help) = (page::WARN, page::HELP);
        let mut words = format!("{warn}warning{warn:#}: {}\n", one_line(text));
        if let Some(hint) = hint {
            let _ = writeln!(words, "  {help}hint{help:#}: {}", one_line(hint));
        }
        self.error_words(&words);
    }

    /// Writes bytes to standard output as they are, past the buffer of the standard
    /// library, which would keep a copy.
    pub(crate) fn raw(bytes: &[u8]) -> io::Result<()> {
        let _alone = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        match Self::raw_output()?.write_all(bytes) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            outcome => outcome,
        }
    }

    /// The same for what is the last of it: whatever else would be written waits for ever.
    pub(crate) fn last(bytes: &[u8]) -> io::Result<()> {
        let alone = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::forget(alone);
        Self::raw_output()?.write_all(bytes)
    }

    /// Standard output, for bytes that come one after the other.
    pub(crate) fn raw_output() -> io::Result<File> {
        let output = io::stdout().as_fd().try_clone_to_owned();
        output.map(File::from)
    }

    /// Writes words to standard output before the report, in the colours that are wanted.
    pub(crate) fn beside(self, words: &str) -> io::Result<()> {
        let mut output = AutoStream::new(io::stdout(), self.color);
        let written = output
            .write_all(words.as_bytes())
            .and_then(|()| output.flush());
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            outcome => outcome,
        }
    }

    /// Writes bytes to standard error as they are; nobody is told if it is closed.
    pub(crate) fn raw_error(bytes: &[u8]) {
        let _ = io::stderr().write_all(bytes);
    }

    /// Says on standard error what was asked for beside the result.
    pub(crate) fn aside(self, words: &str) {
        self.error_words(words);
    }

    /// The columns of the terminal on which questions are asked.
    pub(crate) fn width_of_questions() -> Option<usize> {
        width(io::stderr())
    }

    /// Whether somebody is there who can be asked: at standard input, or, where that is a
    /// pipe, before the terminal that shows what is said on the side.
    pub(crate) fn can_ask() -> bool {
        io::stdin().is_terminal() || (io::stderr().is_terminal() && terminal().is_some())
    }

    /// Asks on the terminal; anything but yes is no. None where input ends, and nobody has
    /// said anything.
    pub(crate) fn confirm(self, question: &str) -> io::Result<Option<bool>> {
        // Where standard input is something else.
        let terminal = terminal().filter(|_| !io::stdin().is_terminal());
        // What was typed before is no answer: it was typed before the question was seen.
        match &terminal {
            Some(terminal) => tcflush(terminal, QueueSelector::IFlush)?,
            None if io::stdin().is_terminal() => tcflush(io::stdin(), QueueSelector::IFlush)?,
            None => {}
        }
        self.error_words(&format!("{} [y/N] ", plain(question)));
        let mut answer = String::new();
        let read = match terminal {
            Some(terminal) => BufReader::new(terminal).read_line(&mut answer)?,
            None => io::stdin().read_line(&mut answer)?,
        };
        if read == 0 {
            self.error_words("\n");
            return Ok(None);
        }
        Ok(Some(matches!(answer.trim(), "y" | "Y" | "yes" | "Yes")))
    }

    fn error_words(self, words: &str) {
        let _ = AutoStream::new(io::stderr(), self.color).write_all(words.as_bytes());
    }

    /// A reader that went away (`rye … | head -1`) is no failure of ours.
    fn emit(self, text: &str, words: &str, exit: Exit) -> ExitCode {
        let mut output = AutoStream::new(io::stdout(), self.color);
        let written = output
            .write_all(text.as_bytes())
            .and_then(|()| output.flush());
        self.error_words(words);
        match written {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                let failure = Failure::failed(
                    "io",
                    format_args!("cannot write to standard output: {error}"),
                );
                self.error_words(&failure.words());
                Exit::Failed.into()
            }
            _ => exit.into(),
        }
    }
}

/// The one JSON document of a call, with its newline.
pub(super) fn document(fields: Value, failure: Option<&Failure>) -> String {
    let mut document = Map::new();
    let status = if failure.is_some() {
        "error"
    } else {
        "success"
    };
    document.insert("status".into(), status.into());
    if let Some(failure) = failure {
        document.insert("error".into(), failure.json());
    }
    if let Value::Object(fields) = fields {
        document.extend(fields);
    }
    format!("{}\n", Value::Object(document))
}

/// The terminal of this process, if it has one.
fn terminal() -> Option<File> {
    File::open("/dev/tty").ok()
}

/// The columns of the terminal that somebody reads, if it is one.
fn width(of: impl AsFd) -> Option<usize> {
    // What is no terminal has no size.
    let size = rustix::termios::tcgetwinsize(of).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}
