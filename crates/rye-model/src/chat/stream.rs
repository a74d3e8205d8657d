//! Decodes the response stream of `OpenAI`'s Chat Completions API.

use std::borrow::Cow;

use rye_engine::model::ModelError;
use serde::Deserialize;
use serde_json::Value;

use crate::answer::{self, Assembly, DecodedAnswer, Decoder, DeltaBuffer};
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
    stop_reason: Option<String>,
    /// The content is a refusal, whatever the finish reason.
    refused: bool,
    tokens: Tokens,
    done: bool,
}

#[derive(Deserialize)]
struct Piece<'a> {
    #[serde(default, borrow)]
    choices: Vec<Choice<'a>>,
    usage: Option<Usage>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    delta: Option<DeltaPiece<'a>>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct DeltaPiece<'a> {
    #[serde(borrow)]
    content: Option<Cow<'a, str>>,
    #[serde(borrow)]
    refusal: Option<Cow<'a, str>>,
    #[serde(borrow)]
    reasoning_content: Option<Cow<'a, str>>,
    #[serde(borrow)]
    reasoning: Option<Cow<'a, str>>,
    tool_calls: Option<Vec<CallPiece>>,
}

#[derive(Deserialize)]
struct CallPiece {
    index: Option<usize>,
    id: Option<String>,
    function: Option<Function>,
}

#[derive(Deserialize)]
struct Function {
    name: Option<String>,
    arguments: Option<String>,
}

#[derive(Deserialize)]
struct Usage {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
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
        let piece: Piece<'_> = answer::json(event.data)?;
        if let Some(error) = piece.error {
            return Err(ProviderError::from_json(&error).into_stream_error());
        }
        if let Some(usage) = piece.usage {
            let cached = usage.prompt_tokens_details.and_then(|it| it.cached_tokens);
            self.tokens = Tokens {
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
        self.stop_reason = choice.finish_reason.or(self.stop_reason.take());
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.done
    }

    fn is_content_complete(&self) -> bool {
        self.done || self.stop_reason.is_some()
    }

    fn finish(self: Box<Self>) -> Result<DecodedAnswer, ModelError> {
        // Not every server sends `[DONE]`.
        if !self.done && self.stop_reason.is_none() {
            return Err(answer::truncated_stream());
        }
        let refused = self.refused.then(|| answer::REFUSAL.to_owned());
        self.answer
            .finish(refused.or(self.stop_reason), self.tokens)
    }
}

impl Stream {
    fn add(&mut self, delta: DeltaPiece<'_>, deltas: &mut DeltaBuffer) -> Result<(), ModelError> {
        let thought = delta.reasoning_content.or(delta.reasoning);
        if let Some(thought) = thought.filter(|it| !it.is_empty()) {
            self.answer.thought(THOUGHT, &thought, deltas)?;
        }
        self.refused |= delta.refusal.as_ref().is_some_and(|it| !it.is_empty());
        for text in [delta.content, delta.refusal].into_iter().flatten() {
            self.answer.text(TEXT, &text, deltas)?;
        }
        for piece in delta.tool_calls.into_iter().flatten() {
            let id = piece.id.unwrap_or_default();
            let at = CALLS + self.place(piece.index, &id);
            let function = piece.function.unwrap_or(Function {
                name: None,
                arguments: None,
            });
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
