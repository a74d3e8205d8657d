//! What can be wrong with a signature line, before any key comes into play.

use crate::excerpt::Excerpt;

/// A signature line that cannot be read. The offset is into the line's text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct LineError {
    /// What is wrong, as a fragment.
    pub what: String,
    /// Where, in bytes from the beginning of `rye:signed:`.
    pub offset: usize,
}

/// Why no signature was found where one must be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// There is none.
    #[error("not signed")]
    Unsigned,
    /// There is a line, and it cannot be read.
    #[error("malformed signature line: {what}")]
    Malformed {
        /// What is wrong.
        what: String,
        /// Where.
        excerpt: Excerpt,
    },
    /// Two lines: which one counts would be a guess.
    #[error("more than one signature line")]
    Two {
        /// The second one.
        excerpt: Excerpt,
    },
    /// The line is a comment of another language.
    #[error("the signature line must be a comment that starts with `{expected}`")]
    WrongComment {
        /// What such a line begins with here.
        expected: String,
        /// The line.
        excerpt: Excerpt,
    },
    /// The line is further down.
    #[error("the signature line must be the first line, or the second after `#!`")]
    Misplaced {
        /// The line.
        excerpt: Excerpt,
    },
}

impl SignatureError {
    /// The place, where there is one.
    pub fn excerpt(&self) -> Option<&Excerpt> {
        match self {
            Self::Unsigned => None,
            Self::Malformed { excerpt, .. }
            | Self::Two { excerpt }
            | Self::WrongComment { excerpt, .. }
            | Self::Misplaced { excerpt } => Some(excerpt),
        }
    }
}
