//! Styled text in lines of a given width. All text from models and tools passes through here,
//! which removes control sequences.

use std::fmt::Write as _;

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Replacement for a tab.
const TAB: &str = "    ";

/// Indent of a wrapped line that must not look like a line of its own.
pub(crate) const CONTINUATION: &str = "  ┊ ";

/// A colour of the terminal's own palette.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Colour {
    #[default]
    Default,
    Red,
    Green,
    Yellow,
    Blue,
    Magenta,
    Cyan,
}

/// Text attributes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Style {
    pub(crate) colour: Colour,
    pub(crate) bold: bool,
    pub(crate) dim: bool,
    pub(crate) italic: bool,
    pub(crate) underline: bool,
    pub(crate) strikethrough: bool,
}

pub(crate) const PLAIN: Style = Style {
    colour: Colour::Default,
    bold: false,
    dim: false,
    italic: false,
    underline: false,
    strikethrough: false,
};
pub(crate) const DIM: Style = Style { dim: true, ..PLAIN };
pub(crate) const BOLD: Style = Style {
    bold: true,
    ..PLAIN
};
pub(crate) const RED: Style = colour(Colour::Red);
pub(crate) const GREEN: Style = colour(Colour::Green);
pub(crate) const YELLOW: Style = colour(Colour::Yellow);
pub(crate) const BLUE: Style = colour(Colour::Blue);
pub(crate) const MAGENTA: Style = colour(Colour::Magenta);
pub(crate) const CYAN: Style = colour(Colour::Cyan);

const fn colour(colour: Colour) -> Style {
    Style { colour, ..PLAIN }
}

impl Style {
    /// SGR parameters, each preceded by a semicolon.
    fn codes(self) -> String {
        let colour = match self.colour {
            Colour::Default => None,
            Colour::Red => Some(31),
            Colour::Green => Some(32),
            Colour::Yellow => Some(33),
            Colour::Blue => Some(34),
            Colour::Magenta => Some(35),
            Colour::Cyan => Some(36),
        };
        let marks = [
            (self.bold, 1),
            (self.dim, 2),
            (self.italic, 3),
            (self.underline, 4),
            (self.strikethrough, 9),
        ];
        let marks = marks.into_iter().filter(|(on, _)| *on);
        let mut codes = String::new();
        for code in marks.map(|(_, code)| code).chain(colour) {
            let _ = write!(codes, ";{code}");
        }
        codes
    }
}

/// Text in one style.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) text: String,
    pub(crate) style: Style,
}

/// A line of styled text without control characters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) spans: Vec<Span>,
}

impl Line {
    pub(crate) fn new(text: &str, style: Style) -> Self {
        let mut line = Self::default();
        line.push(text, style);
        line
    }

    pub(crate) fn plain(text: &str) -> Self {
        Self::new(text, PLAIN)
    }

    pub(crate) fn push(&mut self, text: &str, style: Style) {
        let text = strip_control(text);
        if text.is_empty() {
            return;
        }
        match self.spans.last_mut() {
            Some(last) if last.style == style => last.text += &text,
            _ => self.spans.push(Span { text, style }),
        }
    }

    pub(crate) fn with(mut self, text: &str, style: Style) -> Self {
        self.push(text, style);
        self
    }

    pub(crate) fn extend(&mut self, other: Self) {
        for span in other.spans {
            self.push(&span.text, span.style);
        }
    }

    pub(crate) fn width(&self) -> usize {
        self.spans.iter().map(|span| span.text.width()).sum()
    }

    pub(crate) fn text(&self) -> String {
        self.spans.iter().map(|span| span.text.as_str()).collect()
    }

    /// Wraps the line to `width`, between words if possible; all lines but the first start
    /// with `indent`.
    pub(crate) fn wrap(self, width: usize, indent: &Line) -> Vec<Line> {
        let width = width.max(1);
        if self.width() <= width {
            return vec![self];
        }
        let indent = if indent.width() + 1 < width {
            indent.clone()
        } else {
            Line::default()
        };
        let mut wrap = LineWrapper {
            width,
            indent,
            lines: Vec::new(),
            line: Line::default(),
            used: 0,
            is_empty: true,
            break_pending: false,
        };
        for span in &self.spans {
            for word in words(&span.text) {
                wrap.add(word, span.style);
            }
        }
        wrap.lines.push(wrap.line);
        wrap.lines
    }

    /// Cuts the line at `width`; `…` marks the cut.
    pub(crate) fn truncate(self, width: usize) -> Line {
        if self.width() <= width {
            return self;
        }
        let mut line = Line::default();
        let mut left = width.saturating_sub(1);
        'all: for span in &self.spans {
            for letter in span.text.chars() {
                let wide = letter.width().unwrap_or(0);
                if wide > left {
                    break 'all;
                }
                left -= wide;
                line.push(letter.encode_utf8(&mut [0; 4]), span.style);
            }
        }
        if width > 0 {
            line.push("…", DIM);
        }
        line
    }

    /// The line with escape sequences for its styles.
    pub(crate) fn ansi(&self, colours: bool) -> String {
        if !colours {
            return self.text();
        }
        let mut out = String::new();
        for span in &self.spans {
            let codes = span.style.codes();
            if codes.is_empty() {
                out += &span.text;
            } else {
                let _ = write!(out, "\x1b[0{codes}m{}\x1b[0m", span.text);
            }
        }
        out
    }
}

/// Builds the wrapped lines word by word.
struct LineWrapper {
    width: usize,
    indent: Line,
    lines: Vec<Line>,
    line: Line,
    used: usize,
    /// The line has nothing but the indent.
    is_empty: bool,
    /// A space was dropped at the end of the line, so the next word starts a new one.
    break_pending: bool,
}

impl LineWrapper {
    fn add(&mut self, word: &str, style: Style) {
        let blank = word.starts_with(' ');
        let wide = word.width();
        if self.break_pending && !blank {
            self.start_line();
        }
        if self.used + wide <= self.width {
            if blank && self.is_empty && !self.lines.is_empty() {
                return;
            }
            return self.put(word, wide, style);
        }
        if blank {
            // A space at the end of a line is invisible.
            self.break_pending = !self.is_empty;
            return;
        }
        if !self.is_empty {
            self.start_line();
        }
        if self.used + wide <= self.width {
            return self.put(word, wide, style);
        }
        for letter in word.chars() {
            let wide = letter.width().unwrap_or(0);
            if self.used + wide > self.width && !self.is_empty {
                self.start_line();
            }
            self.put(letter.encode_utf8(&mut [0; 4]), wide, style);
        }
    }

    fn put(&mut self, text: &str, wide: usize, style: Style) {
        self.line.push(text, style);
        self.used += wide;
        self.is_empty = false;
    }

    fn start_line(&mut self) {
        self.break_pending = false;
        if let Some(last) = self.line.spans.last_mut() {
            last.text.truncate(last.text.trim_end_matches(' ').len());
        }
        let line = std::mem::replace(&mut self.line, self.indent.clone());
        self.lines.push(line);
        self.used = self.indent.width();
        self.is_empty = true;
    }
}

/// Words and the spaces between them.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let end = rest
            .find(|letter| (letter == ' ') != (first == ' '))
            .unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        rest = after;
        Some(word)
    })
}

/// Removes control characters, escape sequences and bidirectional overrides.
pub(crate) fn strip_control(text: &str) -> String {
    if !text.contains(is_control) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\t' => out += TAB,
            '\x1b' => skip_sequence(&mut letters),
            letter if is_control(letter) => {}
            letter => out.push(letter),
        }
    }
    out
}

/// Whether a character controls the terminal, changes the text direction or is invisible.
fn is_control(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200b}' | '\u{feff}')
}

/// Skips the rest of an escape sequence after its first character.
fn skip_sequence(letters: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match letters.next() {
        Some('[') => {
            for letter in letters.by_ref() {
                if ('@'..='~').contains(&letter) {
                    break;
                }
            }
        }
        Some(']' | 'P' | '_' | '^' | 'X') => {
            while let Some(letter) = letters.next() {
                if letter == '\x07' || (letter == '\x1b' && letters.next_if_eq(&'\\').is_some()) {
                    break;
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn control_sequences_are_removed() {
        let table = [
            ("plain ünïcödé 漢字", "plain ünïcödé 漢字"),
            ("a\tb", "a    b"),
            ("\x1b[31mred\x1b[0m", "red"),
            ("\x1b]0;title\x07text", "text"),
            ("\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", "link"),
            ("\x1bPq#0\x1b\\after", "after"),
            ("one\r\ntwo\x08\x7f", "onetwo"),
            ("safe\u{202e}txt.exe", "safetxt.exe"),
            ("ends\x1b", "ends"),
            ("\u{9b}31mred", "31mred"),
        ];
        for (given, expected) in table {
            assert_eq!(strip_control(given), expected, "{given:?}");
        }
    }

    #[test]
    fn lines_wrap_between_words() {
        let table: [(&str, usize, &[&str]); 6] = [
            ("one two three", 7, &["one two", "three"]),
            ("one two three", 80, &["one two three"]),
            ("abcdefghij", 4, &["abcd", "efgh", "ij"]),
            ("漢字漢字", 5, &["漢字", "漢字"]),
            ("a  b", 3, &["a", "b"]),
            ("", 3, &[""]),
        ];
        for (given, width, expected) in table {
            let lines = Line::plain(given).wrap(width, &Line::default());
            let lines: Vec<_> = lines
                .iter()
                .map(|line| line.text().trim_end().to_owned())
                .collect();
            assert_eq!(lines, expected, "{given}");
        }
    }

    proptest! {
        #[test]
        fn wrapped_lines_fit_and_keep_all_characters(text in "[a-z漢 é]{0,80}", width in 2..30_usize) {
            let lines = Line::plain(&text).wrap(width, &Line::plain("> "));
            let letters = |text: &str| text.replace(' ', "");
            let mut joined = String::new();
            for (line, number) in lines.iter().zip(0..) {
                prop_assert!(line.width() <= width, "{:?}", line);
                let text = line.text();
                let text = if number == 0 { text.as_str() } else { text.strip_prefix("> ").unwrap_or(&text) };
                joined += text;
            }
            prop_assert_eq!(letters(&joined), letters(&text));
        }

        #[test]
        fn truncated_line_fits(text in "[a-z漢 ]{0,40}", width in 0..20_usize) {
            prop_assert!(Line::plain(&text).truncate(width).width() <= width);
        }

        #[test]
        fn no_control_character_remains(text in "\\PC*|[\\x00-\\x9f]{0,40}") {
            prop_assert!(!strip_control(&text).contains(is_control));
        }
    }
}
