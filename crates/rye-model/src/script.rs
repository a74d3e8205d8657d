//! What a script says: plain data, read from YAML or put together in Rust.

use rye_protocol::CallId;
use serde_json::Value;

use crate::price::{Price, Tokens};

/// A script of answers, one for each time that the model is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Script {
    /// Tokens that the model can read and write at once.
    pub context_window: u64,
    /// Tokens that it can write at most.
    pub max_output: u64,
    /// What a token costs.
    pub price: Price,
    /// What it does, in order.
    pub steps: Vec<Step>,
    /// What it says when it is to sum a history up, in order, the last one again and again;
    /// if there is nothing, a summary made of the request.
    pub on_summary: Vec<String>,
    /// What it does when the steps are over.
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
    /// A script of these steps.
    pub fn of(steps: impl IntoIterator<Item = Step>) -> Self {
        Self {
            steps: steps.into_iter().collect(),
            ..Self::default()
        }
    }
}

/// What a model does when it is asked once.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// It answers.
    Say(Said),
    /// It fails.
    Fail {
        /// How.
        fault: Fault,
        /// After so many times it does something else; without, it fails each time.
        times: Option<(u32, Said)>,
    },
}

impl Step {
    /// Words alone.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Say(Said {
            text: text.into(),
            ..Said::default()
        })
    }

    /// One call of a tool.
    pub fn call(name: impl Into<String>, args: Value) -> Self {
        Self::calls([(name.into(), args)])
    }

    /// Calls of tools, wanted at once.
    pub fn calls(calls: impl IntoIterator<Item = (String, Value)>) -> Self {
        let call = |(name, args)| ScriptCall {
            name,
            args,
            id: None,
        };
        Self::Say(Said {
            calls: calls.into_iter().map(call).collect(),
            ..Said::default()
        })
    }
}

/// An answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Said {
    /// What it thinks first.
    pub thinking: String,
    /// What it says. `${last_tool_result}` stands for what the last tool gave.
    pub text: String,
    /// What it calls.
    pub calls: Vec<ScriptCall>,
    /// How long it takes to begin, in milliseconds.
    pub delay_ms: u64,
    /// How many characters it says at a time; else all at once.
    pub chunk_chars: Option<usize>,
    /// How long it takes between those, in milliseconds.
    pub chunk_ms: u64,
    /// What it uses up; else an estimate.
    pub usage: Option<Tokens>,
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ScriptCall {
    /// The tool.
    pub name: String,
    /// With what. `${last_tool_result}` is filled in, at any depth.
    pub args: Value,
    /// Its id; else `call-{step}-{number}`, both from 0.
    pub id: Option<CallId>,
}

/// How a model fails.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// It is too busy.
    Overloaded,
    /// It was asked too often.
    RateLimited {
        /// When to ask again, in milliseconds.
        retry_after_ms: Option<u64>,
    },
    /// It was asked too much.
    ContextOverflow,
    /// It says this, and then the connection breaks.
    StreamCut(Said),
    /// It does not take the request.
    InvalidRequest,
}
