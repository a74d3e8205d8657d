//! How a language writes a comment of one line: what carries a file's signature.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// A one-line comment: what opens it, and what closes it where something must.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CommentStyle {
    /// What stands before the text: `#`, `//`, `<!--`.
    pub prefix: Cow<'static, str>,
    /// What stands behind it: `-->`.
    pub suffix: Option<Cow<'static, str>>,
}

impl CommentStyle {
    /// Python, YAML, TOML, shell, Ruby.
    pub const HASH: Self = Self::line("#");
    /// JavaScript, TypeScript, Rust, Go.
    pub const SLASHES: Self = Self::line("//");
    /// Markdown.
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

    /// The text as a comment.
    pub fn wrap(&self, text: &str) -> String {
        match &self.suffix {
            Some(suffix) => format!("{} {text} {suffix}", self.prefix),
            None => format!("{} {text}", self.prefix),
        }
    }

    /// The text of a comment that is written exactly as [`wrap`](Self::wrap) writes it.
    pub fn strip<'a>(&self, line: &'a [u8]) -> Option<&'a [u8]> {
        let rest = line.strip_prefix(self.prefix.as_bytes())?;
        let rest = rest.strip_prefix(b" ")?;
        match &self.suffix {
            Some(suffix) => rest.strip_suffix(suffix.as_bytes())?.strip_suffix(b" "),
            None => Some(rest),
        }
    }
}
