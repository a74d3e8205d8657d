//! A failed operation, as every interface reports it: kind, error code, message, position and hint.

use std::io;
use std::path::{Path, PathBuf};

use lillux::durable::CreateDirError;
use lillux::{PathError, shell_word};
use rye_items::Excerpt;
use serde_json::{Value, json};

/// What kind of failure it is, by which a caller chooses its own code: an exit code, an HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// Any other failure.
    Failed,
    /// Wrong use of a command, an option, a variable or a file.
    Usage,
    /// Something is not what was signed or recorded.
    Integrity,
    /// The caller may not do this.
    Permission,
    /// A gate is pending and no person can be asked.
    GatePending,
    /// A user aborted the prompt.
    Aborted,
    /// A limit of the prompt was reached.
    Limit,
    /// The result does not match the requested schema.
    SchemaMismatch,
    /// A time limit was reached.
    TimedOut,
    /// Ctrl-C (SIGINT).
    Interrupted,
    /// SIGTERM or SIGHUP.
    Terminated,
}

/// Detail that lists all problems.
pub const VIOLATIONS: &str = "violations";

/// Detail that lists the matches of an ambiguous id.
pub const CANDIDATES: &str = "candidates";

/// Key of a list of everything that does not verify.
pub const UNVERIFIED: &str = "unverified";

/// Why a call failed and what to do about it.
#[derive(Debug, Clone)]
#[must_use]
pub struct Failure {
    /// The kind.
    pub kind: FailureKind,
    /// Stable error code for scripts, in `snake_case`.
    pub code: &'static str,
    /// The problem in one sentence.
    pub message: String,
    /// The file in which the problem is.
    pub path: Option<Box<Path>>,
    /// The place in the file.
    pub excerpt: Option<Box<Excerpt>>,
    /// A command that helps.
    pub hint: Option<String>,
    /// Additional fields of the JSON error.
    pub details: Vec<(&'static str, Value)>,
}

impl Failure {
    /// A failure of a kind.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "takes an error or a text, whichever the caller has"
    )]
    pub fn new(kind: FailureKind, code: &'static str, message: impl ToString) -> Self {
        Self {
            kind,
            code,
            message: message.to_string(),
            path: None,
            excerpt: None,
            hint: None,
            details: Vec::new(),
        }
    }

    /// A failure without a special kind.
    pub fn failed(code: &'static str, message: impl ToString) -> Self {
        Self::new(FailureKind::Failed, code, message)
    }

    /// Wrong usage.
    pub fn usage(message: impl ToString) -> Self {
        Self::new(FailureKind::Usage, "usage", message)
    }

    /// Sets the hint, a command that helps.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Sets the hint unless there is one.
    pub fn or_hint(mut self, hint: String) -> Self {
        self.hint.get_or_insert(hint);
        self
    }

    /// Sets the hint if there is one.
    pub fn maybe_hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint.or(self.hint);
        self
    }

    /// Lists all problems, if there are several.
    pub fn violations(self, all: impl Iterator<Item = String>) -> Self {
        self.detail(VIOLATIONS, all.collect::<Vec<_>>())
    }

    /// Lists the matches of an ambiguous id.
    pub fn candidates(self, all: impl Iterator<Item = String>) -> Self {
        self.detail(CANDIDATES, all.collect::<Vec<_>>())
    }

    /// Names the file in which the problem is.
    pub fn at(mut self, path: impl Into<PathBuf>) -> Self {
        self.path = Some(path.into().into_boxed_path());
        self
    }

    /// Names the place in the file.
    pub fn excerpt(mut self, excerpt: Option<&Excerpt>) -> Self {
        self.excerpt = excerpt.cloned().map(Box::new);
        self
    }

    /// Adds a field to the JSON error.
    pub fn detail(mut self, key: &'static str, value: impl Into<Value>) -> Self {
        self.details.push((key, value.into()));
        self
    }

    /// The error as JSON.
    pub fn json(&self) -> Value {
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
}

impl From<CreateDirError> for Failure {
    fn from(error: CreateDirError) -> Self {
        let hint = error.hint();
        match error {
            CreateDirError::Path(error) => error.into(),
            link @ CreateDirError::LinkLeavesRoot { .. } => {
                Self::new(FailureKind::Integrity, "leaves_project", link).maybe_hint(hint)
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
                Self::new(FailureKind::Permission, "permission", error).hint(hint)
            }
            io::ErrorKind::NotFound => Self::failed("not_found", error),
            io::ErrorKind::StorageFull => Self::failed("disk_full", error),
            _ => Self::failed("io", error),
        }
    }
}
