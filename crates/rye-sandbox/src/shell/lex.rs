//! A script in words and signs.

use std::iter::Peekable;
use std::str::Chars;

/// A part of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Token {
    Word(Word),
    Pipe,
    And,
    Or,
    /// `;` or the end of a line.
    End(char),
    /// `<`
    In,
    /// `>` or `>>`, of which streams
    Out(Streams, Mode),
    /// `2>&1`
    Same(Stream, Stream),
}

/// A word in pieces, to be joined once variables are known.
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

/// All of a script, or in words why it cannot be read.
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
    /// Reads one more token; false at the end.
    fn next(&mut self) -> Result<bool, String> {
        let Some(&sign) = self.rest.peek() else {
            return Ok(false);
        };
        let token = match sign {
            ' ' | '\t' | '\r' => {
                self.rest.next();
                return Ok(true);
            }
            '#' => {
                while self.rest.next_if(|sign| *sign != '\n').is_some() {}
                return Ok(true);
            }
            '\\' if self.second() == Some('\n') => {
                self.rest.nth(1);
                return Ok(true);
            }
            '\n' | ';' => {
                self.rest.next();
                Token::End(sign)
            }
            '|' => self.pipe()?,
            '&' => self.and()?,
            '<' => self.input()?,
            '>' => self.output(Stream::Out)?,
            '1' | '2' if self.second() == Some('>') => {
                self.rest.next();
                let stream = if sign == '2' {
                    Stream::Err
                } else {
                    Stream::Out
                };
                self.output(stream)?
            }
            '0' if self.second() == Some('<') => {
                self.rest.next();
                self.input()?
            }
            '(' | ')' => return Err(format!("unexpected `{sign}`: this shell has no subshells")),
            _ => Token::Word(self.word()?),
        };
        self.tokens.push(token);
        Ok(true)
    }

    fn second(&self) -> Option<char> {
        self.rest.clone().nth(1)
    }

    fn take(&mut self, sign: char) -> bool {
        self.rest.next_if_eq(&sign).is_some()
    }

    fn pipe(&mut self) -> Result<Token, String> {
        self.rest.next();
        match self.rest.peek() {
            Some('|') => {
                self.rest.next();
                Ok(Token::Or)
            }
            Some('&') => Err("this shell has no `|&`; write `2>&1 |`".to_owned()),
            _ => Ok(Token::Pipe),
        }
    }

    fn and(&mut self) -> Result<Token, String> {
        self.rest.next();
        if self.take('&') {
            return Ok(Token::And);
        }
        if self.take('>') {
            return Ok(Token::Out(Streams::Both, self.mode()));
        }
        Err("this shell runs nothing in the background: `&` is not known".to_owned())
    }

    fn input(&mut self) -> Result<Token, String> {
        self.rest.next();
        match self.rest.peek() {
            Some('<') => Err("this shell has no here-documents: `<<` is not known".to_owned()),
            Some(sign @ ('(' | '&' | '>')) => Err(format!("this shell has no `<{sign}`")),
            _ => Ok(Token::In),
        }
    }

    fn output(&mut self, stream: Stream) -> Result<Token, String> {
        self.rest.next();
        if self.take('&') {
            return match self.rest.next() {
                Some('1') => Ok(Token::Same(stream, Stream::Out)),
                Some('2') => Ok(Token::Same(stream, Stream::Err)),
                _ => Err("after `>&` comes 1 or 2".to_owned()),
            };
        }
        if matches!(self.rest.peek(), Some('(' | '|')) {
            return Err("this shell has no `>(` and no `>|`".to_owned());
        }
        Ok(Token::Out(Streams::One(stream), self.mode()))
    }

    /// After the first `>`.
    fn mode(&mut self) -> Mode {
        if self.take('>') {
            Mode::Append
        } else {
            Mode::Replace
        }
    }

    fn word(&mut self) -> Result<Word, String> {
        let mut word = Word::new();
        while let Some(&sign) = self.rest.peek() {
            match sign {
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
                        Some(sign) => push(&mut word, sign, true),
                        None => push(&mut word, '\\', true),
                    }
                }
                '$' => self.variable(&mut word, false)?,
                '`' => return Err(NO_SUBSTITUTION.to_owned()),
                _ => {
                    self.rest.next();
                    push(&mut word, sign, false);
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
                Some(sign) => text.push(sign),
                None => return Err("a `'` is not closed".to_owned()),
            }
        }
    }

    fn double_quoted(&mut self, word: &mut Word) -> Result<(), String> {
        // There is a word even if there is nothing in it.
        let text = String::new();
        word.push(Piece::Text { text, quoted: true });
        loop {
            match self.rest.peek() {
                None => return Err("a `\"` is not closed".to_owned()),
                Some('"') => {
                    self.rest.next();
                    return Ok(());
                }
                Some('$') => self.variable(word, true)?,
                Some('`') => return Err(NO_SUBSTITUTION.to_owned()),
                Some('\\') => {
                    self.rest.next();
                    match self.rest.next_if(|sign| "$\"\\`\n".contains(*sign)) {
                        Some('\n') => {}
                        Some(sign) => push(word, sign, true),
                        None => push(word, '\\', true),
                    }
                }
                Some(&sign) => {
                    self.rest.next();
                    push(word, sign, true);
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
                    return Err("of `${…}` this shell knows `${NAME}` alone".to_owned());
                }
                name
            }
            Some(sign) if is_name_start(*sign) => self.name(),
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
        if let Some(sign) = self.rest.next_if(|sign| is_name_start(*sign)) {
            name.push(sign);
            while let Some(sign) = self.rest.next_if(|sign| is_name_part(*sign)) {
                name.push(sign);
            }
        }
        name
    }
}

const NO_SUBSTITUTION: &str = "this shell has no command substitution: `$(…)` and backticks are not known; \
     write to a file and read it, or use a pipe";

fn is_name_start(sign: char) -> bool {
    sign.is_ascii_alphabetic() || sign == '_'
}

fn is_name_part(sign: char) -> bool {
    sign.is_ascii_alphanumeric() || sign == '_'
}

/// Whether a text can name a variable.
pub(crate) fn is_name(text: &str) -> bool {
    text.starts_with(is_name_start) && text.chars().all(is_name_part)
}

/// Adds a sign to the last piece, or to a new one.
fn push(word: &mut Word, sign: char, quoted: bool) {
    if let Some(Piece::Text { text, quoted: last }) = word.last_mut()
        && *last == quoted
    {
        text.push(sign);
        return;
    }
    let text = sign.to_string();
    word.push(Piece::Text { text, quoted });
}
