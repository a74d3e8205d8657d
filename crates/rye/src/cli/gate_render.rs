//! Renders a gate for the terminal so that its content cannot imitate other output. The chat has
//! its own view.
//!
//! Facts start a line; quoted content stands behind a bar (`│`). Lines that are too long are
//! wrapped behind a broken bar (`┊`), because a line wrapped by the terminal could look like a
//! new one.

use lillux::{sanitize, sanitize_line};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::page::{BOLD, paint};

const INDENT: &str = "  ";
/// Prefix of a continuation line.
const CONTINUATION: &str = "  ┊ ";
/// Narrower terminals are treated as this wide.
const MIN_WIDTH: usize = 20;

/// The title and body of a gate, wrapped to the width of the terminal.
pub(crate) fn lines(title: &str, body: &str, width: Option<usize>) -> Vec<String> {
    let title = wrap("", &sanitize_line(title), width).into_iter();
    let mut lines: Vec<_> = title.map(|line| paint(BOLD, line).to_string()).collect();
    for line in sanitize(body).trim_end().lines() {
        lines.extend(wrap(INDENT, line, width));
    }
    lines
}

/// Splits a line into pieces that fit.
fn wrap(indent: &str, line: &str, width: Option<usize>) -> Vec<String> {
    // The width of a tab depends on the terminal.
    let line = line.replace('\t', "    ");
    let Some(width) = width.map(|width| width.max(MIN_WIDTH)) else {
        return vec![format!("{indent}{line}")];
    };
    let (mut pieces, mut piece) = (Vec::new(), indent.to_owned());
    let mut used = indent.len();
    for c in line.chars() {
        let wide = c.width().unwrap_or(0);
        if used + wide > width {
            let moved = word_to_move(&piece, c, width);
            let word = piece.split_off(piece.len() - moved.len());
            pieces.push(std::mem::replace(
                &mut piece,
                CONTINUATION.to_owned() + &word,
            ));
            used = piece.width();
        }
        piece.push(c);
        used += wide;
    }
    pieces.push(piece);
    pieces
}

/// The incomplete last word of a piece, to be moved to the next line. Empty if the word ends
/// here or fills more than half of a line.
fn word_to_move(piece: &str, next: char, width: usize) -> String {
    let word = piece.rsplit(' ').next().unwrap_or_default();
    let is_incomplete = next != ' ' && word.width() <= width / 2;
    if is_incomplete {
        word.to_owned()
    } else {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(title: &str, body: &str, width: Option<usize>) -> String {
        let lines = lines(title, body, width).join("\n");
        anstream::adapter::strip_str(&lines).to_string()
    }

    #[test]
    fn long_lines_are_wrapped_behind_a_bar() {
        let body = format!("risk: high\n│ echo{}risk: low", " ".repeat(18));
        let expected = "run: echo\n  risk: high\n  │ echo            \n  ┊       risk: low";
        assert_eq!(plain("run: echo", &body, Some(20)), expected);
        let text = plain("a", "runs: deploy, signed by ada", Some(20));
        assert_eq!(text, "a\n  runs: deploy, \n  ┊ signed by ada");
        let title = format!("run: {}", "日".repeat(10));
        let expected = "run: 日日日日日日日\n  ┊ 日日日";
        assert_eq!(plain(&title, "", Some(20)), expected);
    }

    #[test]
    fn control_characters_are_escaped() {
        let text = plain("a\nb\u{1b}[2J", "c\u{202e}\n\td", None);
        assert_eq!(text, "a\\u{a}b\\u{1b}[2J\n  c\\u{202e}\n      d");
    }
}
