//! The stream of an answer.

use std::borrow::Cow;

use rye_engine::model::ModelError;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::answer::{self, Assembly, Decoder, Heard, Told};
use crate::fault::Said;
use crate::price::Tokens;
use crate::sse::Event;

/// What has come of an answer.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    answer: Assembly,
    stop_reason: Option<String>,
    /// What it said is that it will not, whatever it stopped for.
    refused: bool,
    tokens: Tokens,
    done: bool,
}

#[derive(Deserialize)]
struct Piece<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(default)]
    output_index: usize,
    #[serde(default)]
    summary_index: usize,
    #[serde(default, borrow)]
    delta: Cow<'a, str>,
    #[serde(borrow)]
    item: Option<&'a RawValue>,
    response: Option<Response>,
}

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(default)]
    call_id: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    arguments: String,
    #[serde(default)]
    content: Option<Vec<Content>>,
    #[serde(default)]
    encrypted_content: Option<String>,
}

#[derive(Deserialize)]
struct Content {
    #[serde(default)]
    text: String,
    #[serde(default)]
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

#[derive(Deserialize)]
struct Usage {
    #[serde(default)]
    input_tokens: u64,
    input_tokens_details: Option<Details>,
    #[serde(default)]
    output_tokens: u64,
}

#[derive(Deserialize)]
struct Details {
    #[serde(default)]
    cached_tokens: u64,
}

impl Decoder for Stream {
    fn take(&mut self, event: Event<'_>, tell: &mut Told) -> Result<(), ModelError> {
        let piece: Piece<'_> = answer::json(event.data)?;
        let at = piece.output_index;
        match &*piece.kind {
            "response.output_item.added" => {
                let Some(item) = piece.item else {
                    return Ok(());
                };
                let item: Item<'_> = answer::json(item.get())?;
                if item.kind == "function_call" {
                    self.answer.call(at, &item.call_id, &item.name, tell);
                }
                Ok(())
            }
            "response.output_text.delta" => self.answer.text(at, &piece.delta, tell),
            "response.refusal.delta" => {
                self.refused = true;
                self.answer.text(at, &piece.delta, tell)
            }
            "response.reasoning_summary_part.added" if piece.summary_index > 0 => {
                self.answer.thought(at, "\n\n", tell)
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.answer.thought(at, &piece.delta, tell)
            }
            "response.function_call_arguments.delta" => {
                self.answer.arguments(at, &piece.delta, tell)
            }
            "response.output_item.done" => match piece.item {
                Some(item) => self.whole(at, item, tell),
                None => Ok(()),
            },
            "response.completed" | "response.incomplete" => {
                self.done = true;
                self.end(piece.response);
                Ok(())
            }
            "response.failed" => {
                let error = piece.response.and_then(|it| it.error);
                Err(Said::of(&error.unwrap_or_default()).amid_stream())
            }
            "error" => {
                let error: Value = answer::json(event.data)?;
                Err(Said::of(&error).amid_stream())
            }
            _ => Ok(()),
        }
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn finish(self: Box<Self>) -> Result<Heard, ModelError> {
        if !self.done {
            return Err(answer::cut());
        }
        let refused = self.refused.then(|| answer::REFUSAL.to_owned());
        self.answer
            .finish(refused.or(self.stop_reason), self.tokens)
    }
}

impl Stream {
    /// An item that is whole: what no delta told of is taken from it.
    fn whole(&mut self, at: usize, raw: &RawValue, tell: &mut Told) -> Result<(), ModelError> {
        let item: Item<'_> = answer::json(raw.get())?;
        match &*item.kind {
            "function_call" => {
                self.answer.call(at, &item.call_id, &item.name, tell);
                if !self.answer.has_arguments(at) {
                    self.answer.arguments(at, &item.arguments, tell)?;
                }
            }
            "message" if !self.answer.is_text(at) => {
                for content in item.content.unwrap_or_default() {
                    self.answer.text(at, &content.text, tell)?;
                    self.refused |= !content.refusal.is_empty();
                    self.answer.text(at, &content.refusal, tell)?;
                }
            }
            // Only sealed is it worth anything to a provider that has not kept it.
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
        self.stop_reason = reason.or(response.status);
        if let Some(usage) = response.usage {
            self.tokens = Tokens {
                input: usage.input_tokens,
                cached: usage.input_tokens_details.map_or(0, |it| it.cached_tokens),
                cache_write: 0,
                output: usage.output_tokens,
            };
        }
    }
}
