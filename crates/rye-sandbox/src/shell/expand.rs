//! Expands words: braces, parameters, substitutions, field splitting and pathnames.

use rye_engine::BoxFuture;

use super::meter::Halt;
use super::pattern::{self, Field};
use super::run::Shell;
use super::syntax::{Operation, Parameter, Piece, UnsetAction, Word};
use super::{arithmetic, braces};

/// Maximum length of an expanded word or variable, in bytes.
const MAX_WORD_LEN: usize = 1024 * 1024;
/// Characters at which unquoted values are split if `IFS` is unset.
const DEFAULT_SEPARATORS: &str = " \t\n";

/// Where a word is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Word,
    /// In `${…}` without quotes, where plain text is split as well.
    Operand,
    Quotes,
}

impl Shell<'_> {
    /// Expands words to arguments.
    pub(crate) async fn expand_words(&mut self, words: &[Word]) -> Result<Vec<String>, Halt> {
        let mut all = Vec::new();
        for word in words {
            match braces::expand(word, &mut self.meter)? {
                None => self.expand_word(word, &mut all).await?,
                Some(words) => {
                    for word in &words {
                        self.expand_word(word, &mut all).await?;
                    }
                }
            }
        }
        Ok(all)
    }

    async fn expand_word(&mut self, word: &Word, all: &mut Vec<String>) -> Result<(), Halt> {
        let mut fields = Fields::new(true);
        self.expand(word, Place::Word, &mut fields).await?;
        for field in fields.all {
            if pattern::is_pattern(&field) {
                let files = self.files.lock();
                let files = files.unwrap_or_else(std::sync::PoisonError::into_inner);
                let found = pattern::glob(&field, &self.state.cwd, &files, &mut self.meter)?;
                if !found.is_empty() {
                    all.extend(found);
                    continue;
                }
            }
            all.push(pattern::text(&field));
        }
        Ok(())
    }

    /// Expands a word to one text, without splitting it.
    pub(crate) async fn expand_text(&mut self, word: &Word) -> Result<String, Halt> {
        Ok(pattern::text(&self.expand_field(word).await?))
    }

    /// Expands a word to one text that can be used as a pattern.
    pub(crate) async fn expand_field(&mut self, word: &Word) -> Result<Field, Halt> {
        let mut fields = Fields::new(false);
        self.expand(word, Place::Word, &mut fields).await?;
        Ok(fields.all.pop().unwrap_or_default())
    }

    /// Evaluates an arithmetic expression.
    pub(crate) async fn evaluate(&mut self, expression: &Word) -> Result<i64, Halt> {
        let text = self.expand_text(expression).await?;
        self.meter.charge(text.len() * 8)?;
        arithmetic::evaluate(&text, &mut self.state.variables).map_err(Halt::Abort)
    }

    fn expand<'s>(
        &'s mut self,
        word: &'s Word,
        place: Place,
        fields: &'s mut Fields,
    ) -> BoxFuture<'s, Result<(), Halt>> {
        let is_quoted = place == Place::Quotes;
        Box::pin(async move {
            self.enter()?;
            for (index, piece) in word.iter().enumerate() {
                match piece {
                    Piece::Text {
                        text,
                        quoted: false,
                    } if index == 0 && (text == "~" || text.starts_with("~/")) => {
                        fields.push(&self.variable("HOME"), false);
                        fields.push(&text[1..], !is_quoted);
                    }
                    Piece::Text {
                        text,
                        quoted: false,
                    } if place == Place::Operand => self.add(text, false, fields),
                    Piece::Text { text, quoted } => fields.push(text, !quoted && !is_quoted),
                    Piece::Parameter { parameter, quoted } => {
                        self.parameter(parameter, *quoted || is_quoted, fields)
                            .await?;
                    }
                    Piece::Command { list, quoted } => {
                        let output = self.substitute(list).await?;
                        self.add(&output, *quoted || is_quoted, fields);
                    }
                    Piece::Arithmetic { expression, quoted } => {
                        let value = self.evaluate(expression).await?;
                        self.add(&value.to_string(), *quoted || is_quoted, fields);
                    }
                }
                if fields.length > MAX_WORD_LEN {
                    return Err(Halt::LimitExceeded("an expanded word is too long"));
                }
                self.meter.spend(fields.length).await?;
            }
            self.state.depth -= 1;
            Ok(())
        })
    }

    fn add(&self, value: &str, is_quoted: bool, fields: &mut Fields) {
        if is_quoted || !fields.splits {
            fields.push(value, !is_quoted);
        } else {
            fields.split(value, &self.separators());
        }
    }

    /// The characters at which unquoted values are split.
    pub(crate) fn separators(&self) -> String {
        let separators = self.state.variables.get("IFS");
        separators.map_or(DEFAULT_SEPARATORS, |it| it).to_owned()
    }

    pub(crate) fn variable(&self, name: &str) -> String {
        self.state.variables.get(name).cloned().unwrap_or_default()
    }

    /// The value of a parameter, if it is set.
    fn value(&self, name: &str) -> Option<String> {
        let arguments = &self.state.arguments;
        match name {
            "?" => Some(self.status.to_string()),
            "#" => Some(arguments.len().to_string()),
            "0" => Some("shell".to_owned()),
            "@" => (!arguments.is_empty()).then(|| arguments.join(" ")),
            "*" => {
                let separator = self.separators().chars().next();
                let separator = separator.map_or_else(String::new, String::from);
                (!arguments.is_empty()).then(|| arguments.join(&separator))
            }
            name => match name.parse::<usize>() {
                Ok(number) => arguments.get(number - 1).cloned(),
                Err(_) => self.state.variables.get(name).cloned(),
            },
        }
    }

    async fn parameter(
        &mut self,
        parameter: &Parameter,
        is_quoted: bool,
        fields: &mut Fields,
    ) -> Result<(), Halt> {
        let name = parameter.name.as_str();
        let is_list = name == "@" || (name == "*" && !is_quoted);
        if is_list && fields.splits && matches!(parameter.operation, Operation::Value) {
            for (index, argument) in self.state.arguments.clone().iter().enumerate() {
                fields.ended |= index > 0;
                self.add(argument, is_quoted, fields);
            }
            return Ok(());
        }
        let value = self.value(name);
        let text = match &parameter.operation {
            Operation::IfUnset {
                action,
                or_empty,
                word,
            } => {
                let is_unset = value.as_ref().is_none_or(|it| *or_empty && it.is_empty());
                match (action, is_unset) {
                    (UnsetAction::Alternative, true) => String::new(),
                    (UnsetAction::Default, true) | (UnsetAction::Alternative, false) => {
                        let place = if is_quoted {
                            Place::Quotes
                        } else {
                            Place::Operand
                        };
                        return self.expand(word, place, fields).await;
                    }
                    (UnsetAction::Assign, true) => {
                        let text = self.expand_text(word).await?;
                        let variables = &mut self.state.variables;
                        variables.insert(name.to_owned(), text.clone());
                        text
                    }
                    (UnsetAction::Fail, true) => {
                        let mut message = self.expand_text(word).await?;
                        if message.is_empty() {
                            "the parameter is not set".clone_into(&mut message);
                        }
                        return Err(Halt::Abort(format!("{name}: {message}")));
                    }
                    (_, false) => value.unwrap_or_default(),
                }
            }
            operation => {
                if value.is_none() && self.state.nounset && !"@*".contains(name) {
                    return Err(Halt::Abort(format!("{name}: the parameter is not set")));
                }
                self.operate(operation, value.unwrap_or_default()).await?
            }
        };
        self.add(&text, is_quoted, fields);
        Ok(())
    }

    async fn operate(&mut self, operation: &Operation, value: String) -> Result<String, Halt> {
        self.meter.charge(value.len())?;
        Ok(match operation {
            Operation::Value | Operation::IfUnset { .. } => value,
            Operation::Length => value.chars().count().to_string(),
            Operation::Remove {
                from_end,
                longest,
                pattern,
            } => {
                let pattern = self.expand_field(pattern).await?;
                let frame = match (from_end, longest) {
                    (false, _) => (r"\A(?:", ")(?P<kept>.*)"),
                    (true, true) => (r"\A(?P<kept>.*?)(?:", r")\z"),
                    (true, false) => (r"\A(?P<kept>.*)(?:", r")\z"),
                };
                let is_lazy = !from_end && !longest;
                let regex = pattern::compile(frame, &pattern, is_lazy, &mut self.meter)?;
                let kept = regex.captures(&value).and_then(|it| it.name("kept"));
                kept.map_or(value.as_str(), |it| it.as_str()).to_owned()
            }
            Operation::Replace { all, pattern, text } => {
                let pattern = self.expand_field(pattern).await?;
                let text = self.expand_text(text).await?;
                if pattern.is_empty() {
                    return Ok(value);
                }
                let regex = pattern::compile(("", ""), &pattern, false, &mut self.meter)?;
                let text = regex::NoExpand(&text);
                regex.replacen(&value, usize::from(!all), text).into_owned()
            }
            Operation::Substring { offset, length } => {
                let chars: Vec<char> = value.chars().collect();
                let count = i64::try_from(chars.len()).unwrap_or(i64::MAX);
                let from_end = |value: i64| if value < 0 { count + value } else { value };
                let start = from_end(self.evaluate(offset).await?);
                let end = match length {
                    None => count,
                    Some(length) => match self.evaluate(length).await? {
                        length if length < 0 => count + length,
                        length => start.saturating_add(length),
                    },
                };
                let position = |value: i64| usize::try_from(value.clamp(0, count)).unwrap_or(0);
                let (start, end) = (position(start), position(end));
                chars[start..end.max(start)].iter().collect()
            }
            Operation::ChangeCase { upper, all } => {
                let change = |text: &str| {
                    if *upper {
                        text.to_uppercase()
                    } else {
                        text.to_lowercase()
                    }
                };
                let first = value.chars().next().map_or(0, char::len_utf8);
                let (first, rest) = value.split_at(if *all { value.len() } else { first });
                change(first) + rest
            }
        })
    }
}

/// The fields that a word is expanded to.
struct Fields {
    all: Vec<Field>,
    length: usize,
    /// Unquoted values are split.
    splits: bool,
    /// The next text starts a new field.
    ended: bool,
}

impl Fields {
    fn new(splits: bool) -> Self {
        Self {
            all: Vec::new(),
            length: 0,
            splits,
            ended: false,
        }
    }

    fn push(&mut self, text: &str, is_active: bool) {
        if self.all.is_empty() || std::mem::take(&mut self.ended) {
            self.all.push(Field::new());
        }
        self.length += text.len();
        if let Some(last) = self.all.last_mut() {
            last.extend(text.chars().map(|ch| (ch, is_active)));
        }
    }

    fn split(&mut self, value: &str, separators: &str) {
        for (index, (field, is_ended)) in split(value, separators).into_iter().enumerate() {
            if index == 0 && field.is_empty() && is_ended && starts_with_blank(value, separators) {
                self.ended = true;
                continue;
            }
            self.push(field, true);
            self.ended = is_ended;
        }
    }
}

fn starts_with_blank(value: &str, separators: &str) -> bool {
    value.starts_with(|ch: char| ch.is_whitespace() && separators.contains(ch))
}

/// Splits a value at separators: runs of blanks count as one separator, others each count. Returns
/// the fields, and whether a separator follows them. A value that starts with blanks has an empty
/// first field.
fn split<'v>(value: &'v str, separators: &str) -> Vec<(&'v str, bool)> {
    let is_separator = |ch: char| separators.contains(ch);
    let is_blank = |ch: char| ch.is_whitespace() && is_separator(ch);
    let mut fields = Vec::new();
    let mut rest = value;
    while let Some(end) = rest.find(is_separator) {
        fields.push((&rest[..end], true));
        let blanks_end = rest[end..].trim_start_matches(is_blank);
        // One other separator may stand between blanks.
        rest = blanks_end.strip_prefix(is_separator).unwrap_or(blanks_end);
        rest = rest.trim_start_matches(is_blank);
    }
    if !rest.is_empty() {
        fields.push((rest, false));
    }
    fields
}

/// Splits a line into at most `count` fields, as `read` does; the last one has the rest.
pub(crate) fn split_line<'v>(line: &'v str, separators: &str, count: usize) -> Vec<&'v str> {
    let is_blank = |ch: char| ch.is_whitespace() && separators.contains(ch);
    let line = line.trim_matches(is_blank);
    let mut starts = split(line, separators).into_iter().map(|(field, _)| field);
    let mut fields: Vec<_> = starts.by_ref().take(count.saturating_sub(1)).collect();
    if let Some(last) = starts.next() {
        let offset = last.as_ptr().addr() - line.as_ptr().addr();
        fields.push(&line[offset..]);
    }
    fields
}
