//! Splits templates at their placeholders, in any of the dialects that Rye's files use.
//!
//! A [`Syntax`] says what a placeholder looks like. The caller parses the text between the
//! delimiters and looks up the value:
//!
//! ```
//! use lillux::template::{Segment, VARIABLE, Variable};
//!
//! let parse = |inner| Variable::parse(inner, |c| c.is_ascii_uppercase());
//! let mut text = String::new();
//! for segment in VARIABLE.segments("http://${HOST}:${PORT:-80}/${a b}", parse) {
//!     match segment {
//!         Segment::Text(literal) => text.push_str(literal),
//!         Segment::Placeholder { value, .. } => text.push_str(value.default.unwrap_or("h")),
//!     }
//! }
//! assert_eq!(text, "http://h:80/${a b}");
//! ```

/// The delimiters of a placeholder.
#[derive(Debug, Clone, Copy)]
pub struct Syntax {
    /// Text before the placeholder.
    pub open: &'static str,
    /// Text after it.
    pub close: &'static str,
    /// After this character, `open` is literal text.
    pub not_after: Option<char>,
}

/// `${NAME}`, as in a shell.
pub const VARIABLE: Syntax = Syntax {
    open: "${",
    close: "}",
    not_after: None,
};

/// `{name}`; `${name}` is literal text.
pub const BRACES: Syntax = Syntax {
    open: "{",
    close: "}",
    not_after: Some('$'),
};

/// `${expression}`; `$${` is an escaped `${`.
pub const EXPRESSION: Syntax = Syntax {
    not_after: Some('$'),
    ..VARIABLE
};

/// `{{name}}`.
pub const DOUBLE_BRACES: Syntax = Syntax {
    open: "{{",
    close: "}}",
    not_after: None,
};

/// A part of a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segment<'t, T> {
    /// Literal text, never empty.
    Text(&'t str),
    /// A placeholder.
    Placeholder {
        /// The parsed text between the delimiters.
        value: T,
        /// The placeholder with its delimiters.
        source: &'t str,
    },
}

impl Syntax {
    /// Splits a template. `parse` reads the text between the delimiters; if it returns `None`,
    /// the delimiters are literal text.
    pub fn segments<'t, T>(
        self,
        template: &'t str,
        parse: impl Fn(&'t str) -> Option<T>,
    ) -> impl Iterator<Item = Segment<'t, T>> {
        let mut rest = template;
        std::iter::from_fn(move || {
            let mut from = 0;
            while let Some(at) = rest[from..].find(self.open).map(|at| from + at) {
                let (before, inner) = (&rest[..at], &rest[at + self.open.len()..]);
                let is_literal = self.not_after.is_some_and(|c| before.ends_with(c));
                if !is_literal
                    && let Some(end) = inner.find(self.close)
                    && let Some(value) = parse(&inner[..end])
                {
                    if !before.is_empty() {
                        rest = &rest[at..];
                        return Some(Segment::Text(before));
                    }
                    let length = self.open.len() + end + self.close.len();
                    let (source, after) = rest.split_at(length);
                    rest = after;
                    return Some(Segment::Placeholder { value, source });
                }
                from = at + self.open.len();
            }
            let text = std::mem::take(&mut rest);
            (!text.is_empty()).then_some(Segment::Text(text))
        })
    }
}

/// An environment variable in a template: `NAME` or `NAME:-default`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variable<'t> {
    /// Name of the variable.
    pub name: &'t str,
    /// Text to use if the variable is not set.
    pub default: Option<&'t str>,
}

impl<'t> Variable<'t> {
    /// Parses the text between the delimiters. A name consists of `_`, of letters that
    /// `is_letter` accepts, and, except at its start, of digits.
    pub fn parse(inner: &'t str, is_letter: impl Fn(char) -> bool) -> Option<Self> {
        let (name, default) = match inner.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inner, None),
        };
        let is_first = |c: char| c == '_' || is_letter(c);
        let is_name =
            name.starts_with(is_first) && name.chars().all(|c| is_first(c) || c.is_ascii_digit());
        is_name.then_some(Self { name, default })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The template with each placeholder in angle brackets.
    fn marked(syntax: Syntax, template: &str) -> String {
        let segments = syntax.segments(template, |inner| {
            let is_name = inner.bytes().all(|b| b.is_ascii_alphabetic());
            (is_name && !inner.is_empty()).then_some(inner)
        });
        segments
            .map(|segment| match segment {
                Segment::Text(text) => text.to_owned(),
                Segment::Placeholder { value, source } => {
                    assert_eq!(source, format!("{}{value}{}", syntax.open, syntax.close));
                    format!("<{value}>")
                }
            })
            .collect()
    }

    #[test]
    fn each_dialect_finds_its_own_placeholders() {
        let template = "ä{a}${b}$${c}{{d}}{e";
        assert_eq!(marked(VARIABLE, template), "ä{a}<b>$<c>{{d}}{e");
        assert_eq!(marked(EXPRESSION, template), "ä{a}<b>$${c}{{d}}{e");
        assert_eq!(marked(BRACES, template), "ä<a>${b}$${c}{<d>}{e");
        assert_eq!(marked(DOUBLE_BRACES, template), "ä{a}${b}$${c}<d>{e");
    }

    #[test]
    fn malformed_placeholders_are_text() {
        for template in ["", "${", "${}", "${1}", "$", "${a b} ${", "{", "}${{}}"] {
            assert_eq!(marked(VARIABLE, template), template);
        }
        assert_eq!(marked(VARIABLE, "${${a}"), "${<a>");
    }
}
