//! Parses a script into commands.

use super::lex::{Mode, Piece, Stream, Streams, Token, Word, is_name, tokens};

/// Maximum length of a script, in bytes.
const MAX_SCRIPT_LEN: usize = 64 * 1024;

/// Keywords of other shells that are rejected as command names.
const RESERVED: [&str; 15] = [
    "if", "for", "while", "until", "case", "function", "select", "time", "!", "{", "}", "[[",
    "then", "do", "eval",
];

/// The pipelines of a script, in order.
pub(crate) type Script = Vec<Step>;

/// A pipeline with its condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) condition: RunCondition,
    pub(crate) pipeline: Vec<Command>,
}

/// When a pipeline runs, depending on the status of the previous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunCondition {
    Always,
    OnSuccess,
    OnFailure,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) assignments: Vec<(String, Word)>,
    pub(crate) words: Vec<Word>,
    pub(crate) redirects: Vec<Redirect>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Redirect {
    Input(Word),
    Output(Streams, Mode, Word),
    Duplicate(Stream, Stream),
}

impl Command {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Parses a script. The error describes why it is rejected.
pub(crate) fn parse(script: &str) -> Result<Script, String> {
    if script.len() > MAX_SCRIPT_LEN {
        return Err(format!("the script is longer than {MAX_SCRIPT_LEN} bytes"));
    }
    let mut steps = Script::new();
    let mut condition = RunCondition::Always;
    let mut pipeline = Vec::new();
    let mut command = Command::default();
    // The operator that still needs a right-hand side.
    let mut open: Option<&str> = None;
    let mut tokens = tokens(script)?.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            Token::Word(word) => {
                add(&mut command, word)?;
                open = None;
            }
            Token::Input | Token::Output(..) => {
                let Some(Token::Word(word)) = tokens.next_if(|it| matches!(it, Token::Word(_)))
                else {
                    return Err("expected a file name after `<` or `>`".to_owned());
                };
                command.redirects.push(match token {
                    Token::Output(streams, mode) => Redirect::Output(streams, mode, word),
                    _ => Redirect::Input(word),
                });
                open = None;
            }
            Token::Duplicate(stream, other) => {
                command.redirects.push(Redirect::Duplicate(stream, other));
                open = None;
            }
            Token::Pipe => {
                finish(&mut pipeline, &mut command, "|")?;
                open = Some("|");
            }
            Token::And | Token::Or => {
                let (operator, next) = match token {
                    Token::And => ("&&", RunCondition::OnSuccess),
                    _ => ("||", RunCondition::OnFailure),
                };
                finish(&mut pipeline, &mut command, operator)?;
                let pipeline = std::mem::take(&mut pipeline);
                steps.push(Step {
                    condition,
                    pipeline,
                });
                condition = next;
                open = Some(operator);
            }
            // A line may end after an operator.
            Token::Separator('\n') if open.is_some() => {}
            Token::Separator(operator) => {
                if command.is_empty() && (open.is_some() || operator == ';') {
                    return Err(format!("expected a command before `{operator}`"));
                }
                if !command.is_empty() {
                    finish(&mut pipeline, &mut command, ";")?;
                    let pipeline = std::mem::take(&mut pipeline);
                    steps.push(Step {
                        condition,
                        pipeline,
                    });
                }
                condition = RunCondition::Always;
            }
        }
    }
    if let Some(operator) = open {
        return Err(format!("expected a command after `{operator}`"));
    }
    if !command.is_empty() {
        finish(&mut pipeline, &mut command, ";")?;
        steps.push(Step {
            condition,
            pipeline,
        });
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
                "`{text}` is not supported: only simple commands are"
            ));
        }
    }
    command.words.push(word);
    Ok(())
}

/// Parses `NAME=…` with an unquoted name and equals sign.
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

fn finish(
    pipeline: &mut Vec<Command>,
    command: &mut Command,
    operator: &str,
) -> Result<(), String> {
    if command.is_empty() {
        return Err(format!("expected a command before `{operator}`"));
    }
    pipeline.push(std::mem::take(command));
    Ok(())
}
