//! Assembles an answer from its streamed parts.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use rye_engine::model::{Delta, ModelError};
use rye_protocol::{CallId, IncompleteReason, Part};
use serde_json::{Map, Value};

use crate::price::Tokens;
use crate::sse::Event;
use crate::surrogates;

/// Maximum size of an answer, in bytes.
const MAX_LEN: usize = 8 * 1024 * 1024;

/// Maximum number of texts, thoughts and calls in one answer. Further calls are dropped: the
/// engine runs far fewer.
const MAX_BLOCKS: usize = 4096;

/// The stop reason of a refusal, if the provider has none of its own.
pub(crate) const REFUSAL: &str = "refusal";

/// Decodes the stream of one answer.
pub(crate) trait Decoder: Send {
    /// Processes an event and appends the resulting deltas.
    fn decode(&mut self, event: Event<'_>, deltas: &mut DeltaBuffer) -> Result<(), ModelError>;

    /// Whether the stream is finished.
    fn is_complete(&self) -> bool;

    /// Whether the content is finished; usage may still follow.
    fn is_content_complete(&self) -> bool {
        self.is_complete()
    }

    /// Returns the complete answer.
    fn finish(self: Box<Self>) -> Result<DecodedAnswer, ModelError>;
}

/// Deltas of one chunk of a stream. Adjacent deltas of the same kind are merged, so
/// that not every token causes an event.
#[derive(Debug, Default)]
pub(crate) struct DeltaBuffer(Vec<Delta>);

impl DeltaBuffer {
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

    /// More arguments of a call; empty at its start.
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

    /// Removes and returns all deltas.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Delta> {
        self.0.drain(..)
    }
}

/// A decoded answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DecodedAnswer {
    pub(crate) parts: Vec<Part>,
    pub(crate) stop_reason: Option<String>,
    pub(crate) incomplete: Option<IncompleteReason>,
    pub(crate) tokens: Tokens,
}

/// The blocks of an answer, keyed by position.
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
        deltas: &mut DeltaBuffer,
    ) -> Result<(), ModelError> {
        let new = || Block::Text(String::new());
        if let Block::Text(text) = self.blocks.entry(at).or_insert_with(new) {
            let displayed = surrogates::append(text, more);
            if !displayed.is_empty() {
                deltas.text(&displayed);
            }
        }
        self.grow(more)
    }

    pub(crate) fn thought(
        &mut self,
        at: usize,
        more: &str,
        deltas: &mut DeltaBuffer,
    ) -> Result<(), ModelError> {
        let new = || Block::Thought {
            text: String::new(),
            signature: None,
        };
        if let Block::Thought { text, .. } = self.blocks.entry(at).or_insert_with(new) {
            let displayed = surrogates::append(text, more);
            if !displayed.is_empty() {
                deltas.thought(&displayed);
            }
        }
        self.grow(more)
    }

    /// Appends to the signature that the provider expects back.
    pub(crate) fn signature(&mut self, at: usize, more: &str) -> Result<(), ModelError> {
        let new = || Block::Thought {
            text: String::new(),
            signature: None,
        };
        if let Block::Thought { signature, .. } = self.blocks.entry(at).or_insert_with(new) {
            let more = surrogates::resolve(more);
            signature.get_or_insert_default().push_str(&more);
        }
        self.grow(more)
    }

    /// Starts a tool call. An invalid or duplicate id is replaced by a new one.
    pub(crate) fn call(&mut self, at: usize, id: &str, tool: &str, deltas: &mut DeltaBuffer) {
        if self.blocks.contains_key(&at) || self.blocks.len() >= MAX_BLOCKS {
            return;
        }
        let id = id.parse().ok().filter(|id| !self.ids.contains(id));
        let id = id.unwrap_or_else(CallId::new);
        self.ids.insert(id.clone());
        let tool = surrogates::resolve(tool).into_owned();
        deltas.arguments(&id, &tool, "");
        let args = String::new();
        self.blocks.insert(at, Block::Call { id, tool, args });
    }

    pub(crate) fn arguments(
        &mut self,
        at: usize,
        more: &str,
        deltas: &mut DeltaBuffer,
    ) -> Result<(), ModelError> {
        if let Some(Block::Call { id, tool, args }) = self.blocks.get_mut(&at) {
            let displayed = surrogates::append(args, more);
            if !displayed.is_empty() {
                deltas.arguments(id, tool, &displayed);
            }
        }
        self.grow(more)
    }

    /// Whether the call has received arguments.
    pub(crate) fn has_arguments(&self, at: usize) -> bool {
        matches!(self.blocks.get(&at), Some(Block::Call { args, .. }) if !args.is_empty())
    }

    fn grow(&mut self, more: &str) -> Result<(), ModelError> {
        self.size += more.len();
        if self.blocks.len() > MAX_BLOCKS {
            let message = format!("stopped after {MAX_BLOCKS} parts; ask for less at a time");
            return Err(ModelError::TooLong(message));
        }
        if self.size > MAX_LEN {
            let message = format!(
                "stopped after {} MiB; ask for less at a time",
                MAX_LEN >> 20
            );
            return Err(ModelError::TooLong(message));
        }
        Ok(())
    }

    /// Returns the answer, or an error if it has no content.
    pub(crate) fn finish(
        self,
        stop_reason: Option<String>,
        tokens: Tokens,
    ) -> Result<DecodedAnswer, ModelError> {
        let parts: Vec<_> = self.blocks.into_values().filter_map(part).collect();
        let incomplete = stop_reason.as_deref().and_then(incomplete_reason);
        let has_content = |part: &Part| !matches!(part, Part::Thinking { .. });
        if !parts.iter().any(has_content) {
            return Err(empty_answer(stop_reason.as_deref(), incomplete));
        }
        Ok(DecodedAnswer {
            parts,
            stop_reason,
            incomplete,
            tokens,
        })
    }
}

/// Why an answer with this stop reason of any provider is incomplete, if it is.
fn incomplete_reason(stop_reason: &str) -> Option<IncompleteReason> {
    Some(match stop_reason.to_ascii_lowercase().as_str() {
        "max_tokens"
        | "max_output_tokens"
        | "length"
        | "model_length"
        | "model_context_window_exceeded" => IncompleteReason::OutputLimit,
        "refusal" | "content_filter" | "safety" | "image_safety" | "recitation" | "blocklist"
        | "prohibited_content" | "spii" | "language" => IncompleteReason::Refused,
        _ => return None,
    })
}

fn empty_answer(stop_reason: Option<&str>, incomplete: Option<IncompleteReason>) -> ModelError {
    let why = stop_reason.unwrap_or("no reason given");
    ModelError::Empty(match incomplete {
        Some(IncompleteReason::OutputLimit) => format!(
            "it reached its output limit ({why}) before it produced any text; raise `max_output` \
             in models.yaml, or lower `effort`"
        ),
        Some(IncompleteReason::Refused) => {
            format!("it refused ({why}); rephrase the prompt, or choose another model")
        }
        None => format!(
            "it stopped immediately ({why}); add detail to the prompt, or choose another model"
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

/// Replaces lone surrogates at the end of a text.
fn whole(text: String) -> String {
    match surrogates::resolve(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(resolved) => resolved,
    }
}

/// Parses arguments. Invalid JSON is kept as a string, which fails schema validation
/// and is reported to the model.
fn arguments(text: String) -> Value {
    if text.trim().is_empty() {
        return Value::Object(Map::new());
    }
    serde_json::from_str(&text).unwrap_or(Value::String(text))
}

/// Parses the JSON data of an event.
pub(crate) fn json<'a, T: serde::Deserialize<'a>>(data: &'a str) -> Result<T, ModelError> {
    serde_json::from_str(data)
        .map_err(|error| ModelError::Connection(format!("invalid response ({error}): {data}")))
}

/// The error for a stream that ended prematurely.
pub(crate) fn truncated_stream() -> ModelError {
    ModelError::Connection("the stream ended before the answer was complete".to_owned())
}
