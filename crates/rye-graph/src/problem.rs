//! Problems of a graph file, with positions.

use rye_items::Excerpt;
use serde::Serialize;
use serde_json::{Value, json};
use strum::Display;

/// Severity of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Severity {
    /// The graph cannot run.
    Error,
    /// The graph runs, but probably not as intended.
    Warning,
}

/// A problem of a graph file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Byte offset in the file.
    pub at: usize,
    /// Severity of the problem.
    pub severity: Severity,
    /// Stable code for scripts.
    pub code: &'static str,
    /// Explanation for the user.
    pub message: String,
    /// Advice on how to fix it.
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

    /// Suggests the most similar name, if there is one.
    pub(crate) fn with_suggestion<'n>(
        self,
        name: &str,
        all: impl IntoIterator<Item = &'n str>,
    ) -> Self {
        match nearest(name, all) {
            Some(near) => self.with_hint(format!("did you mean `{near}`?")),
            None => self,
        }
    }

    /// An unknown name. The message lists the known ones.
    pub(crate) fn unknown(
        at: usize,
        code: &'static str,
        what: &str,
        name: &str,
        known: &[&str],
    ) -> Self {
        let known_names = known.join(", ");
        let message = format!("unknown {what} `{name}`; expected one of {known_names}");
        Self::error(at, code, message).with_suggestion(name, known.iter().copied())
    }

    /// Position and source line in the text of the graph.
    pub fn excerpt(&self, text: &[u8]) -> Excerpt {
        Excerpt::at_offset(text, self.at)
    }

    /// The problem as JSON.
    pub fn json(&self, text: &[u8]) -> Value {
        let Excerpt {
            position, source, ..
        } = self.excerpt(text);
        json!({
            "severity": self.severity,
            "code": self.code,
            "message": self.message,
            "line": position.line,
            "column": position.column,
            "source": source,
            "hint": self.hint,
        })
    }
}

/// The most similar of several names, if any is similar enough.
pub(crate) fn nearest<'n>(name: &str, all: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let scored = all
        .into_iter()
        .map(|other| (strsim::jaro_winkler(name, other), other));
    let best = scored.max_by(|(one, _), (other, _)| one.total_cmp(other));
    best.filter(|(score, _)| *score > 0.75)
        .map(|(_, name)| name)
}
