//! Errors in a signature line that are detected without any key.

use crate::excerpt::Excerpt;

/// A malformed signature line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct LineError {
    /// The cause, as a fragment.
    pub what: String,
    /// The byte offset from the start of `rye:signed:`.
    pub offset: usize,
}

/// Why a file has no usable signature line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// The file has no signature line.
    #[error("not signed")]
    Unsigned,
    /// The line cannot be parsed.
    #[error("malformed signature line: {what}")]
    Malformed {
        /// The cause, as a fragment.
        what: String,
        /// The position of the error.
        excerpt: Excerpt,
    },
    /// The file has more than one signature line.
    #[error("more than one signature line")]
    Multiple {
        /// The second line.
        excerpt: Excerpt,
    },
    /// The line uses the comment style of another language.
    #[error("the signature line must be a comment that starts with `{expected}`")]
    WrongComment {
        /// The expected start of the line.
        expected: String,
        /// The position of the line.
        excerpt: Excerpt,
    },
    /// The line is not at the start of the file.
    #[error("the signature line must be the first line, or the second after `#!`")]
    Misplaced {
        /// The position of the line.
        excerpt: Excerpt,
    },
}

impl SignatureError {
    /// The position of the error; none if there is no signature line.
    pub fn excerpt(&self) -> Option<&Excerpt> {
        match self {
            Self::Unsigned => None,
            Self::Malformed { excerpt, .. }
            | Self::Multiple { excerpt }
            | Self::WrongComment { excerpt, .. }
            | Self::Misplaced { excerpt } => Some(excerpt),
        }
    }
}
