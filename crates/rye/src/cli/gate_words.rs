//! What is asked at a gate, in lines that cannot be taken for others.
//!
//! What is true of it begins a line; what somebody else wrote stands behind a bar. Where a line
//! is longer than the terminal is wide, it goes on behind a broken bar: a terminal would let
//! it go on at the margin, where it could look like a line of its own.

use lillux::{visible, visible_line};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::page::{BOLD, paint};

/// What stands before a line, and before what does not fit on one.
const INDENT: &str = "  ";
const GOES_ON: &str = "  ┊ ";
/// Of what is narrower, nobody reads anything.
const NARROWEST: usize = 20;

/// The title and all that there is to know, for a terminal of this many columns.
pub(crate) fn lines(title: &str, body: &str, width: Option<usize>) -> Vec<String> {
    let title = wrapped("", &visible_line(title), width).into_iter();
    let mut lines: Vec<_> = title.map(|line| paint(BOLD, line).to_string()).collect();
    for line in visible(body).trim_end().lines() {
        lines.extend(wrapped(INDENT, line, width));
    }
    lines
}

/// A line in pieces that fit.
fn wrapped(indent: &str, line: &str, width: Option<usize>) -> Vec<String> {
    // A tab is as wide as a terminal likes.
    let line = line.replace('\t', "    ");
    let Some(width) = width.map(|width| width.max(NARROWEST)) else {
        return vec![format!("{indent}{line}")];
    };
    let (mut pieces, mut piece) = (Vec::new(), indent.to_owned());
    let mut used = indent.len();
    for c in line.chars() {
        let wide = c.width().unwrap_or(0);
        if used + wide > width {
            let begun = begun_word(&piece, c, width);
            let word = piece.split_off(piece.len() - begun.len());
            pieces.push(std::mem::replace(&mut piece, GOES_ON.to_owned() + &word));
            used = piece.width();
        }
        piece.push(c);
        used += wide;
    }
    pieces.push(piece);
    pieces
}

/// What of the last word is better begun anew with the next letter: nothing of one that fills
/// half of a line.
fn begun_word(piece: &str, next: char, width: usize) -> String {
    let word = piece.rsplit(' ').next().unwrap_or_default();
    let is_begun = next != ' ' && word.width() <= width / 2;
    if is_begun {
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
    fn a_long_line_does_not_go_on_at_the_margin() {
        let body = format!("risk: high\n│ echo{}risk: low", " ".repeat(18));
        let expected = "run: echo\n  risk: high\n  │ echo            \n  ┊       risk: low";
        assert_eq!(plain("run: echo", &body, Some(20)), expected);
        let told = plain("a", "runs: deploy, signed by ada", Some(20));
        assert_eq!(told, "a\n  runs: deploy, \n  ┊ signed by ada");
        let title = format!("run: {}", "日".repeat(10));
        let expected = "run: 日日日日日日日\n  ┊ 日日日";
        assert_eq!(plain(&title, "", Some(20)), expected);
    }

    #[test]
    fn what_steers_the_terminal_is_spelled_out() {
        let told = plain("a\nb\u{1b}[2J", "c\u{202e}\n\td", None);
        assert_eq!(told, "a\\u{a}b\\u{1b}[2J\n  c\\u{202e}\n      d");
    }
}
