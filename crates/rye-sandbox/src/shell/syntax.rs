//! The syntax tree of a script.

use std::sync::{Arc, OnceLock};

/// Pipelines in order.
pub(crate) type List = Vec<Step>;

/// A pipeline with its condition.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) condition: RunCondition,
    pub(crate) pipeline: Pipeline,
}

/// When a pipeline runs, depending on the status of the previous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunCondition {
    Always,
    OnSuccess,
    OnFailure,
}

#[derive(Debug, Default)]
pub(crate) struct Pipeline {
    /// Starts with `!`, which inverts the status.
    pub(crate) is_negated: bool,
    pub(crate) commands: Vec<Command>,
}

#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) kind: CommandKind,
    pub(crate) redirects: Vec<Redirect>,
}

#[derive(Debug)]
pub(crate) enum CommandKind {
    Simple {
        assignments: Vec<Assignment>,
        words: Vec<Word>,
    },
    /// `{ …; }`
    Group(List),
    /// `( … )`
    Subshell(List),
    /// Conditions with their branches; that of `else` has no condition.
    If(Vec<(Option<List>, List)>),
    While {
        is_until: bool,
        condition: List,
        body: List,
    },
    For {
        name: String,
        /// `None` stands for the positional parameters.
        words: Option<Vec<Word>>,
        body: List,
    },
    /// `for ((init; condition; step))`
    ForArithmetic {
        expressions: [Word; 3],
        body: List,
    },
    Case {
        subject: Word,
        arms: Vec<(Vec<Word>, List)>,
    },
    Function {
        name: String,
        body: Arc<Command>,
    },
    /// `((expression))`
    Arithmetic(Word),
}

/// `NAME=value`, or `NAME+=value`.
#[derive(Debug)]
pub(crate) struct Assignment {
    pub(crate) name: String,
    pub(crate) appends: bool,
    pub(crate) value: Word,
}

#[derive(Debug)]
pub(crate) enum Redirect {
    Input(Word),
    /// `<<`, whose text follows on the next line, or `<<<`.
    HereDocument(Arc<OnceLock<Word>>),
    Output(Streams, Mode, Word),
    /// `2>&1`
    Duplicate(Stream, Stream),
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

/// The pieces of a word, joined after expansion.
pub(crate) type Word = Vec<Piece>;

/// A piece of a word. Quoted pieces are not split or used as patterns.
#[derive(Debug, Clone)]
pub(crate) enum Piece {
    Text {
        text: String,
        quoted: bool,
    },
    Parameter {
        parameter: Arc<Parameter>,
        quoted: bool,
    },
    /// `$(…)` or backticks.
    Command {
        list: Arc<List>,
        quoted: bool,
    },
    /// `$((…))`
    Arithmetic {
        expression: Arc<Word>,
        quoted: bool,
    },
}

/// `$NAME` or `${NAME…}`.
#[derive(Debug)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    pub(crate) operation: Operation,
}

/// What `${…}` does with the value of a parameter.
#[derive(Debug)]
pub(crate) enum Operation {
    Value,
    /// `${#NAME}`
    Length,
    /// `${NAME:-word}` and the like; without the colon, an empty value counts as set.
    IfUnset {
        action: UnsetAction,
        or_empty: bool,
        word: Word,
    },
    /// `${NAME#pattern}`, or `%` for the end.
    Remove {
        from_end: bool,
        longest: bool,
        pattern: Word,
    },
    /// `${NAME/pattern/text}`
    Replace {
        all: bool,
        pattern: Word,
        text: Word,
    },
    /// `${NAME:offset:length}`
    Substring {
        offset: Word,
        length: Option<Word>,
    },
    /// `${NAME^^}` and the like.
    ChangeCase {
        upper: bool,
        all: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnsetAction {
    /// `-`
    Default,
    /// `=`
    Assign,
    /// `?`
    Fail,
    /// `+`: use the word if the parameter is set.
    Alternative,
}
