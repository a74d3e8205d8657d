//! Assembles an answer from its streamed parts.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use rye_engine::model::{Delta, ModelAnswer, ModelError};
use rye_protocol::{CallId, IncompleteReason, Part};
use serde_json::{Map, Value};

use crate::price::{Price, Tokens};
use crate::sse::Event;
use crate::surrogates;

/// Maximum size of an answer, in bytes.
const MAX_LEN: usize = 8 * 1024 * 1024;

/// Maximum number of texts, thoughts and calls in one answer. Further calls are dropped: the
/// engine runs far fewer.
const MAX_BLOCKS: usize = 4096;

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

    /// Returns the answer received so far.
    fn into_answer(self: Box<Self>) -> Assembly;
}

/// Deltas of one chunk of a stream. Adjacent deltas of the same kind are merged, so
/// that not every token causes an event.
#[derive(Debug, Default)]
pub(crate) struct DeltaBuffer(Vec<Delta>);

impl DeltaBuffer {
    fn push(&mut self, delta: Delta) {
        match (self.0.last_mut(), &delta) {
            (Some(Delta::Text(text)), Delta::Text(more))
            | (Some(Delta::Thinking(text)), Delta::Thinking(more)) => text.push_str(more),
            (
                Some(Delta::ToolCall { call, args, .. }),
                Delta::ToolCall {
                    call: same,
                    args: more,
                    ..
                },
            ) if call == same => args.push_str(more),
            _ => self.0.push(delta),
        }
    }

    /// Removes and returns all deltas.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Delta> {
        self.0.drain(..)
    }
}

/// An answer as far as it was received: blocks by position, stop reason and usage.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    blocks: BTreeMap<usize, Block>,
    ids: HashSet<CallId>,
    size: usize,
    pub(crate) stop_reason: Option<String>,
    /// The content is a refusal, whatever the stop reason.
    pub(crate) refused: bool,
    pub(crate) tokens: Tokens,
}

#[derive(Debug)]
struct Block {
    kind: Kind,
    /// Text of the block, or the arguments of the call.
    text: String,
    /// Signature of a thought that the provider expects back.
    signature: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
enum Kind {
    Text,
    Thought,
    Call { id: CallId, tool: String },
}

impl Block {
    fn new(kind: Kind) -> Self {
        Self {
            kind,
            text: String::new(),
            signature: None,
        }
    }

    fn delta(&self, more: String) -> Delta {
        match &self.kind {
            Kind::Text => Delta::Text(more),
            Kind::Thought => Delta::Thinking(more),
            Kind::Call { id, tool } => Delta::ToolCall {
                call: id.clone(),
                tool: tool.clone(),
                args: more,
            },
        }
    }

    fn append(&mut self, more: &str, deltas: &mut DeltaBuffer) {
        let displayed = surrogates::append(&mut self.text, more);
        if !displayed.is_empty() {
            deltas.push(self.delta(displayed.into_owned()));
        }
    }
}

impl Assembly {
    pub(crate) fn has(&self, at: usize) -> bool {
        self.blocks.contains_key(&at)
    }

    pub(crate) fn is_text(&self, at: usize) -> bool {
        let block = self.blocks.get(&at);
        block.is_some_and(|block| block.kind == Kind::Text)
    }

    pub(crate) fn is_open_thought(&self, at: usize) -> bool {
        let block = self.blocks.get(&at);
        block.is_some_and(|block| block.kind == Kind::Thought && block.signature.is_none())
    }

    pub(crate) fn text(
        &mut self,
        at: usize,
        more: &str,
        deltas: &mut DeltaBuffer,
    ) -> Result<(), ModelError> {
        self.append(at, &Kind::Text, more, deltas)
    }

    pub(crate) fn thought(
        &mut self,
        at: usize,
        more: &str,
        deltas: &mut DeltaBuffer,
    ) -> Result<(), ModelError> {
        self.append(at, &Kind::Thought, more, deltas)
    }

    fn append(
        &mut self,
        at: usize,
        kind: &Kind,
        more: &str,
        deltas: &mut DeltaBuffer,
    ) -> Result<(), ModelError> {
        let is_start = self.blocks.get(&at).is_none_or(|it| it.text.is_empty());
        // The text of a signed thought must not change.
        let before = self.blocks.range_mut(..at).next_back();
        let before = before.filter(|_| is_start && *kind == Kind::Text);
        let open = before
            .filter(|(_, block)| block.kind == Kind::Text)
            .and_then(|(_, block)| surrogates::take_open(&mut block.text, more));
        let new = || Block::new(kind.clone());
        let block = self.blocks.entry(at).or_insert_with(new);
        if block.kind == *kind {
            block.text.extend(open);
            block.append(more, deltas);
        }
        self.grow(more)
    }

    /// Appends to the signature that the provider expects back.
    pub(crate) fn signature(&mut self, at: usize, more: &str) -> Result<(), ModelError> {
        let new = || Block::new(Kind::Thought);
        let block = self.blocks.entry(at).or_insert_with(new);
        if block.kind == Kind::Thought {
            let signature = block.signature.get_or_insert_default();
            signature.push_str(&surrogates::resolve(more));
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
        let block = Block::new(Kind::Call { id, tool });
        deltas.push(block.delta(String::new()));
        self.blocks.insert(at, block);
    }

    pub(crate) fn arguments(
        &mut self,
        at: usize,
        more: &str,
        deltas: &mut DeltaBuffer,
    ) -> Result<(), ModelError> {
        let block = self.blocks.get_mut(&at);
        if let Some(call) = block.filter(|it| matches!(it.kind, Kind::Call { .. })) {
            call.append(more, deltas);
        }
        self.grow(more)
    }

    /// Whether the call has received arguments.
    pub(crate) fn has_arguments(&self, at: usize) -> bool {
        let block = self.blocks.get(&at);
        block.is_some_and(|it| matches!(it.kind, Kind::Call { .. }) && !it.text.is_empty())
    }

    fn grow(&mut self, more: &str) -> Result<(), ModelError> {
        self.size += more.len();
        let limit = if self.blocks.len() > MAX_BLOCKS {
            format!("{MAX_BLOCKS} parts")
        } else if self.size > MAX_LEN {
            format!("{} MiB", MAX_LEN >> 20)
        } else {
            return Ok(());
        };
        let message = format!("stopped after {limit}; ask for less at a time");
        Err(ModelError::TooLong(message))
    }

    /// Returns the answer, or an error if it has no content.
    pub(crate) fn finish(self, price: Price) -> Result<ModelAnswer, ModelError> {
        let refused = self.refused.then(|| "refusal".to_owned());
        let stop_reason = refused.or(self.stop_reason);
        let parts: Vec<_> = self.blocks.into_values().filter_map(part).collect();
        let incomplete = stop_reason.as_deref().and_then(incomplete_reason);
        let has_content = |part: &Part| !matches!(part, Part::Thinking { .. });
        if !parts.iter().any(has_content) {
            return Err(empty_answer(stop_reason.as_deref(), incomplete));
        }
        Ok(ModelAnswer {
            parts,
            stop_reason,
            incomplete,
            usage: price.usage(self.tokens),
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
    let Block {
        kind,
        text,
        signature,
    } = block;
    match kind {
        Kind::Text | Kind::Thought if text.is_empty() && signature.is_none() => None,
        Kind::Text => Some(Part::Text { text: whole(text) }),
        Kind::Thought => Some(Part::Thinking {
            text: whole(text),
            signature,
        }),
        Kind::Call { id, tool } => Some(Part::ToolCall {
            call_id: id,
            tool,
            args: arguments(whole(text)),
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

/// Parses arguments. Text that is not JSON is kept as a string, which the engine reports to the
/// model.
fn arguments(text: String) -> Value {
    if text.trim().is_empty() {
        return Value::Object(Map::new());
    }
    rye_protocol::json::parse(&text).unwrap_or(Value::String(text))
}

/// Parses the JSON data of an event.
pub(crate) fn json<'a, T: serde::Deserialize<'a>>(data: &'a str) -> Result<T, ModelError> {
    serde_json::from_str(data)
        .map_err(|error| ModelError::Connection(format!("invalid response ({error}): {data}")))
}
