//! Single-line comment syntax of a language. A file's signature line is such a comment.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// The delimiters of a single-line comment.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
