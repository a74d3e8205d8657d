//! A script as commands.

use super::lex::{Mode, Piece, Stream, Streams, Token, Word, is_name, tokens};

/// The longest script.
const LONGEST: usize = 64 * 1024;

/// Words that mean more in other shells than a command's name.
const RESERVED: [&str; 15] = [
    "if", "for", "while", "until", "case", "function", "select", "time", "!", "{", "}", "[[",
    "then", "do", "eval",
];

/// Pipelines, in order.
pub(crate) type Script = Vec<Step>;

/// A pipeline, and when it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) when: When,
    pub(crate) pipeline: Vec<Command>,
}

/// When a pipeline runs, by what the last one that ran came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    Always,
    IfGood,
    IfBad,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) assignments: Vec<(String, Word)>,
    pub(crate) words: Vec<Word>,
    pub(crate) redirects: Vec<Redirect>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Redirect {
    In(Word),
    Out(Streams, Mode, Word),
    Same(Stream, Stream),
}

impl Command {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Reads a script, or says why it cannot be read.
pub(crate) fn parse(script: &str) -> Result<Script, String> {
    if script.len() > LONGEST {
        return Err(format!("the script is longer than {LONGEST} bytes"));
    }
    let mut steps = Script::new();
    let mut when = When::Always;
    let mut pipeline = Vec::new();
    let mut command = Command::default();
    // What cannot be followed by nothing.
    let mut open: Option<&str> = None;
    let mut tokens = tokens(script)?.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            Token::Word(word) => {
                add(&mut command, word)?;
                open = None;
            }
            Token::In | Token::Out(..) => {
                let Some(Token::Word(word)) = tokens.next_if(|it| matches!(it, Token::Word(_)))
                else {
                    return Err("after `<` and `>` comes the name of a file".to_owned());
                };
                command.redirects.push(match token {
                    Token::Out(streams, mode) => Redirect::Out(streams, mode, word),
                    _ => Redirect::In(word),
                });
                open = None;
            }
            Token::Same(stream, other) => {
                command.redirects.push(Redirect::Same(stream, other));
                open = None;
            }
            Token::Pipe => {
                finish(&mut pipeline, &mut command, "|")?;
                open = Some("|");
            }
            Token::And | Token::Or => {
                let (sign, next) = match token {
                    Token::And => ("&&", When::IfGood),
                    _ => ("||", When::IfBad),
                };
                finish(&mut pipeline, &mut command, sign)?;
                let pipeline = std::mem::take(&mut pipeline);
                steps.push(Step { when, pipeline });
                when = next;
                open = Some(sign);
            }
            // A line may end where more must come.
            Token::End('\n') if open.is_some() => {}
            Token::End(sign) => {
                if command.is_empty() && (open.is_some() || sign == ';') {
                    return Err(format!("there is nothing before a `{sign}`"));
                }
                if !command.is_empty() {
                    finish(&mut pipeline, &mut command, ";")?;
                    let pipeline = std::mem::take(&mut pipeline);
                    steps.push(Step { when, pipeline });
                }
                when = When::Always;
            }
        }
    }
    if let Some(sign) = open {
        return Err(format!("there is nothing after the last `{sign}`"));
    }
    if !command.is_empty() {
        finish(&mut pipeline, &mut command, ";")?;
        steps.push(Step { when, pipeline });
    }
    Ok(steps)
}

fn add(command: &mut Command, word: Word) -> Result<(), String> {
    if command.words.is_empty() {
        if let Some(assignment) = assignment(&word) {
            command.assignments.push(assignment);
            return Ok(());
        }
        if let [
            Piece::Text {
                text,
                quoted: false,
            },
        ] = word.as_slice()
            && RESERVED.contains(&text.as_str())
        {
            return Err(format!(
                "this shell has no `{text}`: one command after the other is all"
            ));
        }
    }
    command.words.push(word);
    Ok(())
}

/// `NAME=…`, where the name and the sign are not quoted.
fn assignment(word: &Word) -> Option<(String, Word)> {
    let Some(Piece::Text {
        text,
        quoted: false,
    }) = word.first()
    else {
        return None;
    };
    let (name, start) = text.split_once('=').filter(|(name, _)| is_name(name))?;
    let start = Piece::Text {
        text: start.to_owned(),
        quoted: false,
    };
    let value = [start].into_iter().chain(word[1..].iter().cloned());
    Some((name.to_owned(), value.collect()))
}

fn finish(pipeline: &mut Vec<Command>, command: &mut Command, sign: &str) -> Result<(), String> {
    if command.is_empty() {
        return Err(format!("there is nothing before a `{sign}`"));
    }
    pipeline.push(std::mem::take(command));
    Ok(())
}
