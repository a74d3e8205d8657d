//! Expands variables and patterns in words.

use std::collections::BTreeMap;

use super::glob::{PatternChar, glob};
use super::lex::{Piece, Word};
use super::meter::{Halt, Meter};
use crate::files::Files;

/// Maximum length of an expanded word or variable, in bytes.
const MAX_WORD_LEN: usize = 1024 * 1024;

/// The state that words are expanded with.
pub(crate) struct Expander<'a> {
    pub(crate) variables: &'a BTreeMap<String, String>,
    pub(crate) status: i32,
    pub(crate) cwd: &'a str,
    pub(crate) files: &'a Files,
    pub(crate) meter: &'a mut Meter,
}

impl Expander<'_> {
    /// Expands a word to a single string, without field splitting and pathname
    /// expansion.
    pub(crate) fn text(&mut self, word: &Word) -> Result<String, Halt> {
        let mut text = String::new();
        for piece in word {
            match piece {
                Piece::Text { text: more, .. } => text.push_str(more),
                Piece::Variable { name, .. } => text.push_str(&self.value(name)),
            }
            self.check(text.len())?;
        }
        Ok(text)
    }

    /// Expands a word to any number of words: unquoted variables are split at
    /// whitespace, and patterns are replaced by the matching paths.
    pub(crate) fn words(&mut self, word: &Word) -> Result<Vec<String>, Halt> {
        let mut fields = Fields::default();
        for piece in word {
            match piece {
                Piece::Text { text, quoted: true } => fields.push(text, false),
                Piece::Text { text, .. } => fields.push(text, true),
                Piece::Variable { name, quoted: true } => fields.push(&self.value(name), false),
                Piece::Variable { name, .. } => {
                    let value = self.value(name);
                    fields.split(&value);
                }
            }
            self.check(fields.length)?;
        }
        let mut words = Vec::new();
        for field in fields.all {
            words.extend(self.expand_pattern(&field)?);
        }
        Ok(words)
    }

    fn expand_pattern(&mut self, field: &[PatternChar]) -> Result<Vec<String>, Halt> {
        let is_pattern = field
            .iter()
            .any(|ch| !matches!(ch, PatternChar::Literal(_)));
        if is_pattern {
            let found = glob(field, self.cwd, self.files, self.meter)?;
            if !found.is_empty() {
                return Ok(found);
            }
        }
        let text = field.iter().map(|ch| match ch {
            PatternChar::Literal(ch) => *ch,
            PatternChar::AnyChar => '?',
            PatternChar::AnyString => '*',
        });
        Ok(vec![text.collect()])
    }

    fn value(&self, name: &str) -> String {
        match name {
            "?" => self.status.to_string(),
            name => self.variables.get(name).cloned().unwrap_or_default(),
        }
    }

    fn check(&mut self, length: usize) -> Result<(), Halt> {
        if length > MAX_WORD_LEN {
            return Err(Halt::LimitExceeded("an expanded word is too long"));
        }
        self.meter.charge(length)
    }
}

#[derive(Default)]
struct Fields {
    all: Vec<Vec<PatternChar>>,
    length: usize,
    /// The next text starts a new field.
    ended: bool,
}

impl Fields {
    fn push(&mut self, text: &str, patterns: bool) {
        if self.all.is_empty() || std::mem::take(&mut self.ended) {
            self.all.push(Vec::new());
        }
        self.length += text.len();
        if let Some(last) = self.all.last_mut() {
            last.extend(text.chars().map(|ch| match ch {
                '*' if patterns => PatternChar::AnyString,
                '?' if patterns => PatternChar::AnyChar,
                ch => PatternChar::Literal(ch),
            }));
        }
    }

    fn split(&mut self, value: &str) {
        let is_space = |ch: char| matches!(ch, ' ' | '\t' | '\n');
        if value.starts_with(is_space) {
            self.ended = true;
        }
        for part in value.split(is_space).filter(|part| !part.is_empty()) {
            self.push(part, true);
            self.ended = true;
        }
        if !value.is_empty() && !value.ends_with(is_space) {
            self.ended = false;
        }
    }
}
