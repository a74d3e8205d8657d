//! A failed call: exit code, error code, message, position and hint.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use lillux::durable::CreateDirError;
use lillux::{PathError, shell_word};
use rye_items::Excerpt;
use serde_json::{Value, json};

use super::page::{self, one_line};

/// Exit codes of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Success = 0,
    Failed = 1,
    Usage = 2,
    Integrity = 3,
    Permission = 4,
    /// A gate is pending and there is no terminal to ask on.
    GatePending = 5,
    /// A user aborted the prompt.
    Aborted = 6,
    /// A limit of the prompt was reached.
    Limit = 7,
    /// The result does not match the requested schema.
    SchemaMismatch = 8,
    TimedOut = 124,
    /// Ctrl-C (SIGINT).
    Interrupted = 130,
    /// SIGTERM or SIGHUP.
    Terminated = 143,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// Detail that lists all problems.
const VIOLATIONS: &str = "violations";

/// Detail that lists the matches of an ambiguous id.
const CANDIDATES: &str = "candidates";

/// Why a call failed and what to do about it.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// Stable error code for scripts, in `snake_case`.
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) path: Option<Box<Path>>,
    pub(crate) excerpt: Option<Box<Excerpt>>,
    /// A command that helps.
    pub(crate) hint: Option<String>,
    /// Additional fields of the JSON error.
    pub(crate) details: Vec<(&'static str, Value)>,
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
            path: None,
            excerpt: None,
            hint: None,
            details: Vec::new(),
        }
    }

    pub(crate) fn failed(code: &'static str, message: impl ToString) -> Self {
        Self::new(Exit::Failed, code, message)
    }

    pub(crate) fn usage(message: impl ToString) -> Self {
        Self::new(Exit::Usage, "usage", message)
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Sets the hint unless there is one.
    pub(crate) fn or_hint(mut self, hint: String) -> Self {
        self.hint.get_or_insert(hint);
        self
    }

    pub(crate) fn maybe_hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint.or(self.hint);
        self
    }

    /// Lists all problems, if there are several.
    pub(crate) fn violations(self, all: impl Iterator<Item = String>) -> Self {
        self.detail(VIOLATIONS, all.collect::<Vec<_>>())
    }

    /// Lists the matches of an ambiguous id.
    pub(crate) fn candidates(self, all: impl Iterator<Item = String>) -> Self {
        self.detail(CANDIDATES, all.collect::<Vec<_>>())
    }

    pub(crate) fn at(mut self, path: impl Into<PathBuf>) -> Self {
        self.path = Some(path.into().into_boxed_path());
        self
    }

    pub(crate) fn excerpt(mut self, excerpt: Option<&Excerpt>) -> Self {
        self.excerpt = excerpt.cloned().map(Box::new);
        self
    }

    pub(crate) fn detail(mut self, key: &'static str, value: impl Into<Value>) -> Self {
        self.details.push((key, value.into()));
        self
    }

    /// The error as JSON.
    pub(crate) fn json(&self) -> Value {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(path) = &self.path {
            error["path"] = path.to_string_lossy().into();
        }
        if let Some(excerpt) = &self.excerpt {
            error["line"] = excerpt.position.line.into();
            error["column"] = excerpt.position.column.into();
            error["source"] = excerpt.source.as_str().into();
        }
        for (key, value) in &self.details {
            error[*key] = value.clone();
        }
        if let Some(hint) = &self.hint {
            error["hint"] = hint.as_str().into();
        }
        error
    }

    /// The error as text for people, with styles.
    pub(crate) fn render(&self) -> String {
        let (bad, dim, help) = (page::BAD, page::DIM, page::HELP);
        let mut text = format!("{bad}error{bad:#}: {}\n", one_line(&self.message));
        if let Some(path) = &self.path {
            let path = path.display().to_string();
            let position = match &self.excerpt {
                Some(excerpt) => format!(":{}", excerpt.position),
                None => String::new(),
            };
            let _ = writeln!(text, "  {dim}-->{dim:#} {}{position}", one_line(&path));
        }
        if let Some(excerpt) = &self.excerpt {
            let _ = writeln!(text, "{excerpt}");
        }
        let details = self.details.iter();
        let listed = details.filter(|(key, _)| [VIOLATIONS, CANDIDATES].contains(key));
        let listed = listed.filter_map(|(_, all)| all.as_array()).flatten();
        for line in listed.filter_map(Value::as_str) {
            let _ = writeln!(text, "  {dim}-{dim:#} {}", one_line(line));
        }
        if let Some(hint) = &self.hint {
            let _ = writeln!(text, "  {help}hint{help:#}: {}", one_line(hint));
        }
        text
    }
}

impl From<CreateDirError> for Failure {
    fn from(error: CreateDirError) -> Self {
        let hint = error.hint();
        match error {
            CreateDirError::Path(error) => error.into(),
            link @ CreateDirError::LinkLeavesRoot { .. } => {
                Self::new(Exit::Integrity, "leaves_project", link).maybe_hint(hint)
            }
        }
    }
}

impl From<PathError> for Failure {
    fn from(error: PathError) -> Self {
        match error.source.kind() {
            io::ErrorKind::PermissionDenied => {
                let parent = error.path.parent().unwrap_or(&error.path);
                let hint = format!("ls -ld {} {}", shell_word(parent), shell_word(&error.path));
                Self::new(Exit::Permission, "permission", error).hint(hint)
            }
            io::ErrorKind::NotFound => Self::failed("not_found", error),
            io::ErrorKind::StorageFull => Self::failed("disk_full", error),
            _ => Self::failed("io", error),
        }
    }
}
