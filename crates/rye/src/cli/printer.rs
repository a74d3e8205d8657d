//! All output to standard output and standard error, in the format that the options ask for.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, IsTerminal as _, Write as _};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use anstream::{AutoStream, ColorChoice};
use rustix::termios::{QueueSelector, tcflush};
use serde_json::{Map, Value};

use super::failure::{self, Exit, Failure};
use super::page::{self, Page, one_line, sanitize};

/// Serialises raw writes to standard output, so that lines stay whole.
static OUTPUT_LOCK: Mutex<()> = Mutex::new(());

/// The result of a command, printable as JSON and as text.
pub(crate) trait Report {
    /// The fields besides `status`, as an object.
    fn json(&self) -> Value;

    /// Writes the result as text for people.
    fn show(&self, page: &mut Page);

    /// The failure, if the command ran but its outcome is bad. Sets the status and exit code and
    /// is printed below the text.
    fn failure(&self) -> Option<Failure> {
        None
    }

    /// Whether [`Report::json`] is the complete document, including `status`.
    fn is_complete_document(&self) -> bool {
        false
    }

    /// The exit code of a program that the command ran in the foreground and that printed its own
    /// output.
    fn program_exit_code(&self) -> Option<u8> {
        None
    }

    /// A suggestion for the next command, printed on standard error.
    fn next_command(&self) -> Option<String> {
        None
    }

    /// Whether the command has already written its output with [`Printer::raw`].
    fn is_already_printed(&self) -> bool {
        false
    }
}

/// The report of a command that has written its output with [`Printer::raw`].
pub(crate) struct AlreadyPrinted;

impl Report for AlreadyPrinted {
    fn json(&self) -> Value {
        Value::Null
    }

    fn show(&self, _: &mut Page) {}

    fn is_already_printed(&self) -> bool {
        true
    }
}

/// Result of a command.
pub(crate) type Outcome = Result<Box<dyn Report>, Failure>;

/// Prints according to the global options.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Printer {
    pub(crate) json: bool,
    pub(crate) quiet: bool,
    pub(crate) color: ColorChoice,
}

impl Printer {
    /// Prints the outcome of the call and returns the exit code.
    pub(crate) fn finish(self, outcome: Outcome) -> ExitCode {
        // Printed after the text.
        let mut hint = String::new();
        let (fields, page, failure) = match outcome {
            Ok(report) if report.program_exit_code().is_some() => {
                let code = report.program_exit_code();
                return ExitCode::from(code.unwrap_or_default());
            }
            Ok(report) if report.is_already_printed() => return ExitCode::SUCCESS,
            Ok(report) => {
                let failure = report.failure();
                if self.json && report.is_complete_document() {
                    let text = failure.as_ref().map(failure::render).unwrap_or_default();
                    let exit = failure.map(|failure| failure.kind);
                    return self.emit(&format!("{}\n", report.json()), &text, exit);
                }
                if let Some(next) = report.next_command().filter(|_| !self.quiet) {
                    hint = format!("{}\n", page::paint(page::DIM, format_args!("next: {next}")));
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
        let error = failure.as_ref().map(failure::render).unwrap_or_default();
        let error = hint + &error;
        let text = if self.json {
            document(fields, failure.as_ref())
        } else {
            page.text
        };
        let exit = failure.map(|failure| failure.kind);
        self.emit(&text, &error, exit)
    }

    /// Prints a failure; people see `message` instead of the failure's own text.
    pub(crate) fn refuse(self, failure: &Failure, message: &str) -> ExitCode {
        let text = if self.json {
            document(Value::Null, Some(failure))
        } else {
            String::new()
        };
        self.emit(&text, message, Some(failure.kind))
    }

    /// Prints text as the result: help, version, completions.
    pub(crate) fn text(self, text: &str) -> ExitCode {
        self.emit(text, "", None)
    }

    /// Prints a warning, unless `--quiet` is set.
    pub(crate) fn warn(self, text: &str, hint: Option<&str>) {
        if !self.quiet {
            self.warn_always(text, hint);
        }
    }

    /// Prints a warning even with `--quiet`.
    pub(crate) fn warn_always(self, text: &str, hint: Option<&str>) {
        let (warn, help) = (page::WARN, page::HELP);
        let mut message = format!("{warn}warning{warn:#}: {}\n", page::indented(text));
        if let Some(hint) = hint {
            let _ = writeln!(message, "  {help}hint{help:#}: {}", one_line(hint));
        }
        self.print_stderr(&message);
    }

    /// Writes bytes to standard output. Bypasses the buffer of the standard library, which would
    /// keep a copy of secrets.
    pub(crate) fn raw(bytes: &[u8]) -> io::Result<()> {
        let _lock = OUTPUT_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        match Self::raw_output()?.write_all(bytes) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            outcome => outcome,
        }
    }

    /// Writes the last bytes of the process to standard output; later writes block for ever.
    pub(crate) fn raw_final(bytes: &[u8]) -> io::Result<()> {
        let lock = OUTPUT_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::forget(lock);
        Self::raw_output()?.write_all(bytes)
    }

    /// Standard output, for a stream of bytes.
    pub(crate) fn raw_output() -> io::Result<File> {
        let output = io::stdout().as_fd().try_clone_to_owned();
        output.map(File::from)
    }

    /// Prints text on standard output before the report.
    pub(crate) fn print_stdout(self, text: &str) -> io::Result<()> {
        let mut output = AutoStream::new(io::stdout(), self.color);
        let written = output
            .write_all(text.as_bytes())
            .and_then(|()| output.flush());
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            outcome => outcome,
        }
    }

    /// Writes bytes to standard error, ignoring errors.
    pub(crate) fn raw_error(bytes: &[u8]) {
        let _ = io::stderr().write_all(bytes);
    }

    /// Prints text on standard error, ignoring errors.
    pub(crate) fn print_stderr(self, text: &str) {
        let _ = AutoStream::new(io::stderr(), self.color).write_all(text.as_bytes());
    }

    /// Width of the terminal on standard error, where questions are asked.
    pub(crate) fn stderr_width() -> Option<usize> {
        width(io::stderr())
    }

    /// Whether there is a terminal to ask questions on: standard input or, if that is a pipe, the
    /// controlling terminal.
    pub(crate) fn can_prompt() -> bool {
        io::stdin().is_terminal() || (io::stderr().is_terminal() && terminal().is_some())
    }

    /// Asks a yes/no question on the terminal; anything but yes is no. Returns `None` at the end of
    /// input.
    pub(crate) fn confirm(self, question: &str) -> io::Result<Option<bool>> {
        let answer = self.read_line(&format!("{question} [y/N] "))?;
        Ok(answer.map(|answer| matches!(answer.as_str(), "y" | "Y" | "yes" | "Yes")))
    }

    /// Asks a question on the terminal and reads a line. Returns `None` at the end of input.
    pub(crate) fn read_line(self, question: &str) -> io::Result<Option<String>> {
        // If standard input is not a terminal.
        let terminal = terminal().filter(|_| !io::stdin().is_terminal());
        // Discard what was typed before the question was shown.
        match &terminal {
            Some(terminal) => tcflush(terminal, QueueSelector::IFlush)?,
            None if io::stdin().is_terminal() => tcflush(io::stdin(), QueueSelector::IFlush)?,
            None => {}
        }
        self.print_stderr(&sanitize(question));
        let mut answer = String::new();
        let read = match terminal {
            Some(terminal) => BufReader::new(terminal).read_line(&mut answer)?,
            None => io::stdin().read_line(&mut answer)?,
        };
        if read == 0 {
            self.print_stderr("\n");
            return Ok(None);
        }
        Ok(Some(answer.trim().to_owned()))
    }

    /// Writes both streams. A broken pipe (`rye … | head -1`) is not an error.
    fn emit(self, text: &str, error_text: &str, exit: Option<Exit>) -> ExitCode {
        let mut output = AutoStream::new(io::stdout(), self.color);
        let written = output
            .write_all(text.as_bytes())
            .and_then(|()| output.flush());
        self.print_stderr(error_text);
        match written {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                let failure = Failure::failed(
                    "io",
                    format_args!("cannot write to standard output: {error}"),
                );
                self.print_stderr(&failure::render(&failure));
                ExitCode::FAILURE
            }
            _ => exit.map_or(ExitCode::SUCCESS, failure::exit_code),
        }
    }
}

/// The JSON document of a call, with a newline.
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

/// The controlling terminal of this process.
fn terminal() -> Option<File> {
    File::open("/dev/tty").ok()
}

/// Width of a terminal in columns.
fn width(terminal: impl AsFd) -> Option<usize> {
    // Fails if it is not a terminal.
    let size = rustix::termios::tcgetwinsize(terminal).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}
