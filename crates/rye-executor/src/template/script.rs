//! Scripts for a shell's `-c`.
//!
//! The shell never parses a value. Each value is passed in an environment variable, and the
//! script refers to that variable. So a value stays data in quotes of either kind, in a command
//! substitution and in a comment. The quotes around a placeholder are tracked only so that the
//! value forms a single word without additions.

use super::Variables;

/// Prefix of the variables that carry values.
const VARIABLE_PREFIX: &str = "RYE_VALUE_";

/// A script and the variables that it refers to.
#[derive(Debug)]
pub struct Script {
    /// Code that the shell parses.
    pub text: String,
    /// Variables that carry the values.
    pub values: Variables,
    /// Open quotes and substitutions, from the outside in.
    open: Vec<Context>,
    /// Whether the previous character was an escaping backslash.
    escaped: bool,
}

/// Syntactic context inside a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Context {
    SingleQuotes,
    DoubleQuotes,
    /// `$(`, or a parenthesis inside it.
    Command,
    /// Until the end of the line.
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

    /// Appends code that the author of the template wrote.
    pub(super) fn push_code(&mut self, code: &str) {
        for letter in code.chars() {
            self.track(letter);
            self.text.push(letter);
        }
    }

    /// Updates the context for the next character of code.
    fn track(&mut self, letter: char) {
        if std::mem::take(&mut self.escaped) {
            return;
        }
        match (self.open.last(), letter) {
            (Some(Context::SingleQuotes), '\'')
            | (Some(Context::DoubleQuotes), '"')
            | (Some(Context::Comment), '\n')
            | (Some(Context::Command), ')') => {
                self.open.pop();
            }
            (_, '\\') if !self.is_literal() => self.escaped = true,
            (_, '(') if self.opens_command() => self.open.push(Context::Command),
            (Some(Context::SingleQuotes | Context::Comment | Context::DoubleQuotes), _) => {}
            (_, '"') => self.open.push(Context::DoubleQuotes),
            (_, '\'') => self.open.push(Context::SingleQuotes),
            (_, '#') if self.is_at_word_start() => self.open.push(Context::Comment),
            _ => {}
        }
    }

    /// Whether a parenthesis here opens or nests in a command substitution.
    fn opens_command(&self) -> bool {
        let within = self.open.last() == Some(&Context::Command);
        !self.is_literal() && (within || self.text.ends_with('$'))
    }

    /// Whether only the end of the context has a meaning here.
    fn is_literal(&self) -> bool {
        matches!(
            self.open.last(),
            Some(Context::SingleQuotes | Context::Comment)
        )
    }

    /// Whether a word starts here.
    fn is_at_word_start(&self) -> bool {
        let last = self.text.chars().next_back();
        last.is_none_or(|last| last.is_whitespace() || ";&|()".contains(last))
    }

    /// Appends a value as data.
    pub(super) fn push_value(&mut self, value: &str) {
        let plain = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./-_".contains(c);
        if !value.is_empty() && value.chars().all(plain) {
            // These characters have no meaning to the shell in any context.
            return self.push_code(value);
        }
        let name = format!("{VARIABLE_PREFIX}{}", self.values.len() + 1);
        let quote = match self.open.last() {
            Some(Context::SingleQuotes) => "'",
            Some(Context::DoubleQuotes) => "\"",
            Some(Context::Command | Context::Comment) | None => "",
        };
        for piece in [quote, "\"$", &name, "\"", quote] {
            self.text.push_str(piece);
        }
        self.values.insert(name, value.to_owned());
        self.escaped = false;
    }
}
