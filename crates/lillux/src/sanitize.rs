//! Sanitises untrusted text before it is shown on a terminal.
//!
//! A person decides about text that an agent or a tool wrote, such as a command that needs
//! approval. [`sanitize`] escapes characters that control the terminal or are invisible, and
//! [`quote_block`] marks every line, so that untrusted text cannot imitate the program's own
//! output.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Prefix of each line of a [`quote_block`].
pub const QUOTE_PREFIX: &str = "│ ";

/// Escapes control, bidirectional and zero-width characters as `\u{…}`. Newlines and tabs
/// stay.
///
/// ```
/// use lillux::sanitize;
///
/// assert_eq!(sanitize("ä\n\tb"), "ä\n\tb");
/// assert_eq!(sanitize("a\x1b[2J\r\u{202e}"), r"a\u{1b}[2J\u{d}\u{202e}");
/// ```
pub fn sanitize(text: &str) -> Cow<'_, str> {
    escape(text, |c| is_invisible(c) && !matches!(c, '\n' | '\t'))
}

/// Like [`sanitize`], but escapes newlines and tabs too: the result is one line.
///
/// ```
/// assert_eq!(lillux::sanitize_line("a\n\tb"), r"a\u{a}\u{9}b");
/// ```
pub fn sanitize_line(text: &str) -> Cow<'_, str> {
    escape(text, is_invisible)
}

/// Quotes untrusted text: [sanitised](sanitize), with [`QUOTE_PREFIX`] before each line.
///
/// ```
/// assert_eq!(lillux::quote_block("ls\nrisk: low\n"), "│ ls\n│ risk: low");
/// ```
pub fn quote_block(text: &str) -> String {
    let text = sanitize(text);
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let mut quoted = String::with_capacity(text.len() + QUOTE_PREFIX.len());
    for line in text.split('\n') {
        if !quoted.is_empty() {
            quoted.push('\n');
        }
        quoted += QUOTE_PREFIX;
        quoted += line;
    }
    quoted
}

fn escape(text: &str, needs_escape: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&needs_escape) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if needs_escape(c) {
            let _ = write!(escaped, "{}", c.escape_unicode());
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

/// Whether a character is invisible or changes how other characters are displayed.
fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            // Zero-width characters, bidirectional controls, line and paragraph separators.
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_characters_are_escaped() {
        for (text, expected) in [
            ("plain, ä, 日本, 🦀", "plain, ä, 日本, 🦀"),
            ("a\u{85}b\u{2028}c", r"a\u{85}b\u{2028}c"),
            ("a\u{200b}b\u{e0041}", r"a\u{200b}b\u{e0041}"),
            ("\u{7}\u{7f}\u{9b}", r"\u{7}\u{7f}\u{9b}"),
        ] {
            assert_eq!(sanitize(text), expected);
            assert_eq!(sanitize_line(text), expected);
        }
    }

    #[test]
    fn every_line_of_a_quote_block_has_the_prefix() {
        for (text, expected) in [
            ("", "│ "),
            ("one", "│ one"),
            ("one\n\ntwo\n", "│ one\n│ \n│ two"),
            ("one\r\nrisk: low\rtwo", "│ one\\u{d}\n│ risk: low\\u{d}two"),
            ("one\u{b}two\u{c}three", "│ one\\u{b}two\\u{c}three"),
        ] {
            assert_eq!(quote_block(text), expected);
        }
    }
}
