//! Decodes the response stream of Anthropic's Messages API.

use rye_engine::model::ModelError;
use serde::Deserialize;
use serde_json::Value;

use super::REDACTED_PREFIX;
use crate::answer::{self, Assembly, Decoder, DeltaBuffer};
use crate::provider_error::ProviderError;
use crate::sse::Event;

/// The state of the decoder.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    answer: Assembly,
    done: bool,
}

#[derive(Deserialize)]
struct Piece {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    index: usize,
    delta: Option<DeltaPiece>,
    content_block: Option<Block>,
    message: Option<MessagePiece>,
    usage: Option<Usage>,
    error: Option<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DeltaPiece {
    #[serde(rename = "type")]
    kind: String,
    text: String,
    thinking: String,
    signature: String,
    partial_json: String,
    stop_reason: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Block {
    #[serde(rename = "type")]
    kind: String,
    id: String,
    name: String,
    text: String,
    thinking: String,
    data: String,
    input: Option<Value>,
}

#[derive(Deserialize)]
struct MessagePiece {
    usage: Option<Usage>,
}

#[derive(Deserialize)]
#[expect(clippy::struct_field_names, reason = "names of the API")]
struct Usage {
    input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
}

impl Decoder for Stream {
    fn decode(&mut self, event: Event<'_>, deltas: &mut DeltaBuffer) -> Result<(), ModelError> {
        let piece: Piece = answer::json(event.data)?;
        let at = piece.index;
        match &*piece.kind {
            "message_start" => self.count(piece.message.and_then(|it| it.usage)),
            "content_block_start" => {
                if let Some(block) = piece.content_block {
                    self.begin(at, &block, deltas)?;
                }
            }
            "content_block_delta" => {
                if let Some(delta) = piece.delta {
                    self.add(at, &delta, deltas)?;
                }
            }
            "message_delta" => {
                self.count(piece.usage);
                let reason = piece.delta.and_then(|it| it.stop_reason);
                self.answer.stop_reason = reason.or(self.answer.stop_reason.take());
            }
            "message_stop" => self.done = true,
            "error" => {
                let error = piece.error.unwrap_or_default();
                return Err(ProviderError::from_json(&error).into_stream_error());
            }
            // `ping`, `content_block_stop`, and unknown types.
            _ => {}
        }
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.done
    }

    fn into_answer(self: Box<Self>) -> Assembly {
        self.answer
    }
}

impl Stream {
    fn begin(
        &mut self,
        at: usize,
        block: &Block,
        deltas: &mut DeltaBuffer,
    ) -> Result<(), ModelError> {
        match &*block.kind {
            "text" => self.answer.text(at, &block.text, deltas),
            "thinking" => self.answer.thought(at, &block.thinking, deltas),
            "redacted_thinking" => {
                self.answer.signature(at, REDACTED_PREFIX)?;
                self.answer.signature(at, &block.data)
            }
            "tool_use" => {
                self.answer.call(at, &block.id, &block.name, deltas);
                match &block.input {
                    Some(Value::Object(args)) if !args.is_empty() => {
                        let args = Value::Object(args.clone()).to_string();
                        self.answer.arguments(at, &args, deltas)
                    }
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn add(
        &mut self,
        at: usize,
        delta: &DeltaPiece,
        deltas: &mut DeltaBuffer,
    ) -> Result<(), ModelError> {
        match &*delta.kind {
            "text_delta" => self.answer.text(at, &delta.text, deltas),
            "thinking_delta" => self.answer.thought(at, &delta.thinking, deltas),
            "signature_delta" => self.answer.signature(at, &delta.signature),
            "input_json_delta" => self.answer.arguments(at, &delta.partial_json, deltas),
            _ => Ok(()),
        }
    }

    /// Counts are cumulative; a missing count has not changed.
    fn count(&mut self, usage: Option<Usage>) {
        let Some(usage) = usage else { return };
        let tokens = &mut self.answer.tokens;
        // The API's input count excludes cached tokens; ours includes them.
        let through = tokens.cached.saturating_add(tokens.cache_write);
        let fresh = tokens.input.saturating_sub(through);
        let fresh = usage.input_tokens.unwrap_or(fresh);
        tokens.cached = usage.cache_read_input_tokens.unwrap_or(tokens.cached);
        tokens.cache_write = usage
            .cache_creation_input_tokens
            .unwrap_or(tokens.cache_write);
        tokens.input = fresh
            .saturating_add(tokens.cached)
            .saturating_add(tokens.cache_write);
        tokens.output = usage.output_tokens.unwrap_or(tokens.output);
    }
}
