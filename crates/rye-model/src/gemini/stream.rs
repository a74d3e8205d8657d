//! Decodes the response stream of Google's `generateContent` API.

use rye_engine::model::ModelError;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::answer::{self, Assembly, Decoder, DeltaBuffer};
use crate::price::Tokens;
use crate::provider_error::ProviderError;
use crate::sse::Event;

/// The state of the decoder. Parts have even positions; the odd position before each
/// holds its signature.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    answer: Assembly,
    /// Position of the last part.
    last: usize,
    /// The final usage has been received.
    counted: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Piece<'a> {
    #[serde(borrow)]
    candidates: Vec<Candidate<'a>>,
    usage_metadata: Option<Usage>,
    prompt_feedback: Option<Feedback>,
    error: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate<'a> {
    #[serde(borrow)]
    content: Option<Content<'a>>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(default, borrow)]
    parts: Vec<Part<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Part<'a> {
    text: Option<String>,
    thought: bool,
    thought_signature: String,
    #[serde(borrow)]
    function_call: Option<Call<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Call<'a> {
    id: String,
    name: String,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Feedback {
    block_reason: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(clippy::struct_field_names, reason = "names of the API")]
struct Usage {
    prompt_token_count: u64,
    tool_use_prompt_token_count: u64,
    cached_content_token_count: u64,
    candidates_token_count: u64,
    thoughts_token_count: u64,
}

impl Decoder for Stream {
    fn decode(&mut self, event: Event<'_>, deltas: &mut DeltaBuffer) -> Result<(), ModelError> {
        let piece: Piece<'_> = answer::json(event.data)?;
        if let Some(error) = piece.error {
            return Err(ProviderError::from_json(&error).into_stream_error());
        }
        if let Some(reason) = piece.prompt_feedback.and_then(|it| it.block_reason) {
            let message = format!("the prompt was blocked ({reason})");
            return Err(match reason.as_str() {
                "IMAGE_SAFETY" => ModelError::ImageRejected(message),
                _ => ModelError::Refused(message),
            });
        }
        let counts = piece.usage_metadata.is_some();
        self.counted |= counts && self.answer.stop_reason.is_some();
        if let Some(usage) = piece.usage_metadata {
            let (prompt, tools) = (usage.prompt_token_count, usage.tool_use_prompt_token_count);
            let (text, thought) = (usage.candidates_token_count, usage.thoughts_token_count);
            self.answer.tokens = Tokens {
                input: prompt.saturating_add(tools),
                cached: usage.cached_content_token_count,
                cache_write: 0,
                output: text.saturating_add(thought),
            };
        }
        // Only one candidate was requested.
        let Some(candidate) = piece.candidates.into_iter().next() else {
            return Ok(());
        };
        for part in candidate.content.map_or(Vec::new(), |it| it.parts) {
            self.add(&part, deltas)?;
        }
        self.answer.stop_reason = candidate.finish_reason.or(self.answer.stop_reason.take());
        self.counted |= counts && self.answer.stop_reason.is_some();
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.counted
    }

    fn is_content_complete(&self) -> bool {
        self.answer.stop_reason.is_some()
    }

    fn into_answer(self: Box<Self>) -> Assembly {
        self.answer
    }
}

impl Stream {
    fn add(&mut self, part: &Part<'_>, deltas: &mut DeltaBuffer) -> Result<(), ModelError> {
        if let Some(call) = &part.function_call {
            self.last += 2;
            self.answer.call(self.last, &call.id, &call.name, deltas);
            if let Some(args) = call.args {
                self.answer.arguments(self.last, args.get(), deltas)?;
            }
        } else if let Some(text) = &part.text {
            let goes_on = if part.thought {
                self.answer.is_open_thought(self.last)
            } else {
                // A signed part is complete.
                self.answer.is_text(self.last) && !self.answer.has(self.last - 1)
            };
            if !goes_on {
                self.last += 2;
            }
            if part.thought {
                self.answer.thought(self.last, text, deltas)?;
            } else {
                self.answer.text(self.last, text, deltas)?;
            }
        }
        if !part.thought_signature.is_empty() {
            let at = if part.thought {
                self.last
            } else {
                self.last.saturating_sub(1)
            };
            self.answer.signature(at, &part.thought_signature)?;
        }
        Ok(())
    }
}
