//! Texts of others, shown to a person who has to decide by them.
//!
//! What somebody is to judge must look like nothing else: it can neither steer the screen nor
//! hide a part of itself, and none of its lines can be taken for a line of whoever shows it.

use std::borrow::Cow;
use std::fmt::Write as _;

/// What stands before each line of a text that is [`quoted`].
pub const BAR: &str = "│ ";

/// A text in which everything can be seen: what steers a terminal, turns the order of letters
/// round or takes no room is spelled out. Newlines and tabs stay.
///
/// ```
/// use lillux::visible;
///
/// assert_eq!(visible("ä\n\tb"), "ä\n\tb");
/// assert_eq!(visible("a\x1b[2J\r\u{202e}"), r"a\u{1b}[2J\u{d}\u{202e}");
/// ```
pub fn visible(text: &str) -> Cow<'_, str> {
    spelled(text, |c| is_unseen(c) && !matches!(c, '\n' | '\t'))
}

/// The same on one line.
///
/// ```
/// assert_eq!(lillux::visible_line("a\n\tb"), r"a\u{a}\u{9}b");
/// ```
pub fn visible_line(text: &str) -> Cow<'_, str> {
    spelled(text, is_unseen)
}

/// A text that is somebody else's: each line behind a bar, and everything in it
/// [`visible`].
///
/// ```
/// assert_eq!(lillux::quoted("ls\nrisk: low\n"), "│ ls\n│ risk: low");
/// ```
pub fn quoted(text: &str) -> String {
    let text = visible(text);
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let mut shown = String::with_capacity(text.len() + BAR.len());
    for line in text.split('\n') {
        if !shown.is_empty() {
            shown.push('\n');
        }
        shown += BAR;
        shown += line;
    }
    shown
}

fn spelled(text: &str, is_spelled: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_spelled) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_spelled(c) {
            let _ = write!(shown, "{}", c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// Whether nobody sees a character, or it changes how others are seen.
fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            // Of no width, of another direction, or a line's end.
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_seen_is_spelled_out() {
        for (text, shown) in [
            ("plain, ä, 日本, 🦀", "plain, ä, 日本, 🦀"),
            ("a\u{85}b\u{2028}c", r"a\u{85}b\u{2028}c"),
            ("a\u{200b}b\u{e0041}", r"a\u{200b}b\u{e0041}"),
            ("\u{7}\u{7f}\u{9b}", r"\u{7}\u{7f}\u{9b}"),
        ] {
            assert_eq!(visible(text), shown);
            assert_eq!(visible_line(text), shown);
        }
    }

    #[test]
    fn no_line_of_a_quoted_text_stands_before_the_bar() {
        for (text, shown) in [
            ("", "│ "),
            ("one", "│ one"),
            ("one\n\ntwo\n", "│ one\n│ \n│ two"),
            ("one\r\nrisk: low\rtwo", "│ one\\u{d}\n│ risk: low\\u{d}two"),
            ("one\u{b}two\u{c}three", "│ one\\u{b}two\\u{c}three"),
        ] {
            assert_eq!(quoted(text), shown);
        }
    }
}
