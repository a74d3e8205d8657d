//! Source positions and excerpts for error messages.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A position in a text file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Position {
    /// The line, starting at 1.
    pub line: u32,
    /// The column in characters, starting at 1.
    pub column: u32,
}

impl Position {
    /// Line 1, column 1.
    pub const START: Self = Self { line: 1, column: 1 };

    /// Converts a byte offset. An offset past the end gives the position of the end.
    pub fn at_offset(text: &[u8], offset: usize) -> Self {
        Self::START.after(&text[..offset.min(text.len())])
    }

    /// The position after a text that starts at this one.
    pub(crate) fn after(mut self, text: &[u8]) -> Self {
        for &byte in text {
            // In UTF-8, all bytes of a character but the first start with the bits 10.
            if byte == b'\n' {
                self.line = self.line.saturating_add(1);
                self.column = 1;
            } else if byte & 0xc0 != 0x80 {
                self.column = self.column.saturating_add(1);
            }
        }
        self
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A position with the source line it points into.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Excerpt {
    /// The position that the excerpt points at.
    #[serde(flatten)]
    pub position: Position,
    /// The text of the line. A long line is cut to a window around the position.
    pub source: String,
    /// The index of the position in `source`, in characters starting at 0.
    #[serde(skip)]
    pub caret: usize,
}

impl Excerpt {
    /// The maximum number of characters shown; fits on any terminal.
    const WINDOW: usize = 72;

    /// The excerpt at a position.
    pub fn at_position(text: &[u8], position: Position) -> Self {
        let line = usize::try_from(position.line).unwrap_or(usize::MAX);
        let bytes = text.split(|&b| b == b'\n').nth(line.saturating_sub(1));
        let line = String::from_utf8_lossy(bytes.unwrap_or_default());
        // Control characters could move the cursor of a terminal.
        let visible = |c: char| if c.is_control() { ' ' } else { c };
        let characters: Vec<_> = line.trim_end().chars().map(visible).collect();
        let column = usize::try_from(position.column).unwrap_or(usize::MAX);
        let caret = column.saturating_sub(1).min(characters.len());
        let start = caret
            .saturating_sub(Self::WINDOW / 2)
            .min(characters.len().saturating_sub(Self::WINDOW));
        Self {
            position,
            source: characters.iter().skip(start).take(Self::WINDOW).collect(),
            caret: caret - start,
        }
    }

    /// The excerpt at a byte offset.
    pub fn at_offset(text: &[u8], offset: usize) -> Self {
        Self::at_position(text, Position::at_offset(text, offset))
    }
}

/// Formats two lines: the source line with its number, and a caret below the position.
impl fmt::Display for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.position.line.to_string();
        writeln!(f, "  {number} | {}", self.source)?;
        write!(
            f,
            "  {:1$} | {2:>3$}",
            "",
            number.len(),
            '^',
            self.caret + 1
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_counts_characters_and_accepts_any_bytes() {
        let text = "a\nä = !\n".as_bytes();
        assert_eq!(Position::at_offset(text, 0), Position::START);
        assert_eq!(
            Position::at_offset(text, 7),
            Position { line: 2, column: 5 }
        );
        assert_eq!(
            Position::at_offset(text, 999),
            Position { line: 3, column: 1 }
        );
        assert_eq!(Position::at_offset(b"\xff\xfe", 1).column, 2);
    }

    #[test]
    fn excerpt_points_at_its_position() {
        let text = "a\nä = !\n".as_bytes();
        assert_eq!(
            Excerpt::at_offset(text, 7).to_string(),
            "  2 | ä = !\n    |     ^"
        );
    }

    #[test]
    fn long_line_is_cut_around_the_position() {
        let mut text = vec![b'x'; 100_000];
        text[50_000] = b'!';
        let excerpt = Excerpt::at_offset(&text, 50_000);
        assert_eq!(excerpt.source.len(), Excerpt::WINDOW);
        assert_eq!(&excerpt.source[excerpt.caret..=excerpt.caret], "!");
    }

    #[test]
    fn excerpt_replaces_control_characters() {
        let excerpt = Excerpt::at_offset(b"a\x1b[2Jb\r\n", 0);
        assert_eq!(excerpt.source, "a [2Jb");
    }
}
