//! What is wrong with a graph, and where.

use rye_items::Excerpt;
use serde_json::{Value, json};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It will not run.
    Error,
    /// It runs, and perhaps not as it was meant.
    Warning,
}

impl Severity {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The byte of the file.
    pub at: usize,
    /// How bad it is.
    pub severity: Severity,
    /// A stable word for scripts.
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

impl Problem {
    pub(crate) fn error(at: usize, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            at,
            severity: Severity::Error,
            code,
            message: message.into(),
            hint: None,
        }
    }

    pub(crate) fn warning(at: usize, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(at, code, message)
        }
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// With the name that was probably meant, where there is one.
    pub(crate) fn nearest<'n>(self, name: &str, all: impl IntoIterator<Item = &'n str>) -> Self {
        match nearest(name, all) {
            Some(near) => self.with_hint(format!("did you mean `{near}`?")),
            None => self,
        }
    }

    /// Where it is in the text of the graph, with the line that is there.
    pub fn excerpt(&self, text: &[u8]) -> Excerpt {
        Excerpt::at_offset(text, self.at)
    }

    /// For scripts.
    pub fn json(&self, text: &[u8]) -> Value {
        let Excerpt {
            position, source, ..
        } = self.excerpt(text);
        json!({
            "severity": self.severity.as_str(),
            "code": self.code,
            "message": self.message,
            "line": position.line,
            "column": position.column,
            "source": source,
            "hint": self.hint,
        })
    }
}

/// The one of several names that another resembles most, if any does.
pub(crate) fn nearest<'n>(name: &str, all: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let scored = all
        .into_iter()
        .map(|other| (strsim::jaro_winkler(name, other), other));
    let best = scored.max_by(|(one, _), (other, _)| one.total_cmp(other));
    best.filter(|(score, _)| *score > 0.75)
        .map(|(_, name)| name)
}
