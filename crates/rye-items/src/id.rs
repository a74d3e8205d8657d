//! Names of items: what kind, and the path under the kind's folder.
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

/// Longer than any path a person would write, and short of what file systems refuse.
const LONGEST: usize = 1024;
const LONGEST_SEGMENT: usize = 240;

/// What an item is, and with it the folder it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ItemKind {
    /// Something that runs, in any language.
    Tool,
    /// Instructions for an agent.
    Directive,
    /// Something to read.
    Knowledge,
    /// Configuration; behaviour too, so it is signed as well.
    Config,
}

impl ItemKind {
    /// All kinds, in the order in which they are listed.
    pub const ALL: [Self; 4] = [Self::Tool, Self::Directive, Self::Knowledge, Self::Config];

    /// The folder under `.ai/`.
    pub fn dir(self) -> &'static str {
        match self {
            Self::Tool => "tools",
            Self::Directive => "directives",
            Self::Knowledge => "knowledge",
            Self::Config => "config",
        }
    }

    /// The word for one item of this kind, as references write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Directive => "directive",
            Self::Knowledge => "knowledge",
            Self::Config => "config",
        }
    }
}

impl fmt::Display for ItemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for ItemKind {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| IdError::new(text, IdProblem::Kind(text.to_owned())))
    }
}

/// The path of an item under its kind's folder, without the extension:
/// `rye/bash/bash`. Cannot leave that folder, whatever it was made from.
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

    /// What is before the last segment; empty at the top.
    pub fn dir(&self) -> &str {
        self.0.rsplit_once('/').map_or("", |(folder, _)| folder)
    }

    /// Whether it has no slash, and so may also be meant as a mere file name.
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
    if text.len() > LONGEST {
        return Some(IdProblem::TooLong(text.len()));
    }
    if text.starts_with('/') {
        return Some(IdProblem::Absolute);
    }
    for segment in text.split('/') {
        match segment {
            "" => return Some(IdProblem::EmptySegment),
            "." | ".." => return Some(IdProblem::Dots),
            long if long.len() > LONGEST_SEGMENT => {
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
    /// What it is.
    pub kind: ItemKind,
    /// Which one.
    pub id: ItemId,
}

impl ItemRef {
    /// A reference from its parts.
    pub fn new(kind: ItemKind, id: ItemId) -> Self {
        Self { kind, id }
    }

    /// Whether it names a file about keys. Those are no items like others: to sign
    /// one is to trust or to revoke its key.
    pub fn is_key_file(&self) -> bool {
        self.kind == ItemKind::Config && self.id.as_str().starts_with("keys/")
    }

    /// Reads a reference in which a bare id is of the kind given.
    pub fn parse_as(default: ItemKind, text: &str) -> Result<Self, IdError> {
        let (kind, id) = match text.split_once(':') {
            Some((kind, id)) => {
                let kind = kind
                    .parse()
                    .map_err(|e: IdError| IdError::new(text, e.problem))?;
                (kind, id)
            }
            None => (default, text),
        };
        let id = id
            .parse()
            .map_err(|e: IdError| IdError::new(text, e.problem))?;
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

/// Serialises a type by its `Display` and reads it by its `FromStr`.
macro_rules! serde_as_text {
    ($($type:ty),*) => {$(
        impl Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}

serde_as_text!(ItemId, ItemRef);

/// A text that names no item, and never reached the file system.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not an item's name: {problem}", shown(text))]
pub struct IdError {
    /// What was given.
    pub text: String,
    /// What is wrong with it.
    pub problem: IdProblem,
}

impl IdError {
    /// The command that helps: what there is of such a name.
    pub fn hint(&self) -> String {
        let of_words = |c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-';
        let mut words = self.text.split(of_words).filter(|word| !word.is_empty());
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

/// A hostile name must not fill or steer a terminal.
fn shown(text: &str) -> String {
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

/// What is wrong with a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdProblem {
    /// Nothing is there.
    #[error("it is empty")]
    Empty,
    /// Longer than any file system takes.
    #[error("{0} bytes are too long")]
    TooLong(usize),
    /// Begins with a slash.
    #[error("it must not begin with a slash; an id is a path under the folder of its kind")]
    Absolute,
    /// Two slashes in a row, or one at the end.
    #[error("a segment between its slashes is empty")]
    EmptySegment,
    /// A `.` or `..` segment.
    #[error("it must not contain `.` or `..` as a segment")]
    Dots,
    /// A character outside the alphabet of ids.
    #[error("it contains {0:?}; allowed are letters, digits, `.`, `_`, `-` and `/`")]
    Character(char),
    /// The word before the colon is no kind.
    #[error("there is no kind `{}`; the kinds are tool, directive, knowledge, config", shown(.0))]
    Kind(String),
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hostile_ids_are_refused_and_say_why() {
        for (text, message) in [
            ("", "it is empty"),
            ("/etc/passwd", "it must not begin with a slash"),
            ("a/../b", "it must not contain `.` or `..` as a segment"),
            ("..", "it must not contain `.` or `..` as a segment"),
            ("./a", "it must not contain `.` or `..` as a segment"),
            ("a//b", "a segment between its slashes is empty"),
            ("a/", "a segment between its slashes is empty"),
            ("a\0b", r"it contains '\0'"),
            (r"a\b", r"it contains '\\'"),
            ("a b", "it contains ' '"),
            ("über", "it contains 'ü'"),
            ("C:/x", "there is no kind `C`"),
            ("tool:tool:x", "it contains ':'"),
            ("tool:", "it is empty"),
            ("tool:/x", "it must not begin with a slash"),
        ] {
            let error = text.parse::<ItemRef>().unwrap_err().to_string();
            assert!(error.contains(message), "{text:?}: {error}");
        }
        let long = "a/".repeat(600) + "b";
        let error = long.parse::<ItemId>().unwrap_err().to_string();
        assert!(
            error.contains("1201 bytes are too long") && error.len() < 400,
            "{error}"
        );
    }

    #[test]
    fn a_reference_reads_back_as_written() {
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
        fn whatever_is_accepted_stays_inside_its_folder(text in "[a./\\\\\0:_-]{0,12}|\\PC{0,20}") {
            if let Ok(id) = text.parse::<ItemId>() {
                let path = std::path::Path::new(id.as_str());
                let normal = |c| matches!(c, std::path::Component::Normal(_));
                prop_assert!(path.components().all(normal));
                prop_assert_eq!(id.to_string(), text);
            }
        }
    }
}
