//! Words with their variables and patterns filled in.

use std::collections::BTreeMap;

use super::glob::{Sign, glob};
use super::lex::{Piece, Word};
use super::meter::{Halt, Meter};
use crate::files::Files;

/// The longest that a word or a variable may become.
const LONGEST: usize = 1024 * 1024;

/// What words are filled in with.
pub(crate) struct Known<'a> {
    pub(crate) variables: &'a BTreeMap<String, String>,
    pub(crate) status: i32,
    pub(crate) cwd: &'a str,
    pub(crate) files: &'a Files,
    pub(crate) meter: &'a mut Meter,
}

impl Known<'_> {
    /// A word as the one text that it is where it cannot be several.
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

    /// A word as the words that it stands for: a variable without quotes is split at
    /// spaces, and a pattern becomes the files that fit.
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
            words.extend(self.files_of(&field)?);
        }
        Ok(words)
    }

    fn files_of(&mut self, field: &[Sign]) -> Result<Vec<String>, Halt> {
        let is_pattern = field.iter().any(|sign| !matches!(sign, Sign::Is(_)));
        if is_pattern {
            let found = glob(field, self.cwd, self.files, self.meter)?;
            if !found.is_empty() {
                return Ok(found);
            }
        }
        let text = field.iter().map(|sign| match sign {
            Sign::Is(sign) => *sign,
            Sign::One => '?',
            Sign::Any => '*',
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
        if length > LONGEST {
            return Err(Halt::TooMuch("a word becomes too long"));
        }
        self.meter.charge(length)
    }
}

#[derive(Default)]
struct Fields {
    all: Vec<Vec<Sign>>,
    length: usize,
    /// Whether what comes begins a new one.
    ended: bool,
}

impl Fields {
    fn push(&mut self, text: &str, patterns: bool) {
        if self.all.is_empty() || std::mem::take(&mut self.ended) {
            self.all.push(Vec::new());
        }
        self.length += text.len();
        if let Some(last) = self.all.last_mut() {
            last.extend(text.chars().map(|sign| match sign {
                '*' if patterns => Sign::Any,
                '?' if patterns => Sign::One,
                sign => Sign::Is(sign),
            }));
        }
    }

    fn split(&mut self, value: &str) {
        let is_space = |sign: char| matches!(sign, ' ' | '\t' | '\n');
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
