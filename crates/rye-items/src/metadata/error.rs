//! Metadata errors with their position in the file.

use crate::{Excerpt, Position};

/// Invalid metadata. The caller adds the path of the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct MetadataError {
    /// The cause, as a lower-case fragment.
    pub message: String,
    /// The position and the source line.
    pub excerpt: Excerpt,
    /// How to fix it.
    pub hint: Option<String>,
    /// Whether the language allows this, but metadata does not.
    pub(super) is_unsupported: bool,
}

/// Invalid metadata at a byte offset, which [`into_error`](Self::into_error) converts to a line and
/// column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    /// The byte offset in the file.
    pub(super) at: usize,
    pub(super) message: String,
    pub(super) hint: Option<String>,
    is_unsupported: bool,
}

impl Problem {
    pub(super) fn new(at: usize, message: impl Into<String>) -> Self {
        Self {
            at,
            message: message.into(),
            hint: None,
            is_unsupported: false,
        }
    }

    /// Marks something that the language allows, but metadata does not.
    pub(super) fn unsupported(self) -> Self {
        Self {
            is_unsupported: true,
            ..self
        }
    }

    pub(super) fn hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }

    /// Adds to the offset, when only a part of the file was parsed.
    pub(super) fn shifted(self, offset: usize) -> Self {
        Self {
            at: self.at + offset,
            ..self
        }
    }

    /// A duplicate name.
    pub(super) fn duplicate(text: &str, name: &str, first: usize, second: usize) -> Self {
        let first = Position::at_offset(text.as_bytes(), first).line;
        let second_line = Position::at_offset(text.as_bytes(), second).line;
        let lines = if first == second_line {
            format!("twice on line {first}")
        } else {
            format!("on line {first} and again on line {second_line}")
        };
        Self::new(second, format!("`{}` is given {lines}", truncate(name)))
    }

    pub(super) fn into_error(self, bytes: &[u8]) -> MetadataError {
        MetadataError {
            // The message of a library may quote the file.
            message: printable(&self.message, 400),
            excerpt: Excerpt::at_offset(bytes, self.at),
            hint: self.hint,
            is_unsupported: self.is_unsupported,
        }
    }
}

/// Shortens and escapes a text of the file for a message.
pub(super) fn truncate(text: &str) -> String {
    printable(text, 60)
}

/// Escapes control characters and limits the length, so that a hostile file cannot control or
/// flood a terminal.
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
