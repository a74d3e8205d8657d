//! Prints results and failures. Only this module writes to standard output and standard error.

mod keys;

use std::io::{self, Write};
use std::process::ExitCode;

use lillux::PathError;
use serde::Serialize;
use serde_json::json;

/// Exit code of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Success = 0,
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

/// The JSON object and the exit code of a command that ran. The object begins with `success`,
/// which is true if the exit code is 0.
pub(crate) struct Report {
    /// Stored as text, so that a `RawValue` among the fields keeps all its digits.
    text: String,
    exit: Exit,
}

impl Report {
    pub(crate) fn new(fields: impl Serialize) -> Self {
        Self::with_exit(Exit::Success, fields)
    }

    /// A report with another exit code, for a command that ran with a negative result.
    pub(crate) fn with_exit(exit: Exit, fields: impl Serialize) -> Self {
        #[derive(Serialize)]
        struct Object<T> {
            success: bool,
            #[serde(flatten)]
            fields: T,
        }
        let success = exit == Exit::Success;
        let object = Object { success, fields };
        let mut text = serde_json::to_string(&object)
            .unwrap_or_else(|_| json!({ "success": success }).to_string());
        text.push('\n');
        Self { text, exit }
    }

    /// A report without an object, for a command that wrote its result to [`raw_output`].
    pub(crate) fn raw(exit: Exit) -> Self {
        let text = String::new();
        Self { text, exit }
    }
}

/// Standard output, for the option that prints bytes instead of an object.
pub(crate) fn raw_output() -> impl Write {
    io::stdout().lock()
}

/// A command that failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// Stable error code for scripts, `snake_case`.
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    /// Print only to standard error, because standard output is for raw bytes.
    pub(crate) stderr_only: bool,
}

impl Failure {
    #[expect(
        clippy::needless_pass_by_value,
        reason = "accepts errors and strings by value"
    )]
    pub(crate) fn new(exit: Exit, code: &'static str, message: impl ToString) -> Self {
        Self {
            exit,
            code,
            message: message.to_string(),
            hint: None,
            stderr_only: false,
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
                "free some disk space and run the command again; no incomplete file was left",
            ),
            _ => Self::new(Exit::Failed, "io", error),
        }
    }
}

/// Prints the outcome of a command and returns the exit code.
pub(crate) fn print(outcome: Result<Report, Failure>) -> ExitCode {
    match outcome {
        Ok(report) => emit(&report.text, "", report.exit),
        Err(failure) => {
            let hint = failure.hint.as_ref();
            let hint = hint.map_or_else(String::new, |h| format!("  hint: {h}\n"));
            let text = format!("error: {}\n{hint}", failure.message);
            print_failure(&failure, &text)
        }
    }
}

/// Prints a failure as JSON on standard output and as `text` on standard error.
pub(crate) fn print_failure(failure: &Failure, text: &str) -> ExitCode {
    let mut error = json!({ "code": failure.code, "message": failure.message });
    if let Some(hint) = &failure.hint {
        error["hint"] = json!(hint);
    }
    let object = json!({ "success": false, "error": error });
    let json = if failure.stderr_only {
        String::new()
    } else {
        format!("{object}\n")
    };
    emit(&json, text, failure.exit)
}

/// Writes both streams. A closed pipe (`lillux … | head -c 1`) is not reported as an error.
fn emit(stdout: &str, stderr: &str, exit: Exit) -> ExitCode {
    let _ = io::stderr().write_all(stderr.as_bytes());
    match io::stdout().write_all(stdout.as_bytes()) {
        Ok(()) => exit.into(),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Failed.into(),
        Err(error) => {
            let text = format!("error: cannot write to standard output: {error}\n");
            let _ = io::stderr().write_all(text.as_bytes());
            Exit::Failed.into()
        }
    }
}
