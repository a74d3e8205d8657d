//! Scripts: predefined answers, parsed from YAML or built in Rust.

mod parse;

use rye_protocol::CallId;
use serde_json::Value;

use crate::price::{Price, Tokens};

pub use parse::ScriptError;

/// A script of answers, one per model call.
#[derive(Debug, Clone, PartialEq)]
pub struct Script {
    /// Context window in tokens.
    pub context_window: u64,
    /// Maximum output in tokens.
    pub max_output: u64,
    /// Price per token.
    pub price: Price,
    /// The answers, in order.
    pub steps: Vec<Step>,
    /// Answers to compaction requests, in order; the last one repeats. If empty, a
    /// summary is generated from the request.
    pub on_summary: Vec<String>,
    /// The answer after the last step.
    pub after_last: Step,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            context_window: 200_000,
            max_output: 8_192,
            price: Price::default(),
            steps: Vec::new(),
            on_summary: Vec::new(),
            after_last: Step::text("(end of script)"),
        }
    }
}

impl Script {
    /// A script with these steps and default settings.
    pub fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        Self {
            steps: steps.into_iter().collect(),
            ..Self::default()
        }
    }
}

/// The reaction to one model call.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// The model answers.
    Answer(ScriptedAnswer),
    /// The call fails.
    Fail {
        /// Simulated error.
        fault: Fault,
        /// Number of failures, and the answer after them; without it, every call fails.
        times: Option<(u32, ScriptedAnswer)>,
    },
}

impl Step {
    /// An answer with text only.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Answer(ScriptedAnswer {
            text: text.into(),
            ..ScriptedAnswer::default()
        })
    }

    /// An answer with one tool call.
    pub fn call(name: impl Into<String>, args: Value) -> Self {
        Self::calls([(name.into(), args)])
    }

    /// An answer with several tool calls.
    pub fn calls(calls: impl IntoIterator<Item = (String, Value)>) -> Self {
        let call = |(name, args)| ScriptCall {
            name,
            args,
            id: None,
        };
        Self::Answer(ScriptedAnswer {
            calls: calls.into_iter().map(call).collect(),
            ..ScriptedAnswer::default()
        })
    }
}

/// A scripted answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ScriptedAnswer {
    /// Reasoning before the text.
    pub thinking: String,
    /// Text. `${last_tool_result}` is replaced by the last tool result.
    pub text: String,
    /// Tool calls after the text.
    pub calls: Vec<ScriptCall>,
    /// Delay before the first delta, in milliseconds.
    pub delay_ms: u64,
    /// Characters per delta; all at once if not set.
    pub chunk_chars: Option<usize>,
    /// Delay between deltas, in milliseconds.
    pub chunk_ms: u64,
    /// Token usage; estimated if not set.
    pub usage: Option<Tokens>,
}

/// A scripted tool call.
#[derive(Debug, Clone, PartialEq)]
pub struct ScriptCall {
    /// Name of the tool.
    pub name: String,
    /// Arguments. `${last_tool_result}` is replaced at any depth.
    pub args: Value,
    /// Call id; defaults to `call-{step}-{number}`, both from 0.
    pub id: Option<CallId>,
}

/// A simulated error.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// The provider is overloaded.
    Overloaded,
    /// The rate limit is exceeded.
    RateLimited {
        /// Suggested delay, in milliseconds.
        retry_after_ms: Option<u64>,
    },
    /// The context exceeds the window.
    ContextOverflow,
    /// The connection breaks after this content.
    StreamCut(ScriptedAnswer),
    /// The request is rejected.
    InvalidRequest,
}
