//! Splits a script into tokens.

use std::iter::Peekable;
use std::str::Chars;

/// A token of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Token {
    Word(Word),
    Pipe,
    And,
    Or,
    /// `;` or a line break.
    Separator(char),
    /// `<`
    Input,
    /// `>` or `>>`, with the affected streams.
    Output(Streams, Mode),
    /// `2>&1`
    Duplicate(Stream, Stream),
}

/// The pieces of a word, joined after expansion.
pub(crate) type Word = Vec<Piece>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    Text { text: String, quoted: bool },
    Variable { name: String, quoted: bool },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Out,
    Err,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Streams {
    One(Stream),
    Both,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Replace,
    Append,
}

/// Tokenizes a script. The error describes why it is rejected.
pub(crate) fn tokens(script: &str) -> Result<Vec<Token>, String> {
    let mut lexer = Lexer {
        rest: script.chars().peekable(),
        tokens: Vec::new(),
    };
    while lexer.next()? {}
    Ok(lexer.tokens)
}

struct Lexer<'a> {
    rest: Peekable<Chars<'a>>,
    tokens: Vec<Token>,
}

impl Lexer<'_> {
    /// Reads one token; returns false at the end.
    fn next(&mut self) -> Result<bool, String> {
        let Some(&ch) = self.rest.peek() else {
            return Ok(false);
        };
        let token = match ch {
            ' ' | '\t' | '\r' => {
                self.rest.next();
                return Ok(true);
            }
            '#' => {
                while self.rest.next_if(|ch| *ch != '\n').is_some() {}
                return Ok(true);
            }
            '\\' if self.second() == Some('\n') => {
                self.rest.nth(1);
                return Ok(true);
            }
            '\n' | ';' => {
                self.rest.next();
                Token::Separator(ch)
            }
            '|' => self.pipe()?,
            '&' => self.and()?,
            '<' => self.input()?,
            '>' => self.output(Stream::Out)?,
            '1' | '2' if self.second() == Some('>') => {
                self.rest.next();
                let stream = if ch == '2' { Stream::Err } else { Stream::Out };
                self.output(stream)?
            }
            '0' if self.second() == Some('<') => {
                self.rest.next();
                self.input()?
            }
            '(' | ')' => return Err(format!("unexpected `{ch}`: subshells are not supported")),
            _ => Token::Word(self.word()?),
        };
        self.tokens.push(token);
        Ok(true)
    }

    fn second(&self) -> Option<char> {
        self.rest.clone().nth(1)
    }

    fn take(&mut self, ch: char) -> bool {
        self.rest.next_if_eq(&ch).is_some()
    }

    fn pipe(&mut self) -> Result<Token, String> {
        self.rest.next();
        match self.rest.peek() {
            Some('|') => {
                self.rest.next();
                Ok(Token::Or)
            }
            Some('&') => Err("`|&` is not supported; use `2>&1 |`".to_owned()),
            _ => Ok(Token::Pipe),
        }
    }

    fn and(&mut self) -> Result<Token, String> {
        self.rest.next();
        if self.take('&') {
            return Ok(Token::And);
        }
        if self.take('>') {
            return Ok(Token::Output(Streams::Both, self.mode()));
        }
        Err("`&` is not supported: there are no background jobs".to_owned())
    }

    fn input(&mut self) -> Result<Token, String> {
        self.rest.next();
        match self.rest.peek() {
            Some('<') => Err("`<<` is not supported: there are no here-documents".to_owned()),
            Some(ch @ ('(' | '&' | '>')) => Err(format!("`<{ch}` is not supported")),
            _ => Ok(Token::Input),
        }
    }

    fn output(&mut self, stream: Stream) -> Result<Token, String> {
        self.rest.next();
        if self.take('&') {
            return match self.rest.next() {
                Some('1') => Ok(Token::Duplicate(stream, Stream::Out)),
                Some('2') => Ok(Token::Duplicate(stream, Stream::Err)),
                _ => Err("expected 1 or 2 after `>&`".to_owned()),
            };
        }
        if matches!(self.rest.peek(), Some('(' | '|')) {
            return Err("`>(` and `>|` are not supported".to_owned());
        }
        Ok(Token::Output(Streams::One(stream), self.mode()))
    }

    /// Called after the first `>`.
    fn mode(&mut self) -> Mode {
        if self.take('>') {
            Mode::Append
        } else {
            Mode::Replace
        }
    }

    fn word(&mut self) -> Result<Word, String> {
        let mut word = Word::new();
        while let Some(&ch) = self.rest.peek() {
            match ch {
                ' ' | '\t' | '\r' | '\n' | ';' | '|' | '&' | '<' | '>' | '(' | ')' => break,
                '\'' => {
                    self.rest.next();
                    let text = self.until_quote()?;
                    word.push(Piece::Text { text, quoted: true });
                }
                '"' => {
                    self.rest.next();
                    self.double_quoted(&mut word)?;
                }
                '\\' => {
                    self.rest.next();
                    match self.rest.next() {
                        Some('\n') => {}
                        Some(ch) => push(&mut word, ch, true),
                        None => push(&mut word, '\\', true),
                    }
                }
                '$' => self.variable(&mut word, false)?,
                '`' => return Err(NO_SUBSTITUTION.to_owned()),
                _ => {
                    self.rest.next();
                    push(&mut word, ch, false);
                }
            }
        }
        Ok(word)
    }

    fn until_quote(&mut self) -> Result<String, String> {
        let mut text = String::new();
        loop {
            match self.rest.next() {
                Some('\'') => return Ok(text),
                Some(ch) => text.push(ch),
                None => return Err("unterminated `'`".to_owned()),
            }
        }
    }

    fn double_quoted(&mut self, word: &mut Word) -> Result<(), String> {
        // An empty pair of quotes is a word, too.
        let text = String::new();
        word.push(Piece::Text { text, quoted: true });
        loop {
            match self.rest.peek() {
                None => return Err("unterminated `\"`".to_owned()),
                Some('"') => {
                    self.rest.next();
                    return Ok(());
                }
                Some('$') => self.variable(word, true)?,
                Some('`') => return Err(NO_SUBSTITUTION.to_owned()),
                Some('\\') => {
                    self.rest.next();
                    match self.rest.next_if(|ch| "$\"\\`\n".contains(*ch)) {
                        Some('\n') => {}
                        Some(ch) => push(word, ch, true),
                        None => push(word, '\\', true),
                    }
                }
                Some(&ch) => {
                    self.rest.next();
                    push(word, ch, true);
                }
            }
        }
    }

    fn variable(&mut self, word: &mut Word, quoted: bool) -> Result<(), String> {
        self.rest.next();
        let name = match self.rest.peek() {
            Some('(') => return Err(NO_SUBSTITUTION.to_owned()),
            Some('?') => {
                self.rest.next();
                "?".to_owned()
            }
            Some('{') => {
                self.rest.next();
                let name = self.name();
                let is_name = !name.is_empty() && self.take('}');
                if !is_name {
                    return Err("only `${NAME}` is supported in `${…}`".to_owned());
                }
                name
            }
            Some(ch) if is_name_start(*ch) => self.name(),
            _ => {
                push(word, '$', quoted);
                return Ok(());
            }
        };
        word.push(Piece::Variable { name, quoted });
        Ok(())
    }

    fn name(&mut self) -> String {
        let mut name = String::new();
        if let Some(ch) = self.rest.next_if(|ch| is_name_start(*ch)) {
            name.push(ch);
            while let Some(ch) = self.rest.next_if(|ch| is_name_part(*ch)) {
                name.push(ch);
            }
        }
        name
    }
}

const NO_SUBSTITUTION: &str = "command substitution with `$(…)` or backticks is not supported; \
    use a file or a pipe";

fn is_name_start(ch: char) -> bool {
    ch.is_ascii_alphabetic() || ch == '_'
}

fn is_name_part(ch: char) -> bool {
    ch.is_ascii_alphanumeric() || ch == '_'
}

/// Whether a string is a valid variable name.
pub(crate) fn is_name(text: &str) -> bool {
    text.starts_with(is_name_start) && text.chars().all(is_name_part)
}

/// Appends a character to the last piece if its quoting matches, else starts a new
/// piece.
fn push(word: &mut Word, ch: char, quoted: bool) {
    if let Some(Piece::Text { text, quoted: last }) = word.last_mut()
        && *last == quoted
    {
        text.push(ch);
        return;
    }
    let text = ch.to_string();
    word.push(Piece::Text { text, quoted });
}
