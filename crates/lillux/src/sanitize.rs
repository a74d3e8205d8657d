//! Sanitises untrusted text before it is shown on a terminal.
//!
//! A person decides about text that an agent or a tool wrote, such as a command that needs
//! approval. [`sanitize`] escapes characters that control the terminal or are invisible, and
//! [`quote_block`] marks every line, so that untrusted text cannot imitate the program's own
//! output. [`strip_control`] removes the same characters, for text that is only read.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::iter::Peekable;
use std::str::Chars;

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

/// Removes escape sequences and the characters that [`sanitize`] escapes, for text that is
/// only read, such as the answer of a model or the output of a tool.
///
/// Newlines and tabs stay, and joiners between characters of emoji or of scripts that need
/// them. An escape sequence ends at the latest with its line.
///
/// ```
/// use lillux::strip_control;
///
/// assert_eq!(strip_control("\x1b[31mred\x1b[0m\u{202e}"), "red");
/// assert_eq!(strip_control("👩\u{200d}🚀 a\u{200d}b"), "👩\u{200d}🚀 ab");
/// ```
pub fn strip_control(text: &str) -> Cow<'_, str> {
    let is_removed = |c: char| is_invisible(c) && !matches!(c, '\n' | '\t');
    if !text.contains(is_removed) {
        return Cow::Borrowed(text);
    }
    let mut stripped = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let is_joiner = matches!(c, '\u{200c}' | '\u{200d}');
        let is_other = |c: char| !c.is_ascii() && !is_invisible(c);
        if c == '\x1b' {
            skip_sequence(&mut rest);
        } else if !is_removed(c)
            || is_joiner
                && stripped.ends_with(is_other)
                && rest.peek().is_some_and(|next| is_other(*next))
        {
            stripped.push(c);
        }
    }
    Cow::Owned(stripped)
}

/// Skips the rest of an escape sequence after its first character.
fn skip_sequence(rest: &mut Peekable<Chars<'_>>) {
    match rest.next_if(|c| *c != '\n') {
        Some('[') => {
            while let Some(c) = rest.next_if(|c| *c != '\n') {
                if ('@'..='~').contains(&c) {
                    break;
                }
            }
        }
        Some(']' | 'P' | '_' | '^' | 'X') => {
            while let Some(c) = rest.next_if(|c| *c != '\n') {
                if c == '\x07' || (c == '\x1b' && rest.next_if_eq(&'\\').is_some()) {
                    break;
                }
            }
        }
        _ => {}
    }
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
    use proptest::prelude::*;

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
    fn control_sequences_are_removed() {
        for (text, expected) in [
            (
                "plain ünïcödé 漢字 👍🏽 ❤\u{fe0f}",
                "plain ünïcödé 漢字 👍🏽 ❤\u{fe0f}",
            ),
            ("a\tb\nc", "a\tb\nc"),
            ("\x1b[31mred\x1b[0m", "red"),
            ("\x1b]0;title\x07text", "text"),
            ("\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", "link"),
            ("\x1bPq#0\x1b\\after", "after"),
            ("one\r\ntwo\x08\x7f", "one\ntwo"),
            ("\x1b]0;no end\nnext \x1b[31\nline", "\nnext \nline"),
            ("safe\u{202e}txt.exe", "safetxt.exe"),
            ("ends\x1b", "ends"),
            ("\u{9b}31mred", "31mred"),
            ("👨\u{200d}👩\u{200d}👧", "👨\u{200d}👩\u{200d}👧"),
            ("pay\u{200d}pal é\u{200d}", "paypal é"),
        ] {
            assert_eq!(strip_control(text), expected, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_control_character_remains(text in "(\\PC|[\\x00-\\x9f\u{200b}-\u{202e}]){0,60}") {
            let is_left = |c: char| is_invisible(c) && !"\n\t\u{200c}\u{200d}".contains(c);
            prop_assert!(!strip_control(&text).contains(is_left));
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
