//! Parses a script. Everything that is not supported is an error before anything runs.

mod words;

use std::mem::take;
use std::sync::{Arc, OnceLock};

use self::words::{Quoting, literal};
use super::syntax::{
    Assignment, Command, CommandKind, List, Mode, Piece, Pipeline, Redirect, RunCondition, Step,
    Stream, Streams, Word,
};

/// Maximum length of a script, in bytes.
const MAX_SCRIPT_LEN: usize = 64 * 1024;
/// Maximum depth of nested commands, substitutions and quotes.
const MAX_NESTING: usize = 40;

/// Words that end a list of commands.
const CLOSING: [&str; 8] = ["then", "elif", "else", "fi", "do", "done", "esac", "}"];
/// Keywords of other shells, and what to use instead.
const UNSUPPORTED: [(&str, &str); 4] = [
    ("[[", "use `[ … ]` or `case`"),
    ("select", "there is no terminal"),
    ("time", "run the command without it"),
    ("coproc", "use a pipe"),
];

/// Parses a script. The error names the line and the reason.
pub(crate) fn parse(script: &str) -> Result<List, String> {
    if script.len() > MAX_SCRIPT_LEN {
        return Err(format!("the script is longer than {MAX_SCRIPT_LEN} bytes"));
    }
    let mut parser = Parser {
        chars: script.chars().collect(),
        at: 0,
        depth: 0,
        here_documents: Vec::new(),
    };
    let parsed = parser.script();
    parsed.map_err(|what| format!("line {}: {what}", parser.line()))
}

/// Whether a string is a valid variable name.
pub(crate) fn is_name(text: &str) -> bool {
    text.starts_with(is_name_start) && text.chars().all(is_name_part)
}

fn is_name_start(ch: char) -> bool {
    ch.is_ascii_alphabetic() || ch == '_'
}

fn is_name_part(ch: char) -> bool {
    ch.is_ascii_alphanumeric() || ch == '_'
}

/// Whether a character ends an unquoted word.
fn ends_word(ch: char) -> bool {
    matches!(
        ch,
        ' ' | '\t' | '\r' | '\n' | ';' | '|' | '&' | '<' | '>' | '(' | ')'
    )
}

/// A here-document whose text has not been read yet.
struct HereDocument {
    end: String,
    is_quoted: bool,
    strips_tabs: bool,
    text: Arc<OnceLock<Word>>,
}

struct Parser {
    chars: Vec<char>,
    at: usize,
    depth: usize,
    here_documents: Vec<HereDocument>,
}

type Parsed<T> = Result<T, String>;

impl Parser {
    fn script(&mut self) -> Parsed<List> {
        let list = self.list()?;
        self.read_here_documents()?;
        match self.closing_word() {
            Some(word) => Err(format!("unexpected `{word}`")),
            None if self.at < self.chars.len() => Err(self.unexpected()),
            None => Ok(list),
        }
    }

    /// Parses a part of this script, such as the text between backticks.
    fn part<T>(&self, text: &str, parse: impl Fn(&mut Self) -> Parsed<T>) -> Parsed<T> {
        let mut part = Self {
            chars: text.chars().collect(),
            at: 0,
            depth: self.depth,
            here_documents: Vec::new(),
        };
        part.nested(parse)
    }

    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        self.depth += 1;
        if self.depth > MAX_NESTING {
            return Err(format!("nested more than {MAX_NESTING} levels deep"));
        }
        let parsed = parse(self)?;
        self.depth -= 1;
        Ok(parsed)
    }

    fn line(&self) -> usize {
        let read = &self.chars[..self.at.min(self.chars.len())];
        1 + read.iter().filter(|ch| **ch == '\n').count()
    }

    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let ch = self.peek()?;
        self.at += 1;
        Some(ch)
    }

    fn starts_with(&self, text: &str) -> bool {
        let mut rest = self.chars[self.at..].iter().copied();
        text.chars().all(|ch| rest.next() == Some(ch))
    }

    fn take(&mut self, text: &str) -> bool {
        let found = self.starts_with(text);
        if found {
            self.at += text.chars().count();
        }
        found
    }

    fn take_while(&mut self, accept: impl Fn(char) -> bool) -> String {
        let start = self.at;
        while self.peek().is_some_and(&accept) {
            self.at += 1;
        }
        self.chars[start..self.at].iter().collect()
    }

    fn unexpected(&self) -> String {
        match self.peek() {
            Some('&') => "`&` is not supported: there are no background jobs".to_owned(),
            Some('\n') => "unexpected end of the line".to_owned(),
            Some(ch) => format!("unexpected `{ch}`"),
            None => "unexpected end of the script".to_owned(),
        }
    }

    /// Skips blanks and comments.
    fn skip_blanks(&mut self) {
        loop {
            match self.peek() {
                Some(' ' | '\t' | '\r') => self.at += 1,
                Some('\\') if self.starts_with("\\\n") => self.at += 2,
                Some('#') => {
                    self.take_while(|ch| ch != '\n');
                }
                _ => return,
            }
        }
    }

    /// Skips blanks, comments and line breaks.
    fn skip_lines(&mut self) -> Parsed<()> {
        self.skip_blanks();
        while self.take("\n") {
            self.read_here_documents()?;
            self.skip_blanks();
        }
        Ok(())
    }

    /// The unquoted word at the current position.
    fn plain_word(&self) -> String {
        let rest = self.chars[self.at..].iter().copied();
        rest.take_while(|ch| !ends_word(*ch)).collect()
    }

    fn closing_word(&self) -> Option<&'static str> {
        let word = self.plain_word();
        CLOSING.into_iter().find(|it| *it == word)
    }

    fn take_keyword(&mut self, keyword: &str) -> bool {
        self.plain_word() == keyword && self.take(keyword)
    }

    fn expect(&mut self, keyword: &str, after: &str) -> Parsed<()> {
        self.skip_lines()?;
        if self.take_keyword(keyword) {
            return Ok(());
        }
        let unexpected = self.unexpected();
        Err(format!(
            "expected `{keyword}` after `{after}`: {unexpected}"
        ))
    }

    /// Parses commands up to a closing word, `)`, `;;` or the end.
    fn list(&mut self) -> Parsed<List> {
        self.nested(|parser| {
            let mut steps = List::new();
            loop {
                parser.skip_lines()?;
                let at_end = matches!(parser.peek(), None | Some(')'))
                    || parser.starts_with(";;")
                    || parser.closing_word().is_some();
                if at_end {
                    return Ok(steps);
                }
                parser.and_or(&mut steps)?;
                parser.skip_blanks();
                match parser.peek() {
                    Some(';') if !parser.starts_with(";;") => parser.at += 1,
                    Some('\n' | ')' | ';') | None => {}
                    _ if parser.closing_word().is_some() => {}
                    _ => return Err(parser.unexpected()),
                }
            }
        })
    }

    /// Like [`Self::list`], but with at least one command.
    fn commands(&mut self, after: &str) -> Parsed<List> {
        let list = self.list()?;
        if list.is_empty() {
            return Err(format!("expected a command after `{after}`"));
        }
        Ok(list)
    }

    /// Parses pipelines that are joined with `&&` and `||`.
    fn and_or(&mut self, steps: &mut List) -> Parsed<()> {
        let mut condition = RunCondition::Always;
        loop {
            let pipeline = self.pipeline()?;
            steps.push(Step {
                condition,
                pipeline,
            });
            self.skip_blanks();
            condition = if self.take("&&") {
                RunCondition::OnSuccess
            } else if self.take("||") {
                RunCondition::OnFailure
            } else {
                return Ok(());
            };
            self.skip_lines()?;
        }
    }

    fn pipeline(&mut self) -> Parsed<Pipeline> {
        let mut pipeline = Pipeline::default();
        while self.take_keyword("!") {
            pipeline.is_negated = !pipeline.is_negated;
            self.skip_blanks();
        }
        loop {
            let mut command = self.command()?;
            self.skip_blanks();
            let is_piped = !self.starts_with("||") && self.take("|");
            if is_piped && self.take("&") {
                let both = Redirect::Duplicate(Stream::Err, Stream::Out);
                command.redirects.push(both);
            }
            pipeline.commands.push(command);
            if !is_piped {
                return Ok(pipeline);
            }
            self.skip_lines()?;
        }
    }

    fn command(&mut self) -> Parsed<Command> {
        let Some(kind) = self.compound()? else {
            return self.simple();
        };
        let mut command = Command {
            kind,
            redirects: Vec::new(),
        };
        loop {
            self.skip_blanks();
            match self.redirect()? {
                Some(redirect) => command.redirects.push(redirect),
                None => return Ok(command),
            }
        }
    }

    fn compound(&mut self) -> Parsed<Option<CommandKind>> {
        if self.take("((") {
            let expression = self.expression("))")?;
            return Ok(Some(CommandKind::Arithmetic(expression)));
        }
        if self.take("(") {
            let list = self.commands("(")?;
            self.close_parenthesis()?;
            return Ok(Some(CommandKind::Subshell(list)));
        }
        let word = self.plain_word();
        if let Some((keyword, hint)) = UNSUPPORTED.iter().find(|it| it.0 == word) {
            return Err(format!("`{keyword}` is not supported: {hint}"));
        }
        if CLOSING.contains(&word.as_str()) {
            return Err(format!("unexpected `{word}`"));
        }
        let kind = match word.as_str() {
            "{" => {
                self.take("{");
                let list = self.commands("{")?;
                self.expect("}", "{")?;
                CommandKind::Group(list)
            }
            "if" => self.branches()?,
            "while" | "until" => {
                self.take(&word);
                let condition = self.commands(&word)?;
                CommandKind::While {
                    is_until: word == "until",
                    condition,
                    body: self.body(&word)?,
                }
            }
            "for" => self.for_loop()?,
            "case" => self.case()?,
            "function" => {
                self.take("function");
                self.skip_blanks();
                let name = self.plain_word();
                self.take(&name);
                self.skip_blanks();
                if self.take("(") {
                    self.close_parenthesis()?;
                }
                self.function(name)?
            }
            _ => return Ok(None),
        };
        Ok(Some(kind))
    }

    fn close_parenthesis(&mut self) -> Parsed<()> {
        self.skip_lines()?;
        if self.take(")") {
            return Ok(());
        }
        Err(format!("expected `)`: {}", self.unexpected()))
    }

    /// Parses `do …; done`.
    fn body(&mut self, keyword: &str) -> Parsed<List> {
        self.expect("do", keyword)?;
        let body = self.commands("do")?;
        self.expect("done", keyword)?;
        Ok(body)
    }

    fn branches(&mut self) -> Parsed<CommandKind> {
        let mut branches = Vec::new();
        self.take("if");
        loop {
            let condition = self.commands("if")?;
            self.expect("then", "if")?;
            branches.push((Some(condition), self.commands("then")?));
            if !self.take_keyword("elif") {
                break;
            }
        }
        if self.take_keyword("else") {
            branches.push((None, self.commands("else")?));
        }
        self.expect("fi", "if")?;
        Ok(CommandKind::If(branches))
    }

    fn for_loop(&mut self) -> Parsed<CommandKind> {
        self.take("for");
        self.skip_blanks();
        if self.take("((") {
            let expressions = [
                self.expression(";")?,
                self.expression(";")?,
                self.expression("))")?,
            ];
            self.skip_separator();
            let body = self.body("for")?;
            return Ok(CommandKind::ForArithmetic { expressions, body });
        }
        let name = self.take_while(is_name_part);
        if !is_name(&name) {
            return Err("expected a variable name after `for`".to_owned());
        }
        self.skip_lines()?;
        let words = if self.take_keyword("in") {
            let mut words = Vec::new();
            loop {
                self.skip_blanks();
                if self.peek().is_none_or(ends_word) {
                    break Some(words);
                }
                words.push(self.word()?);
            }
        } else {
            None
        };
        self.skip_separator();
        let body = self.body("for")?;
        Ok(CommandKind::For { name, words, body })
    }

    fn skip_separator(&mut self) {
        self.skip_blanks();
        if !self.starts_with(";;") {
            self.take(";");
        }
    }

    fn case(&mut self) -> Parsed<CommandKind> {
        self.take("case");
        self.skip_blanks();
        let subject = self.word()?;
        if subject.is_empty() {
            return Err("expected a word after `case`".to_owned());
        }
        self.expect("in", "case")?;
        let mut arms = Vec::new();
        loop {
            self.skip_lines()?;
            if self.take_keyword("esac") {
                return Ok(CommandKind::Case { subject, arms });
            }
            self.take("(");
            let mut patterns = Vec::new();
            loop {
                self.skip_blanks();
                patterns.push(self.word()?);
                self.skip_blanks();
                if patterns.last().is_some_and(Vec::is_empty) {
                    return Err(format!("expected a pattern: {}", self.unexpected()));
                }
                if !self.take("|") {
                    break;
                }
            }
            self.close_parenthesis()?;
            arms.push((patterns, self.list()?));
            self.skip_lines()?;
            if !self.take(";;") && self.plain_word() != "esac" {
                return Err(format!("expected `;;`: {}", self.unexpected()));
            }
        }
    }

    fn function(&mut self, name: String) -> Parsed<CommandKind> {
        if !is_name(&name.replace('-', "_")) {
            return Err(format!("`{name}` is not a valid function name"));
        }
        self.skip_lines()?;
        let body = self.nested(Self::command)?;
        if matches!(body.kind, CommandKind::Simple { .. }) {
            return Err(format!("expected `{{` after `{name}()`"));
        }
        let body = Arc::new(body);
        Ok(CommandKind::Function { name, body })
    }

    fn simple(&mut self) -> Parsed<Command> {
        let (mut assignments, mut words) = (Vec::new(), Vec::new());
        let mut redirects = Vec::new();
        loop {
            self.skip_blanks();
            if let Some(redirect) = self.redirect()? {
                redirects.push(redirect);
                continue;
            }
            if self.peek() == Some('(') && words.len() == 1 && redirects.is_empty() {
                return self.function_command(&words[0]);
            }
            if self.peek().is_none_or(ends_word) {
                break;
            }
            let assignment = if words.is_empty() {
                self.assignment()?
            } else {
                None
            };
            match assignment {
                Some(assignment) => assignments.push(assignment),
                None => words.push(self.word()?),
            }
        }
        if assignments.is_empty() && words.is_empty() && redirects.is_empty() {
            return Err(format!("expected a command: {}", self.unexpected()));
        }
        Ok(Command {
            kind: CommandKind::Simple { assignments, words },
            redirects,
        })
    }

    /// Parses `() { …; }` after the name.
    fn function_command(&mut self, name: &Word) -> Parsed<Command> {
        self.take("(");
        self.close_parenthesis()?;
        let name = match name.as_slice() {
            [
                Piece::Text {
                    text,
                    quoted: false,
                },
            ] => text.clone(),
            _ => return Err("expected a plain function name".to_owned()),
        };
        Ok(Command {
            kind: self.function(name)?,
            redirects: Vec::new(),
        })
    }

    fn assignment(&mut self) -> Parsed<Option<Assignment>> {
        let start = self.at;
        let name = self.take_while(is_name_part);
        let appends = self.starts_with("+=");
        if !is_name(&name) || !(self.take("+=") || self.take("=")) {
            self.at = start;
            return Ok(None);
        }
        if self.peek() == Some('(') {
            return Err("arrays are not supported".to_owned());
        }
        let value = self.word()?;
        Ok(Some(Assignment {
            name,
            appends,
            value,
        }))
    }

    fn redirect(&mut self) -> Parsed<Option<Redirect>> {
        let start = self.at;
        let number = self.take_while(|ch| ch.is_ascii_digit());
        if self.take("&>") {
            let mode = self.mode();
            return Ok(Some(Redirect::Output(Streams::Both, mode, self.target()?)));
        }
        let is_input = self.take("<");
        if !is_input && !self.take(">") {
            self.at = start;
            return Ok(None);
        }
        let stream = match (number.as_str(), is_input) {
            ("" | "0", true) => return self.input().map(Some),
            ("" | "1", false) => Stream::Out,
            ("2", false) => Stream::Err,
            _ => return Err(format!("stream {number} is not supported here")),
        };
        if self.take("&") {
            let other = match self.next() {
                Some('1') => Stream::Out,
                Some('2') => Stream::Err,
                _ => return Err("expected 1 or 2 after `>&`".to_owned()),
            };
            return Ok(Some(Redirect::Duplicate(stream, other)));
        }
        let mode = self.mode();
        self.take("|");
        let target = self.target()?;
        Ok(Some(Redirect::Output(Streams::One(stream), mode, target)))
    }

    /// Called after the first `>`.
    fn mode(&mut self) -> Mode {
        if self.take(">") {
            Mode::Append
        } else {
            Mode::Replace
        }
    }

    fn target(&mut self) -> Parsed<Word> {
        self.skip_blanks();
        let word = self.word()?;
        if word.is_empty() {
            return Err("expected a file name after `<` or `>`".to_owned());
        }
        Ok(word)
    }

    /// Called after the first `<`.
    fn input(&mut self) -> Parsed<Redirect> {
        if self.take("<<") {
            let mut word = self.target()?;
            word.push(literal("\n", true));
            return Ok(Redirect::HereDocument(Arc::new(OnceLock::from(word))));
        }
        if !self.take("<") {
            return match self.peek() {
                Some(ch @ ('(' | '&' | '>')) => Err(format!("`<{ch}` is not supported")),
                _ => Ok(Redirect::Input(self.target()?)),
            };
        }
        let strips_tabs = self.take("-");
        let (mut end, mut is_quoted) = (String::new(), false);
        for piece in self.target()? {
            let Piece::Text { text, quoted } = piece else {
                return Err("the end of a here-document must be plain text".to_owned());
            };
            end.push_str(&text);
            is_quoted |= quoted;
        }
        let text = Arc::default();
        self.here_documents.push(HereDocument {
            end,
            is_quoted,
            strips_tabs,
            text: Arc::clone(&text),
        });
        Ok(Redirect::HereDocument(text))
    }

    /// Reads the here-documents that start after the current line break.
    fn read_here_documents(&mut self) -> Parsed<()> {
        for document in take(&mut self.here_documents) {
            let mut body = String::new();
            loop {
                if self.peek().is_none() {
                    let end = document.end;
                    return Err(format!("the here-document does not end with `{end}`"));
                }
                let mut line = self.take_while(|ch| ch != '\n');
                self.take("\n");
                if document.strips_tabs {
                    line = line.trim_start_matches('\t').to_owned();
                }
                if line == document.end {
                    break;
                }
                body.push_str(&line);
                body.push('\n');
            }
            let text = if document.is_quoted {
                vec![literal(&body, true)]
            } else {
                self.part(&body, |part| {
                    part.pieces(Quoting::Verbatim, &|it| it.peek().is_none())
                })?
            };
            let _ = document.text.set(text);
        }
        Ok(())
    }
}
