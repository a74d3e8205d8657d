//! What a shell gets after `-c`.
//!
//! A value never becomes part of what the shell parses. It is passed beside the script, as a
//! variable of its own, and in its place stands a reference to that: whatever the author put
//! around the placeholder, quotes of either kind, a command in a command, a comment, a value
//! stays data. The quotes that the author has opened are followed only so that a value is
//! also one word, with nothing added to it.

use super::Variables;

/// What the variables begin with that carry the values.
const PREFIX: &str = "RYE_VALUE_";

/// A script with what it refers to.
#[derive(Debug)]
pub struct Script {
    /// What the shell parses.
    pub text: String,
    /// What its variables stand for.
    pub values: Variables,
    /// What was opened and is not closed yet, from the outside in.
    open: Vec<Open>,
    /// After a backslash.
    escaped: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    Single,
    Double,
    /// `$(`, or a bracket within it.
    Command,
    /// Up to the end of the line.
    Comment,
}

impl Script {
    pub(super) fn new(values: Variables) -> Self {
        Self {
            text: String::new(),
            values,
            open: Vec::new(),
            escaped: false,
        }
    }

    /// Adds what the author wrote.
    pub(super) fn code(&mut self, code: &str) {
        for letter in code.chars() {
            self.follow(letter);
            self.text.push(letter);
        }
    }

    fn follow(&mut self, letter: char) {
        if std::mem::take(&mut self.escaped) {
            return;
        }
        match (self.open.last(), letter) {
            (Some(Open::Single), '\'')
            | (Some(Open::Double), '"')
            | (Some(Open::Comment), '\n')
            | (Some(Open::Command), ')') => {
                self.open.pop();
            }
            (_, '\\') if !self.is_plain_text() => self.escaped = true,
            (_, '(') if self.opens_a_command() => self.open.push(Open::Command),
            (Some(Open::Single | Open::Comment | Open::Double), _) => {}
            (_, '"') => self.open.push(Open::Double),
            (_, '\'') => self.open.push(Open::Single),
            (_, '#') if self.at_a_word() => self.open.push(Open::Comment),
            _ => {}
        }
    }

    /// Whether a bracket here is one that a command in a command needs closed.
    fn opens_a_command(&self) -> bool {
        let within = self.open.last() == Some(&Open::Command);
        !self.is_plain_text() && (within || self.text.ends_with('$'))
    }

    /// Whether only an end means something here.
    fn is_plain_text(&self) -> bool {
        matches!(self.open.last(), Some(Open::Single | Open::Comment))
    }

    /// Whether a word begins here.
    fn at_a_word(&self) -> bool {
        let last = self.text.chars().next_back();
        last.is_none_or(|last| last.is_whitespace() || ";&|()".contains(last))
    }

    /// Adds a value.
    pub(super) fn value(&mut self, value: &str) {
        let plain = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./-_".contains(c);
        if !value.is_empty() && value.chars().all(plain) {
            // It means the same everywhere.
            return self.code(value);
        }
        let name = format!("{PREFIX}{}", self.values.len() + 1);
        let around = match self.open.last() {
            Some(Open::Single) => "'",
            Some(Open::Double) => "\"",
            Some(Open::Command | Open::Comment) | None => "",
        };
        for piece in [around, "\"$", &name, "\"", around] {
            self.text.push_str(piece);
        }
        self.values.insert(name, value.to_owned());
        self.escaped = false;
    }
}
