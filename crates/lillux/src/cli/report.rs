//! The one place that writes to standard output and standard error.

mod keys;

use std::io::{self, Write};
use std::process::ExitCode;

use lillux::PathError;
use serde::Serialize;
use serde_json::json;

/// How a call ended, as the exit code says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Done = 0,
    Failed = 1,
    Usage = 2,
    Integrity = 3,
    Permission = 4,
    TimedOut = 124,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// A call that was carried out: its fields, and whether they are good news.
/// `success` comes first and follows from the exit code.
pub(crate) struct Report {
    /// Kept as text: a `RawValue` among the fields stays as it is, digit for digit.
    text: String,
    exit: Exit,
}

impl Report {
    pub(crate) fn new(fields: impl Serialize) -> Self {
        Self::ending(Exit::Done, fields)
    }

    /// A report whose exit code is not 0: carried out, with a bad outcome.
    pub(crate) fn ending(exit: Exit, fields: impl Serialize) -> Self {
        #[derive(Serialize)]
        struct Reported<T> {
            success: bool,
            #[serde(flatten)]
            fields: T,
        }
        let success = exit == Exit::Done;
        let reported = Reported { success, fields };
        let mut text = serde_json::to_string(&reported)
            .unwrap_or_else(|_| json!({ "success": success }).to_string());
        text.push('\n');
        Self { text, exit }
    }

    /// The call wrote its result to [`raw_output`]; there is no object to print.
    pub(crate) fn raw(exit: Exit) -> Self {
        let text = String::new();
        Self { text, exit }
    }
}

/// Standard output, for the one option that asks for bytes in place of an object.
pub(crate) fn raw_output() -> impl Write {
    io::stdout().lock()
}

/// A call that could not be carried out: what went wrong and what to do.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// A stable word for scripts, `snake_case`.
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    /// Standard output was promised to raw bytes: tell it on standard error alone.
    pub(crate) only_words: bool,
}

impl Failure {
    #[expect(
        clippy::needless_pass_by_value,
        reason = "takes an error or a text, whichever the caller has"
    )]
    pub(crate) fn new(exit: Exit, code: &'static str, message: impl ToString) -> Self {
        Self {
            exit,
            code,
            message: message.to_string(),
            hint: None,
            only_words: false,
        }
    }

    pub(crate) fn usage(message: impl ToString) -> Self {
        Self::new(Exit::Usage, "usage", message)
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl From<PathError> for Failure {
    fn from(error: PathError) -> Self {
        match error.source.kind() {
            io::ErrorKind::PermissionDenied => Self::new(Exit::Permission, "permission", error),
            io::ErrorKind::NotFound => Self::new(Exit::Failed, "not_found", error),
            io::ErrorKind::StorageFull => Self::new(Exit::Failed, "disk_full", error).hint(
                "free some space and run the same command again; nothing was left half-written",
            ),
            _ => Self::new(Exit::Failed, "io", error),
        }
    }
}

/// Prints the outcome and gives the exit code.
pub(crate) fn print(outcome: Result<Report, Failure>) -> ExitCode {
    match outcome {
        Ok(report) => emit(&report.text, "", report.exit),
        Err(failure) => {
            let hint = failure.hint.as_ref();
            let hint = hint.map_or_else(String::new, |h| format!("  hint: {h}\n"));
            let words = format!("error: {}\n{hint}", failure.message);
            print_usage(&failure, &words)
        }
    }
}

/// Prints a failure with other words for people than its message.
pub(crate) fn print_usage(failure: &Failure, words: &str) -> ExitCode {
    let mut error = json!({ "code": failure.code, "message": failure.message });
    if let Some(hint) = &failure.hint {
        error["hint"] = json!(hint);
    }
    let object = json!({ "success": false, "error": error });
    let text = if failure.only_words {
        String::new()
    } else {
        format!("{object}\n")
    };
    emit(&text, words, failure.exit)
}

/// A reader that went away (`lillux … | head -c 1`) is not our failure to tell.
fn emit(text: &str, words: &str, exit: Exit) -> ExitCode {
    let _ = io::stderr().write_all(words.as_bytes());
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => exit.into(),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Failed.into(),
        Err(error) => {
            let words = format!("error: cannot write to standard output: {error}\n");
            let _ = io::stderr().write_all(words.as_bytes());
            Exit::Failed.into()
        }
    }
}
