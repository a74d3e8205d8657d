//! Item ids: a kind, and a path inside the directory of that kind.
//!
//! ```
//! use rye_items::{ItemKind, ItemRef};
//!
//! let tool: ItemRef = "rye/bash/bash".parse()?;
//! assert_eq!((tool.kind, tool.id.as_str()), (ItemKind::Tool, "rye/bash/bash"));
//! let guide: ItemRef = "knowledge:rye/authoring".parse()?;
//! assert_eq!(guide.to_string(), "knowledge:rye/authoring");
//! assert!("tool:../../outside".parse::<ItemRef>().is_err());
//! # Ok::<(), rye_items::IdError>(())
//! ```

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Limits below those of file systems.
const MAX_LENGTH: usize = 1024;
const MAX_SEGMENT_LENGTH: usize = 240;

/// The kind of an item, which determines its directory.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase", parse_err_ty = IdError, parse_err_fn = unknown_kind)]
pub enum ItemKind {
    /// A program in any language.
    Tool,
    /// Instructions for an agent.
    Directive,
    /// A document.
    Knowledge,
    /// Configuration. It changes behaviour, so it is signed too.
    Config,
}

impl ItemKind {
    /// All kinds, in listing order.
    pub const ALL: [Self; 4] = [Self::Tool, Self::Directive, Self::Knowledge, Self::Config];

    /// The name of the directory in `.ai/`.
    pub fn dir(self) -> &'static str {
        match self {
            Self::Tool => "tools",
            Self::Directive => "directives",
            Self::Knowledge => "knowledge",
            Self::Config => "config",
        }
    }

    /// The prefix in item references.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

fn unknown_kind(text: &str) -> IdError {
    IdError::new(text, IdProblem::Kind(text.to_owned()))
}

/// The path of an item inside its kind's directory, without the extension: `rye/bash/bash`. No
/// valid id can escape that directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemId(Box<str>);

impl ItemId {
    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The last segment.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }

    /// The part before the last segment; empty for a single segment.
    pub fn dir(&self) -> &str {
        self.0.rsplit_once('/').map_or("", |(dir, _)| dir)
    }

    /// Whether the id is a single segment, which may also be a bare tool name.
    pub fn is_bare(&self) -> bool {
        !self.0.contains('/')
    }
}

impl fmt::Display for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for ItemId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        match problem(text) {
            Some(problem) => Err(IdError::new(text, problem)),
            None => Ok(Self(text.into())),
        }
    }
}

fn problem(text: &str) -> Option<IdProblem> {
    if text.is_empty() {
        return Some(IdProblem::Empty);
    }
    if text.len() > MAX_LENGTH {
        return Some(IdProblem::TooLong(text.len()));
    }
    if text.starts_with('/') {
        return Some(IdProblem::Absolute);
    }
    for segment in text.split('/') {
        match segment {
            "" => return Some(IdProblem::EmptySegment),
            "." | ".." => return Some(IdProblem::Dots),
            long if long.len() > MAX_SEGMENT_LENGTH => {
                return Some(IdProblem::TooLong(long.len()));
            }
            _ => {}
        }
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    text.chars()
        .find(|&c| !allowed(c))
        .map(IdProblem::Character)
}

/// A reference to an item: `tool:ID`, `directive:ID`, `knowledge:ID`,
/// `config:ID`, or a bare id, which is a tool's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemRef {
    /// The kind of the item.
    pub kind: ItemKind,
    /// The id within that kind.
    pub id: ItemId,
}

impl ItemRef {
    /// Creates a reference from its parts.
    pub fn new(kind: ItemKind, id: ItemId) -> Self {
        Self { kind, id }
    }

    /// Whether it names a trust or revocation file. Signing such a file would trust or revoke its
    /// key.
    pub fn is_key_file(&self) -> bool {
        self.kind == ItemKind::Config && self.id.as_str().starts_with("keys/")
    }

    /// Parses a reference; an id without a prefix has the default kind.
    pub fn parse_as(default: ItemKind, text: &str) -> Result<Self, IdError> {
        let (kind, id) = match text.split_once(':') {
            Some((kind, id)) => (kind.parse(), id),
            None => (Ok(default), text),
        };
        let whole = |error: IdError| IdError::new(text, error.problem);
        let (kind, id) = (kind.map_err(whole)?, id.parse().map_err(whole)?);
        Ok(Self { kind, id })
    }
}

impl fmt::Display for ItemRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.id)
    }
}

impl FromStr for ItemRef {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        Self::parse_as(ItemKind::Tool, text)
    }
}

lillux::serde_as_text!(ItemId);
lillux::serde_as_text!(ItemRef);

/// An invalid item id. It never reaches the file system.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not an item id: {problem}", escape(text))]
pub struct IdError {
    /// The invalid text.
    pub text: String,
    /// The cause.
    pub problem: IdProblem,
}

impl IdError {
    /// A search command for the last word of the text.
    pub fn hint(&self) -> String {
        let is_separator = |c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-';
        let mut words = self
            .text
            .split(is_separator)
            .filter(|word| !word.is_empty());
        match words.next_back() {
            Some(word) => format!("rye search {}", word.trim_start_matches('-')),
            None => "rye search".to_owned(),
        }
    }

    fn new(text: &str, problem: IdProblem) -> Self {
        let text = text.to_owned();
        Self { text, problem }
    }
}

/// Escapes and shortens a hostile name, which must not flood or control a terminal.
fn escape(text: &str) -> String {
    let mut short: String = text
        .chars()
        .take(100)
        .flat_map(char::escape_debug)
        .collect();
    if text.chars().nth(100).is_some() {
        short.push('…');
    }
    short
}

/// Why a text is not an item id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdProblem {
    /// The text is empty.
    #[error("it is empty")]
    Empty,
    /// The id or a segment is too long. Contains the length in bytes.
    #[error("it is too long ({0} bytes)")]
    TooLong(usize),
    /// The text starts with a slash.
    #[error("it must not start with a slash; an id is relative to the directory of its kind")]
    Absolute,
    /// Two consecutive slashes, or one at the end.
    #[error("it contains an empty segment")]
    EmptySegment,
    /// The text contains a `.` or `..` segment.
    #[error("it must not contain `.` or `..` as a segment")]
    Dots,
    /// The text contains a character that ids cannot have.
    #[error("it contains {0:?}; allowed are ASCII letters, digits, `.`, `_`, `-` and `/`")]
    Character(char),
    /// The prefix before the colon is not a kind.
    #[error("unknown kind `{}`; the kinds are tool, directive, knowledge, config", escape(.0))]
    Kind(String),
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hostile_ids_are_rejected_with_the_cause() {
        for (text, problem) in [
            ("", IdProblem::Empty),
            ("/etc/passwd", IdProblem::Absolute),
            ("a/../b", IdProblem::Dots),
            ("..", IdProblem::Dots),
            ("./a", IdProblem::Dots),
            ("a//b", IdProblem::EmptySegment),
            ("a/", IdProblem::EmptySegment),
            ("a\0b", IdProblem::Character('\0')),
            (r"a\b", IdProblem::Character('\\')),
            ("a b", IdProblem::Character(' ')),
            ("über", IdProblem::Character('ü')),
            ("C:/x", IdProblem::Kind("C".to_owned())),
            ("tool:tool:x", IdProblem::Character(':')),
            ("tool:", IdProblem::Empty),
            ("tool:/x", IdProblem::Absolute),
        ] {
            let error = text.parse::<ItemRef>().unwrap_err();
            assert_eq!(error.problem, problem, "{text:?}");
        }
        let long = "a/".repeat(600) + "b";
        let error = long.parse::<ItemId>().unwrap_err();
        assert_eq!(error.problem, IdProblem::TooLong(1201));
        assert!(error.to_string().len() < 400, "{error}");
    }

    #[test]
    fn reference_round_trips() {
        for text in [
            "tool:a",
            "directive:a/b.c",
            "knowledge:x-y_z/0",
            "config:keys/trusted/x",
        ] {
            assert_eq!(text.parse::<ItemRef>().unwrap().to_string(), text);
        }
        assert_eq!("git".parse::<ItemRef>().unwrap().to_string(), "tool:git");
    }

    proptest! {
        #[test]
        fn accepted_ids_stay_inside_their_directory(text in "[a./\\\\\0:_-]{0,12}|\\PC{0,20}") {
            if let Ok(id) = text.parse::<ItemId>() {
                let path = std::path::Path::new(id.as_str());
                let normal = |c| matches!(c, std::path::Component::Normal(_));
                prop_assert!(path.components().all(normal));
                prop_assert_eq!(id.to_string(), text);
            }
        }
    }
}
