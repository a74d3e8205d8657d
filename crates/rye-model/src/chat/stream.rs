//! Decodes the response stream of `OpenAI`'s Chat Completions API.

use rye_engine::model::ModelError;
use serde::Deserialize;
use serde_json::Value;

use crate::answer::{self, Assembly, Decoder, DeltaBuffer};
use crate::price::Tokens;
use crate::provider_error::ProviderError;
use crate::sse::Event;

/// Positions of reasoning, text and calls in the answer.
const THOUGHT: usize = 0;
const TEXT: usize = 1;
const CALLS: usize = 2;

/// The state of the decoder.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    answer: Assembly,
    /// Index and id of each call, as assigned by the server.
    calls: Vec<(Option<usize>, String)>,
    done: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Piece {
    choices: Vec<Choice>,
    usage: Option<Usage>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    delta: Option<DeltaPiece>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct DeltaPiece {
    content: Option<String>,
    refusal: Option<String>,
    reasoning_content: Option<String>,
    reasoning: Option<String>,
    tool_calls: Option<Vec<CallPiece>>,
}

#[derive(Deserialize)]
struct CallPiece {
    index: Option<usize>,
    id: Option<String>,
    function: Option<Function>,
}

#[derive(Default, Deserialize)]
struct Function {
    name: Option<String>,
    arguments: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Usage {
    prompt_tokens: u64,
    completion_tokens: u64,
    prompt_tokens_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<u64>,
}

impl Decoder for Stream {
    fn decode(&mut self, event: Event<'_>, deltas: &mut DeltaBuffer) -> Result<(), ModelError> {
        if event.data.trim() == "[DONE]" {
            self.done = true;
            return Ok(());
        }
        let piece: Piece = answer::json(event.data)?;
        if let Some(error) = piece.error {
            return Err(ProviderError::from_json(&error).into_stream_error());
        }
        if let Some(usage) = piece.usage {
            let cached = usage.prompt_tokens_details.and_then(|it| it.cached_tokens);
            self.answer.tokens = Tokens {
                input: usage.prompt_tokens,
                cached: cached.unwrap_or_default(),
                cache_write: 0,
                output: usage.completion_tokens,
            };
        }
        // Only one choice was requested.
        let Some(choice) = piece.choices.into_iter().next() else {
            return Ok(());
        };
        if let Some(delta) = choice.delta {
            self.add(delta, deltas)?;
        }
        self.answer.stop_reason = choice.finish_reason.or(self.answer.stop_reason.take());
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.done
    }

    fn is_content_complete(&self) -> bool {
        self.done || self.answer.stop_reason.is_some()
    }

    fn into_answer(self: Box<Self>) -> Assembly {
        self.answer
    }
}

impl Stream {
    fn add(&mut self, delta: DeltaPiece, deltas: &mut DeltaBuffer) -> Result<(), ModelError> {
        let thought = delta.reasoning_content.or(delta.reasoning);
        if let Some(thought) = thought.filter(|it| !it.is_empty()) {
            self.answer.thought(THOUGHT, &thought, deltas)?;
        }
        self.answer.refused |= delta.refusal.as_ref().is_some_and(|it| !it.is_empty());
        for text in [delta.content, delta.refusal].into_iter().flatten() {
            self.answer.text(TEXT, &text, deltas)?;
        }
        for piece in delta.tool_calls.into_iter().flatten() {
            let id = piece.id.unwrap_or_default();
            let at = CALLS + self.place(piece.index, &id);
            let function = piece.function.unwrap_or_default();
            let name = function.name.unwrap_or_default();
            self.answer.call(at, &id, &name, deltas);
            let arguments = function.arguments.unwrap_or_default();
            self.answer.arguments(at, &arguments, deltas)?;
        }
        Ok(())
    }

    /// The call that a delta belongs to. Some servers omit the index or use the same
    /// for all.
    fn place(&mut self, index: Option<usize>, id: &str) -> usize {
        let last = self.calls.len().checked_sub(1);
        let known = match (index, id) {
            (None, "") => last,
            (Some(_), "") => self.calls.iter().rposition(|(other, _)| *other == index),
            _ => self
                .calls
                .iter()
                .rposition(|(other, its)| *other == index && (its == id || its.is_empty())),
        };
        known.unwrap_or_else(|| {
            self.calls.push((index, id.to_owned()));
            self.calls.len() - 1
        })
    }
}
