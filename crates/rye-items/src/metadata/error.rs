//! What is wrong with a file's metadata, and where.

use crate::{Excerpt, Position};

/// Metadata that cannot be read. The caller adds the path of the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct MetadataError {
    /// What is wrong, as a lower-case fragment.
    pub message: String,
    /// Where, with the line that is there.
    pub excerpt: Excerpt,
    /// What to do about it, where that can be said.
    pub hint: Option<String>,
}

/// The same, before the place has become a line and a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    /// The byte in the file.
    pub(super) at: usize,
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

impl Problem {
    pub(super) fn new(at: usize, message: impl Into<String>) -> Self {
        Self {
            at,
            message: message.into(),
            hint: None,
        }
    }

    pub(super) fn hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }

    /// Moves the place, when only a part of the file was read.
    pub(super) fn after(self, offset: usize) -> Self {
        Self {
            at: self.at + offset,
            ..self
        }
    }

    /// A name that is given twice.
    pub(super) fn twice(text: &str, name: &str, first: usize, second: usize) -> Self {
        let first = Position::at_offset(text.as_bytes(), first).line;
        let second_line = Position::at_offset(text.as_bytes(), second).line;
        let lines = if first == second_line {
            format!("twice on line {first}")
        } else {
            format!("on line {first} and again on line {second_line}")
        };
        Self::new(second, format!("`{}` is given {lines}", brief(name)))
    }

    pub(super) fn within(self, bytes: &[u8]) -> MetadataError {
        MetadataError {
            // It may quote a library that quotes the file.
            message: printable(&self.message, 400),
            excerpt: Excerpt::at_offset(bytes, self.at),
            hint: self.hint,
        }
    }
}

/// A text of the file in a message, as much of it as helps.
pub(super) fn brief(text: &str) -> String {
    printable(text, 60)
}

/// What others made of a file must not fill or steer a terminal.
fn printable(text: &str, longest: usize) -> String {
    let mut shown = String::new();
    for (index, character) in text.chars().enumerate() {
        match character {
            _ if index == longest => {
                shown.push('…');
                break;
            }
            control if control.is_control() => shown.extend(control.escape_debug()),
            other => shown.push(other),
        }
    }
    shown
}
