//! Parses words: quotes, parameters and substitutions.

use std::sync::Arc;

use super::{Parsed, Parser, ends_word, is_name_part, is_name_start};
use crate::shell::syntax::{Operation, Parameter, Piece, UnsetAction, Word};

/// Which quoting rules apply to a text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Quoting {
    /// Outside of quotes.
    None,
    /// Between double quotes.
    Double,
    /// In a here-document or an expression, where quotes are ordinary characters.
    Verbatim,
}

impl Parser {
    pub(super) fn word(&mut self) -> Parsed<Word> {
        self.pieces(Quoting::None, &|it| it.peek().is_none_or(ends_word))
    }

    /// Parses an arithmetic expression and the text that ends it.
    pub(super) fn expression(&mut self, end: &str) -> Parsed<Word> {
        let mut word = Word::new();
        loop {
            let part = self.pieces(Quoting::Verbatim, &|it| {
                it.starts_with(end) || matches!(it.peek(), None | Some('('))
            })?;
            word.extend(part);
            if self.take(end) {
                return Ok(word);
            }
            if !self.take("(") {
                return Err(format!("expected `{end}`"));
            }
            let inner = self.nested(|parser| parser.expression(")"))?;
            word.push(literal("(", true));
            word.extend(inner);
            word.push(literal(")", true));
        }
    }

    /// Parses the pieces of a word up to its end.
    pub(super) fn pieces(
        &mut self,
        quoting: Quoting,
        is_end: &dyn Fn(&Self) -> bool,
    ) -> Parsed<Word> {
        let quoted = quoting != Quoting::None;
        let mut word = Word::new();
        while !is_end(self) {
            let Some(ch) = self.next() else {
                return Err(match quoting {
                    Quoting::Double => "unterminated `\"`".to_owned(),
                    _ => self.unexpected(),
                });
            };
            match ch {
                '\'' if !quoted => {
                    let text = self.take_while(|ch| ch != '\'');
                    if !self.take("'") {
                        return Err("unterminated `'`".to_owned());
                    }
                    word.push(literal(&text, true));
                }
                '"' if quoting != Quoting::Verbatim => {
                    let inner = self.nested(|parser| {
                        parser.pieces(Quoting::Double, &|it| it.peek() == Some('"'))
                    })?;
                    self.take("\"");
                    // An empty pair of quotes is a word, too.
                    word.extend(inner.is_empty().then(|| literal("", true)));
                    word.extend(inner);
                }
                '\\' => match self.peek() {
                    Some('\n') => self.at += 1,
                    Some(ch) if is_escapable(ch, quoting) => {
                        self.at += 1;
                        push(&mut word, ch, true);
                    }
                    _ => push(&mut word, '\\', true),
                },
                '$' => match self.nested(|parser| parser.substitution(quoted))? {
                    Some(piece) => word.push(piece),
                    None => push(&mut word, '$', quoted),
                },
                '`' => word.push(self.backticks(quoted)?),
                ch => push(&mut word, ch, quoted),
            }
        }
        Ok(word)
    }

    /// Parses what follows a `$`.
    fn substitution(&mut self, quoted: bool) -> Parsed<Option<Piece>> {
        if self.take("((") {
            let expression = Arc::new(self.expression("))")?);
            return Ok(Some(Piece::Arithmetic { expression, quoted }));
        }
        if self.take("(") {
            let list = Arc::new(self.list()?);
            self.close_parenthesis()?;
            return Ok(Some(Piece::Command { list, quoted }));
        }
        let parameter = if self.take("{") {
            self.braced_parameter(quoted)?
        } else {
            let name = match self.peek() {
                Some(ch) if is_name_start(ch) => self.take_while(is_name_part),
                Some(ch) if "?#@*".contains(ch) || ch.is_ascii_digit() => {
                    self.at += 1;
                    ch.to_string()
                }
                Some('\'') if !quoted => return Err("`$'…'` is not supported".to_owned()),
                _ => return Ok(None),
            };
            let operation = Operation::Value;
            Parameter { name, operation }
        };
        let parameter = Arc::new(parameter);
        Ok(Some(Piece::Parameter { parameter, quoted }))
    }

    fn backticks(&mut self, quoted: bool) -> Parsed<Piece> {
        let mut script = String::new();
        loop {
            match self.next() {
                Some('`') => break,
                Some('\\') if self.peek().is_some_and(|ch| "`$\\".contains(ch)) => {
                    script.extend(self.next());
                }
                Some(ch) => script.push(ch),
                None => return Err("unterminated backtick".to_owned()),
            }
        }
        let list = Arc::new(self.part(&script, Self::script)?);
        Ok(Piece::Command { list, quoted })
    }

    /// Parses `${…}` after the opening brace.
    fn braced_parameter(&mut self, quoted: bool) -> Parsed<Parameter> {
        let measures = self.starts_with("#") && !self.starts_with("#}");
        if measures {
            self.at += 1;
        }
        let name = match self.peek() {
            Some(ch) if is_name_start(ch) => self.take_while(is_name_part),
            Some(ch) if ch.is_ascii_digit() => self.take_while(|ch| ch.is_ascii_digit()),
            Some(ch) if "?#@*".contains(ch) => {
                self.at += 1;
                ch.to_string()
            }
            _ => return Err("expected a name after `${`".to_owned()),
        };
        let operation = if measures {
            Operation::Length
        } else {
            self.operation(quoted)?
        };
        if self.take("}") {
            return Ok(Parameter { name, operation });
        }
        Err(format!("`${{{name}…}}`: this form is not supported"))
    }

    fn operation(&mut self, quoted: bool) -> Parsed<Operation> {
        let or_empty = self.starts_with(":");
        let sign = self.chars.get(self.at + usize::from(or_empty));
        let action = match sign {
            Some('-') => Some(UnsetAction::Default),
            Some('=') => Some(UnsetAction::Assign),
            Some('?') => Some(UnsetAction::Fail),
            Some('+') => Some(UnsetAction::Alternative),
            _ => None,
        };
        if let Some(action) = action {
            self.at += 1 + usize::from(or_empty);
            let word = self.operand(quoted, "}")?;
            return Ok(Operation::IfUnset {
                action,
                or_empty,
                word,
            });
        }
        if self.take(":") {
            let offset = self.operand(true, ":")?;
            let length = if self.take(":") {
                Some(self.operand(true, "}")?)
            } else {
                None
            };
            return Ok(Operation::Substring { offset, length });
        }
        for (sign, longest_sign, from_end) in [("#", "##", false), ("%", "%%", true)] {
            let longest = self.take(longest_sign);
            if longest || self.take(sign) {
                return Ok(Operation::Remove {
                    from_end,
                    longest,
                    pattern: self.operand(false, "}")?,
                });
            }
        }
        for (sign, all_sign, upper) in [("^", "^^", true), (",", ",,", false)] {
            let all = self.take(all_sign);
            if all || self.take(sign) {
                return Ok(Operation::ChangeCase { upper, all });
            }
        }
        if self.take("/") {
            let all = self.take("/");
            let pattern = self.operand(false, "/")?;
            let text = if self.take("/") {
                self.operand(quoted, "}")?
            } else {
                Word::new()
            };
            return Ok(Operation::Replace { all, pattern, text });
        }
        Ok(Operation::Value)
    }

    /// Parses a word in `${…}` up to its end or the closing brace.
    fn operand(&mut self, quoted: bool, end: &str) -> Parsed<Word> {
        let quoting = if quoted {
            Quoting::Double
        } else {
            Quoting::None
        };
        self.pieces(quoting, &|it| it.starts_with(end) || it.starts_with("}"))
    }
}

/// Whether a backslash makes this character ordinary.
fn is_escapable(ch: char, quoting: Quoting) -> bool {
    match quoting {
        Quoting::None => true,
        Quoting::Double => "$`\"\\".contains(ch),
        Quoting::Verbatim => "$`\\".contains(ch),
    }
}

pub(super) fn literal(text: &str, quoted: bool) -> Piece {
    Piece::Text {
        text: text.to_owned(),
        quoted,
    }
}

/// Appends a character to the last piece if its quoting matches, else starts a new piece.
fn push(word: &mut Word, ch: char, quoted: bool) {
    if let Some(Piece::Text { text, quoted: last }) = word.last_mut()
        && *last == quoted
    {
        text.push(ch);
        return;
    }
    word.push(literal(&ch.to_string(), quoted));
}
