//! A model that plays a script.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rye_engine::BoxFuture;
use rye_engine::model::{Delta, Deltas, Model, ModelAnswer, ModelError, ModelInfo, ModelRequest};
use rye_protocol::{CallId, Message, Part, Role};
use tokio::time::sleep;

use crate::placeholder;
use crate::price::Tokens;
use crate::script::{Fault, Script, ScriptedAnswer, Step};

/// A model that plays a [`Script`].
///
/// It is stateless: the step is the number of answers in the history, including those
/// in summaries, so every process gives the same answer to the same history. A request
/// that exceeds the script's context window fails with a context overflow.
///
/// The exception is an `error` with `times`: failures are counted per step for the
/// lifetime of this value, across all callers.
#[derive(Debug)]
pub struct ScriptedModel {
    script: Script,
    failed: Mutex<HashMap<usize, u32>>,
}

impl From<Script> for ScriptedModel {
    fn from(script: Script) -> Self {
        Self {
            script,
            failed: Mutex::default(),
        }
    }
}

impl Model for ScriptedModel {
    fn info(&self) -> ModelInfo {
        ModelInfo {
            context_window: self.script.context_window,
            max_output: self.script.max_output,
            images: false,
        }
    }

    fn call(
        &self,
        request: ModelRequest,
        deltas: Deltas,
    ) -> BoxFuture<'_, Result<ModelAnswer, ModelError>> {
        Box::pin(async move {
            if request.for_summary {
                let answer = ScriptedAnswer {
                    text: self.summary(&request),
                    ..ScriptedAnswer::default()
                };
                return Ok(self.answer(0, &answer, &request, &deltas).await);
            }
            let tokens = estimate(&request, &[]).input;
            if tokens > self.script.context_window {
                let window = self.script.context_window;
                let message = format!("{tokens} tokens exceed the context window of {window}");
                return Err(ModelError::ContextOverflow(message));
            }
            let answers = request.messages.iter();
            let answers = answers.filter(|it| it.role == Role::Assistant).count();
            let number = request.compacted_answers + answers;
            let step = self.script.steps.get(number);
            let step = step.unwrap_or(&self.script.after_last);
            self.take(number, step, &request, &deltas).await
        })
    }
}

impl ScriptedModel {
    async fn take(
        &self,
        number: usize,
        step: &Step,
        request: &ModelRequest,
        deltas: &Deltas,
    ) -> Result<ModelAnswer, ModelError> {
        match step {
            Step::Answer(answer) => Ok(self.answer(number, answer, request, deltas).await),
            Step::Fail {
                times: Some((times, then)),
                ..
            } if !self.fails_again(number, *times) => {
                Ok(self.answer(number, then, request, deltas).await)
            }
            Step::Fail { fault, .. } => Err(fail(number, fault, request, deltas).await),
        }
    }

    fn fails_again(&self, step: usize, times: u32) -> bool {
        let mut failed = self.failed.lock();
        let count = failed.entry(step).or_default();
        let again = *count < times;
        *count = count.saturating_add(1);
        again
    }

    async fn answer(
        &self,
        number: usize,
        answer: &ScriptedAnswer,
        request: &ModelRequest,
        deltas: &Deltas,
    ) -> ModelAnswer {
        let last = placeholder::last_result(&request.messages);
        let text = placeholder::expand(&answer.text, last);
        emit(answer, &text, deltas).await;
        let mut parts = Vec::new();
        if !answer.thinking.is_empty() {
            let (text, signature) = (answer.thinking.clone(), None);
            parts.push(Part::Thinking { text, signature });
        }
        if !text.is_empty() {
            parts.push(Part::Text { text });
        }
        for (index, call) in answer.calls.iter().enumerate() {
            parts.push(Part::ToolCall {
                call_id: call.id.clone().unwrap_or_else(|| call_id(number, index)),
                tool: call.name.clone(),
                args: placeholder::expand_value(&call.args, last),
            });
        }
        let usage = answer.usage.unwrap_or_else(|| estimate(request, &parts));
        let stop_reason = if answer.calls.is_empty() {
            "end_turn"
        } else {
            "tool_use"
        };
        ModelAnswer {
            parts,
            stop_reason: Some(stop_reason.to_owned()),
            incomplete: None,
            usage: self.script.price.usage(usage),
        }
    }

    /// The scripted summary, or a generated one with all headings.
    fn summary(&self, request: &ModelRequest) -> String {
        let summaries = &self.script.on_summary;
        let scripted = summaries.get(request.previous_compactions);
        if let Some(summary) = scripted.or(summaries.last()) {
            return summary.clone();
        }
        let of = |role: Role| request.messages.iter().filter(move |it| it.role == role);
        let words = |message: Option<&Arc<Message>>| {
            let text = message.map(|it| it.content()).unwrap_or_default();
            let line: String = text
                .lines()
                .next()
                .unwrap_or_default()
                .chars()
                .take(200)
                .collect();
            if line.is_empty() {
                "(none)".to_owned()
            } else {
                line
            }
        };
        let goal = words(of(Role::User).next());
        let done = words(of(Role::Assistant).next_back());
        let answer = request.messages.len();
        format!(
            "## Goal\n{goal}\n\n\
             ## Constraints & Preferences\n(none)\n\n\
             ## Progress\n### Done\n{done}\n### In Progress\n(none)\n### Blocked\n(none)\n\n\
             ## Key Decisions\n(none)\n\n\
             ## Next Steps\n(none)\n\n\
             ## Critical Context\n{answer} messages\n\n\
             ## Relevant Files\n(none)\n"
        )
    }
}

async fn fail(number: usize, fault: &Fault, request: &ModelRequest, deltas: &Deltas) -> ModelError {
    let says = || format!("simulated by step {number} of the script");
    match fault {
        Fault::Overloaded => ModelError::Overloaded {
            message: says(),
            retry_after: None,
        },
        Fault::RateLimited { retry_after_ms } => ModelError::RateLimited {
            message: says(),
            retry_after: retry_after_ms.map(Duration::from_millis),
        },
        Fault::ContextOverflow => ModelError::ContextOverflow(says()),
        Fault::StreamCut(answer) => {
            let last = placeholder::last_result(&request.messages);
            emit(answer, &placeholder::expand(&answer.text, last), deltas).await;
            ModelError::Connection(says())
        }
        Fault::InvalidRequest => ModelError::Refused(says()),
    }
}

/// Emits the answer's deltas.
async fn emit(answer: &ScriptedAnswer, text: &str, deltas: &Deltas) {
    if answer.delay_ms > 0 {
        sleep(Duration::from_millis(answer.delay_ms)).await;
    }
    let mut first = true;
    for (words, delta) in [
        (
            answer.thinking.as_str(),
            Delta::Thinking as fn(String) -> Delta,
        ),
        (text, Delta::Text),
    ] {
        for chunk in chunks(words, answer.chunk_chars) {
            if !first && answer.chunk_ms > 0 {
                sleep(Duration::from_millis(answer.chunk_ms)).await;
            }
            first = false;
            deltas(delta(chunk.to_owned()));
        }
    }
}

/// Splits a text into chunks of `size` characters.
fn chunks(mut text: &str, size: Option<usize>) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let ends = size.and_then(|size| text.char_indices().nth(size));
        let (chunk, rest) = text.split_at(ends.map_or(text.len(), |(end, _)| end));
        text = rest;
        (!chunk.is_empty()).then_some(chunk)
    })
}

fn call_id(step: usize, index: usize) -> CallId {
    let id = format!("call-{step}-{index}").try_into();
    // Always a valid id.
    id.unwrap_or_else(|_| CallId::new())
}

/// Estimates one token per four bytes.
fn estimate(request: &ModelRequest, answer: &[Part]) -> Tokens {
    let history = request.messages.iter().flat_map(|it| &it.parts).map(size);
    Tokens {
        // Without the system prompt, which depends on the machine.
        input: history.sum::<u64>().div_ceil(4),
        output: answer.iter().map(size).sum::<u64>().div_ceil(4),
        ..Tokens::default()
    }
}

fn size(part: &Part) -> u64 {
    let bytes = match part {
        Part::Text { text } | Part::Thinking { text, .. } | Part::ToolResult { text, .. } => {
            text.len()
        }
        Part::ToolCall { tool, args, .. } => tool.len() + args.to_string().len(),
        Part::Attachment { .. } | Part::Error { .. } => 0,
    };
    bytes as u64
}
