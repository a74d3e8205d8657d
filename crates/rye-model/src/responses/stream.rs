//! Decodes the response stream of `OpenAI`'s Responses API.

use rye_engine::model::ModelError;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::answer::{self, Assembly, Decoder, DeltaBuffer};
use crate::price::Tokens;
use crate::provider_error::ProviderError;
use crate::sse::Event;

/// The state of the decoder.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    answer: Assembly,
    done: bool,
}

#[derive(Deserialize)]
struct Piece<'a> {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    output_index: usize,
    #[serde(default)]
    summary_index: usize,
    #[serde(default)]
    delta: String,
    #[serde(borrow)]
    item: Option<&'a RawValue>,
    response: Option<Response>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Item {
    #[serde(rename = "type")]
    kind: String,
    call_id: String,
    name: String,
    arguments: String,
    content: Option<Vec<Content>>,
    encrypted_content: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Content {
    text: String,
    refusal: String,
}

#[derive(Deserialize)]
struct Response {
    status: Option<String>,
    incomplete_details: Option<Incomplete>,
    usage: Option<Usage>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Incomplete {
    reason: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Usage {
    input_tokens: u64,
    input_tokens_details: Option<Details>,
    output_tokens: u64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Details {
    cached_tokens: u64,
}

impl Decoder for Stream {
    fn decode(&mut self, event: Event<'_>, deltas: &mut DeltaBuffer) -> Result<(), ModelError> {
        let piece: Piece<'_> = answer::json(event.data)?;
        let at = piece.output_index;
        match &*piece.kind {
            "response.output_item.added" => {
                let Some(item) = piece.item else {
                    return Ok(());
                };
                let item: Item = answer::json(item.get())?;
                if item.kind == "function_call" {
                    self.answer.call(at, &item.call_id, &item.name, deltas);
                }
                Ok(())
            }
            "response.output_text.delta" => self.answer.text(at, &piece.delta, deltas),
            "response.refusal.delta" => {
                self.answer.refused = true;
                self.answer.text(at, &piece.delta, deltas)
            }
            "response.reasoning_summary_part.added" if piece.summary_index > 0 => {
                self.answer.thought(at, "\n\n", deltas)
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.answer.thought(at, &piece.delta, deltas)
            }
            "response.function_call_arguments.delta" => {
                self.answer.arguments(at, &piece.delta, deltas)
            }
            "response.output_item.done" => match piece.item {
                Some(item) => self.whole(at, item, deltas),
                None => Ok(()),
            },
            "response.completed" | "response.incomplete" => {
                self.done = true;
                self.end(piece.response);
                Ok(())
            }
            "response.failed" => {
                let error = piece.response.and_then(|it| it.error);
                Err(ProviderError::from_json(&error.unwrap_or_default()).into_stream_error())
            }
            "error" => {
                let error: Value = answer::json(event.data)?;
                Err(ProviderError::from_json(&error).into_stream_error())
            }
            _ => Ok(()),
        }
    }

    fn is_complete(&self) -> bool {
        self.done
    }

    fn into_answer(self: Box<Self>) -> Assembly {
        self.answer
    }
}

impl Stream {
    /// Processes a completed item: content that no delta contained is taken from it.
    fn whole(
        &mut self,
        at: usize,
        raw: &RawValue,
        deltas: &mut DeltaBuffer,
    ) -> Result<(), ModelError> {
        let item: Item = answer::json(raw.get())?;
        match &*item.kind {
            "function_call" => {
                self.answer.call(at, &item.call_id, &item.name, deltas);
                if !self.answer.has_arguments(at) {
                    self.answer.arguments(at, &item.arguments, deltas)?;
                }
            }
            "message" if !self.answer.is_text(at) => {
                for content in item.content.unwrap_or_default() {
                    self.answer.text(at, &content.text, deltas)?;
                    self.answer.refused |= !content.refusal.is_empty();
                    self.answer.text(at, &content.refusal, deltas)?;
                }
            }
            // Reasoning is only useful to the provider if it is encrypted.
            "reasoning" if item.encrypted_content.is_some() => {
                self.answer.signature(at, raw.get())?;
            }
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, response: Option<Response>) {
        let Some(response) = response else { return };
        let reason = response.incomplete_details.and_then(|it| it.reason);
        self.answer.stop_reason = reason.or(response.status);
        if let Some(usage) = response.usage {
            self.answer.tokens = Tokens {
                input: usage.input_tokens,
                cached: usage.input_tokens_details.map_or(0, |it| it.cached_tokens),
                cache_write: 0,
                output: usage.output_tokens,
            };
        }
    }
}
