//! Single-line comment syntax of a language. A file's signature line is such a comment.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// The delimiters of a single-line comment.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Markers")]
pub struct CommentStyle {
    /// Starts the comment: `#`, `//`, `<!--`.
    pub prefix: Cow<'static, str>,
    /// Ends the comment where the language requires it: `-->`.
    pub suffix: Option<Cow<'static, str>>,
}

impl CommentStyle {
    /// Python, YAML, TOML, shell, Ruby.
    pub const HASH: Self = Self::line("#");
    /// JavaScript, TypeScript, Rust, Go.
    pub const SLASHES: Self = Self::line("//");
    /// HTML comments, which Markdown also uses.
    pub const MARKUP: Self = Self {
        prefix: Cow::Borrowed("<!--"),
        suffix: Some(Cow::Borrowed("-->")),
    };

    const fn line(prefix: &'static str) -> Self {
        Self {
            prefix: Cow::Borrowed(prefix),
            suffix: None,
        }
    }

    /// Formats a text as a comment.
    pub fn wrap(&self, text: &str) -> String {
        match &self.suffix {
            Some(suffix) => format!("{} {text} {suffix}", self.prefix),
            None => format!("{} {text}", self.prefix),
        }
    }

    /// Returns the text of a comment that is formatted exactly as [`wrap`](Self::wrap) does.
    pub fn strip<'a>(&self, line: &'a [u8]) -> Option<&'a [u8]> {
        let rest = line.strip_prefix(self.prefix.as_bytes())?;
        let rest = rest.strip_prefix(b" ")?;
        match &self.suffix {
            Some(suffix) => rest.strip_suffix(suffix.as_bytes())?.strip_suffix(b" "),
            None => Some(rest),
        }
    }
}

/// A comment style in an extractor table: `"#"`, or `{prefix: "<!--", suffix: "-->"}`.
#[derive(Deserialize)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "a comment must be a marker, or a mapping with `prefix` and `suffix`"
)]
enum Markers {
    Prefix(String),
    Both {
        prefix: String,
        suffix: Option<String>,
    },
}

impl TryFrom<Markers> for CommentStyle {
    type Error = &'static str;

    fn try_from(markers: Markers) -> Result<Self, &'static str> {
        let (prefix, suffix) = match markers {
            Markers::Prefix(prefix) => (prefix, None),
            Markers::Both { prefix, suffix } => (prefix, suffix),
        };
        let is_marker = |text: &String| {
            !text.is_empty() && !text.contains(|c: char| c.is_control() || c.is_whitespace())
        };
        if !is_marker(&prefix) || !suffix.iter().all(is_marker) {
            return Err("a comment marker must be a word without spaces");
        }
        Ok(Self {
            prefix: prefix.into(),
            suffix: suffix.map(Cow::Owned),
        })
    }
}
