//! An answer that comes in pieces, put together.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use rye_engine::model::{Delta, ModelError};
use rye_protocol::{CallId, Incomplete, Part};
use serde_json::{Map, Value};

use crate::halves;
use crate::price::Tokens;
use crate::sse::Event;

/// The longest answer that is kept.
const LONGEST: usize = 8 * 1024 * 1024;

/// The most texts, thoughts and calls that are kept of one answer. Calls beyond it are dropped:
/// the engine runs far fewer.
const MOST_BLOCKS: usize = 4096;

/// Why an answer stops that is a refusal, where the provider has no word for it.
pub(crate) const REFUSAL: &str = "refusal";

/// Reads the stream of one answer.
pub(crate) trait Decoder: Send {
    /// Takes in an event and tells what is new.
    fn take(&mut self, event: Event<'_>, tell: &mut Told) -> Result<(), ModelError>;

    /// Whether the answer is whole: nothing more needs to come.
    fn is_done(&self) -> bool;

    /// Whether all is said; what was used up may still come.
    fn is_whole(&self) -> bool {
        self.is_done()
    }

    /// All of it.
    fn finish(self: Box<Self>) -> Result<Heard, ModelError>;
}

/// What is told of one piece of a stream: what came together is told together, so that a
/// word costs no message of its own.
#[derive(Debug, Default)]
pub(crate) struct Told(Vec<Delta>);

impl Told {
    fn text(&mut self, more: &str) {
        match self.0.last_mut() {
            Some(Delta::Text(text)) => text.push_str(more),
            _ => self.0.push(Delta::Text(more.to_owned())),
        }
    }

    fn thought(&mut self, more: &str) {
        match self.0.last_mut() {
            Some(Delta::Thinking(text)) => text.push_str(more),
            _ => self.0.push(Delta::Thinking(more.to_owned())),
        }
    }

    /// More of a call; nothing more when it begins.
    fn arguments(&mut self, id: &CallId, name: &str, more: &str) {
        match self.0.last_mut() {
            Some(Delta::ToolCall { call, args, .. }) if call == id => args.push_str(more),
            _ => self.0.push(Delta::ToolCall {
                call: id.clone(),
                tool: name.to_owned(),
                args: more.to_owned(),
            }),
        }
    }

    /// All of it, to be told now.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Delta> {
        self.0.drain(..)
    }
}

/// What was heard of a model.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Heard {
    pub(crate) parts: Vec<Part>,
    pub(crate) stop_reason: Option<String>,
    pub(crate) tokens: Tokens,
}

/// The parts of an answer, each under a number that says its place.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    blocks: BTreeMap<usize, Block>,
    ids: HashSet<CallId>,
    size: usize,
}

#[derive(Debug)]
enum Block {
    Text(String),
    Thought {
        text: String,
        signature: Option<String>,
    },
    Call {
        id: CallId,
        tool: String,
        args: String,
    },
}

impl Assembly {
    pub(crate) fn has(&self, at: usize) -> bool {
        self.blocks.contains_key(&at)
    }

    pub(crate) fn is_text(&self, at: usize) -> bool {
        matches!(self.blocks.get(&at), Some(Block::Text(_)))
    }

    pub(crate) fn is_open_thought(&self, at: usize) -> bool {
        let block = self.blocks.get(&at);
        matches!(
            block,
            Some(Block::Thought {
                signature: None,
                ..
            })
        )
    }

    pub(crate) fn text(
        &mut self,
        at: usize,
        more: &str,
        tell: &mut Told,
    ) -> Result<(), ModelError> {
        let new = || Block::Text(String::new());
        if let Block::Text(text) = self.blocks.entry(at).or_insert_with(new) {
            let told = halves::add(text, more);
            if !told.is_empty() {
                tell.text(&told);
            }
        }
        self.grow(more)
    }

    pub(crate) fn thought(
        &mut self,
        at: usize,
        more: &str,
        tell: &mut Told,
    ) -> Result<(), ModelError> {
        let new = || Block::Thought {
            text: String::new(),
            signature: None,
        };
        if let Block::Thought { text, .. } = self.blocks.entry(at).or_insert_with(new) {
            let told = halves::add(text, more);
            if !told.is_empty() {
                tell.thought(&told);
            }
        }
        self.grow(more)
    }

    /// What the provider wants back with a thought; more of it where there is some.
    pub(crate) fn signature(&mut self, at: usize, more: &str) -> Result<(), ModelError> {
        let new = || Block::Thought {
            text: String::new(),
            signature: None,
        };
        if let Block::Thought { signature, .. } = self.blocks.entry(at).or_insert_with(new) {
            let more = halves::settled(more);
            signature.get_or_insert_default().push_str(&more);
        }
        self.grow(more)
    }

    /// A call begins. An id that cannot be kept, or is another call's, is made anew.
    pub(crate) fn call(&mut self, at: usize, id: &str, tool: &str, tell: &mut Told) {
        if self.blocks.contains_key(&at) || self.blocks.len() >= MOST_BLOCKS {
            return;
        }
        let id = id.parse().ok().filter(|id| !self.ids.contains(id));
        let id = id.unwrap_or_else(CallId::new);
        self.ids.insert(id.clone());
        let tool = halves::settled(tool).into_owned();
        tell.arguments(&id, &tool, "");
        let args = String::new();
        self.blocks.insert(at, Block::Call { id, tool, args });
    }

    pub(crate) fn arguments(
        &mut self,
        at: usize,
        more: &str,
        tell: &mut Told,
    ) -> Result<(), ModelError> {
        if let Some(Block::Call { id, tool, args }) = self.blocks.get_mut(&at) {
            let told = halves::add(args, more);
            if !told.is_empty() {
                tell.arguments(id, tool, &told);
            }
        }
        self.grow(more)
    }

    /// Whether a call has arguments already.
    pub(crate) fn has_arguments(&self, at: usize) -> bool {
        matches!(self.blocks.get(&at), Some(Block::Call { args, .. }) if !args.is_empty())
    }

    fn grow(&mut self, more: &str) -> Result<(), ModelError> {
        self.size += more.len();
        if self.blocks.len() > MOST_BLOCKS {
            let message = format!("it was ended after {MOST_BLOCKS} parts; ask for less at a time");
            return Err(ModelError::TooLong(message));
        }
        if self.size > LONGEST {
            let message = format!(
                "it was ended after {} MiB; ask for less at a time",
                LONGEST >> 20
            );
            return Err(ModelError::TooLong(message));
        }
        Ok(())
    }

    /// The whole answer, if there is one.
    pub(crate) fn finish(
        self,
        stop_reason: Option<String>,
        tokens: Tokens,
    ) -> Result<Heard, ModelError> {
        let parts: Vec<_> = self.blocks.into_values().filter_map(part).collect();
        let says_something = |part: &Part| !matches!(part, Part::Thinking { .. });
        if !parts.iter().any(says_something) {
            return Err(nothing_said(stop_reason.as_deref()));
        }
        Ok(Heard {
            parts,
            stop_reason,
            tokens,
        })
    }
}

fn nothing_said(stop_reason: Option<&str>) -> ModelError {
    let why = stop_reason.unwrap_or("no reason given");
    ModelError::Empty(match stop_reason.and_then(Incomplete::of) {
        Some(Incomplete::OutputLimit) => format!(
            "it reached its limit of output before it said anything ({why}), as one does that \
             thinks for long; a larger `max_output` in models.yaml leaves it room, or less `effort`"
        ),
        Some(Incomplete::Refused) => {
            format!("it would not answer that ({why}); ask otherwise, or choose another model")
        }
        None => format!(
            "it stopped at once ({why}); say more of what is wanted, or choose another model"
        ),
    })
}

fn part(block: Block) -> Option<Part> {
    match block {
        Block::Text(text) if text.is_empty() => None,
        Block::Text(text) => Some(Part::Text { text: whole(text) }),
        Block::Thought {
            text,
            signature: None,
        } if text.is_empty() => None,
        Block::Thought { text, signature } => Some(Part::Thinking {
            text: whole(text),
            signature,
        }),
        Block::Call { id, tool, args } => Some(Part::ToolCall {
            call_id: id,
            tool,
            args: arguments(whole(args)),
        }),
    }
}

/// A text to which nothing more comes.
fn whole(text: String) -> String {
    match halves::settled(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(settled) => settled,
    }
}

/// Arguments as JSON. What is none stays as it came: it does not fit the tool, and the
/// model is told so.
fn arguments(text: String) -> Value {
    if text.trim().is_empty() {
        return Value::Object(Map::new());
    }
    serde_json::from_str(&text).unwrap_or(Value::String(text))
}

/// The data of an event, which is JSON.
pub(crate) fn json<'a, T: serde::Deserialize<'a>>(data: &'a str) -> Result<T, ModelError> {
    serde_json::from_str(data).map_err(|error| {
        ModelError::Connection(format!("it sent what is no answer ({error}): {data}"))
    })
}

/// A stream that ended before its answer.
pub(crate) fn cut() -> ModelError {
    ModelError::Connection("the stream ended before the answer did".to_owned())
}
