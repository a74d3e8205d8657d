//! Parses scripts from YAML. Errors contain their position.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use rye_protocol::CallId;
use rye_protocol::json::find_large_number;
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use serde_saphyr::{Location, Spanned};

use super::{Fault, Script, ScriptCall, ScriptedAnswer, Step};
use crate::price::{Dollars, Price, Tokens};
use crate::yaml_error;

/// An invalid script.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}{excerpt}")]
pub struct ScriptError {
    /// Line, from 1.
    pub line: u64,
    /// Column, from 1.
    pub column: u64,
    /// Description of the problem.
    pub message: String,
    /// The source line with a caret, each on a line of its own.
    pub excerpt: String,
}

impl ScriptError {
    fn at(location: Location, message: impl Into<String>) -> Self {
        Self {
            line: location.line().max(1),
            column: location.column().max(1),
            message: message.into(),
            excerpt: String::new(),
        }
    }

    /// Adds the source line.
    fn in_text(mut self, text: &str) -> Self {
        self.excerpt = yaml_error::excerpt(text, self.line, self.column);
        self
    }
}

impl FromStr for Script {
    type Err = ScriptError;

    fn from_str(text: &str) -> Result<Self, ScriptError> {
        let parsed: Result<RawScript, _> = serde_saphyr::from_str(text);
        let script = parsed.map_err(|error| from_yaml_error(&error));
        let script = script.and_then(RawScript::check);
        script.map_err(|error| error.in_text(text))
    }
}

fn from_yaml_error(error: &serde_saphyr::Error) -> ScriptError {
    let (line, column) = yaml_error::position(error).unwrap_or((1, 1));
    ScriptError {
        line,
        column,
        message: yaml_error::message(error),
        excerpt: String::new(),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawScript {
    context_window: Option<Spanned<u64>>,
    max_output: Option<Spanned<u64>>,
    price: Option<RawPrice>,
    steps: Vec<Spanned<RawStep>>,
    #[serde(default)]
    on_summary: Summaries,
    after_last: Option<Spanned<RawStep>>,
}

/// One summary or a list.
#[derive(Default)]
struct Summaries(Vec<String>);

impl<'de> Deserialize<'de> for Summaries {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct OneOrMore;

        impl<'de> Visitor<'de> for OneOrMore {
            type Value = Summaries;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("a summary, or a list of them")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Summaries, E> {
                Ok(Summaries(vec![text.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Summaries, A::Error> {
                let mut summaries = Vec::new();
                while let Some(summary) = all.next_element()? {
                    summaries.push(summary);
                }
                Ok(Summaries(summaries))
            }
        }

        from.deserialize_any(OneOrMore)
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawPrice {
    input: Dollars,
    output: Dollars,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawStep {
    text: Option<String>,
    thinking: Option<String>,
    #[serde(default)]
    tool_calls: Vec<Spanned<RawCall>>,
    delay_ms: Option<u64>,
    chunk_chars: Option<usize>,
    chunk_ms: Option<u64>,
    usage: Option<RawUsage>,
    error: Option<RawFault>,
    retry_after_ms: Option<u64>,
    times: Option<u32>,
    then: Option<Box<Spanned<RawStep>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCall {
    name: String,
    #[serde(default)]
    args: Map<String, Value>,
    id: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawUsage {
    input: u64,
    cached: u64,
    output: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RawFault {
    Overloaded,
    RateLimited,
    ContextOverflow,
    StreamCut,
    InvalidRequest,
}

impl RawScript {
    fn check(self) -> Result<Script, ScriptError> {
        let default = Script::default();
        let positive = |spanned: Option<Spanned<u64>>, default| match spanned {
            Some(spanned) if spanned.value == 0 => {
                Err(ScriptError::at(spanned.referenced, "must be at least 1"))
            }
            spanned => Ok(spanned.map_or(default, |spanned| spanned.value)),
        };
        let price = self.price.unwrap_or_default();
        let steps: Result<_, _> = self.steps.into_iter().map(step).collect();
        Ok(Script {
            context_window: positive(self.context_window, default.context_window)?,
            max_output: positive(self.max_output, default.max_output)?,
            price: Price {
                input: price.input.0,
                output: price.output.0,
                ..Price::default()
            },
            steps: steps?,
            on_summary: self.on_summary.0,
            after_last: match self.after_last {
                Some(step_yaml) => step(step_yaml)?,
                None => default.after_last,
            },
        })
    }
}

fn step(spanned: Spanned<RawStep>) -> Result<Step, ScriptError> {
    let location = spanned.referenced;
    let invalid = |what: &str| Err(ScriptError::at(location, what));
    let mut text = spanned.value;
    let Some(error) = text.error else {
        if text.times.is_some() || text.then.is_some() || text.retry_after_ms.is_some() {
            return invalid("`times`, `then` and `retry_after_ms` require an `error`");
        }
        if !text.has_content() {
            return invalid("a step needs `text`, `thinking`, `tool_calls` or `error`");
        }
        return Ok(Step::Answer(answer(text, location)?));
    };
    let times = match (text.times.take(), text.then.take()) {
        (None, None) => None,
        (Some(0), _) => return invalid("`times` must be at least 1"),
        (Some(times), Some(then)) => {
            let location = then.referenced;
            match step(*then)? {
                Step::Answer(answer) => Some((times, answer)),
                Step::Fail { .. } => {
                    return Err(ScriptError::at(
                        location,
                        "`then` must be an answer, not an error",
                    ));
                }
            }
        }
        _ => return invalid("`times` and `then` must be used together"),
    };
    if error != RawFault::StreamCut && text.has_content() {
        return invalid("only the error `stream_cut` can have content before it");
    }
    if error != RawFault::RateLimited && text.retry_after_ms.is_some() {
        return invalid("`retry_after_ms` requires the error `rate_limited`");
    }
    if !text.tool_calls.is_empty() {
        return invalid("`stream_cut` cannot have `tool_calls`");
    }
    let fault = match error {
        RawFault::Overloaded => Fault::Overloaded,
        RawFault::RateLimited => Fault::RateLimited {
            retry_after_ms: text.retry_after_ms,
        },
        RawFault::ContextOverflow => Fault::ContextOverflow,
        RawFault::StreamCut => Fault::StreamCut(answer(text, location)?),
        RawFault::InvalidRequest => Fault::InvalidRequest,
    };
    Ok(Step::Fail { fault, times })
}

impl RawStep {
    fn has_content(&self) -> bool {
        self.text.is_some() || self.thinking.is_some() || !self.tool_calls.is_empty()
    }
}

fn answer(text: RawStep, location: Location) -> Result<ScriptedAnswer, ScriptError> {
    if text.chunk_chars == Some(0) {
        return Err(ScriptError::at(
            location,
            "`chunk_chars` must be at least 1",
        ));
    }
    let calls: Result<Vec<_>, _> = text.tool_calls.into_iter().map(call).collect();
    let calls = calls?;
    let mut ids = HashSet::new();
    let mut ids_in_use = calls.iter().filter_map(|call| call.id.as_ref());
    if let Some(duplicate) = ids_in_use.find(|id| !ids.insert(*id)) {
        let what = format!("duplicate call id `{duplicate}`");
        return Err(ScriptError::at(location, what));
    }
    Ok(ScriptedAnswer {
        thinking: text.thinking.unwrap_or_default(),
        text: text.text.unwrap_or_default(),
        calls,
        delay_ms: text.delay_ms.unwrap_or_default(),
        chunk_chars: text.chunk_chars,
        chunk_ms: text.chunk_ms.unwrap_or_default(),
        usage: text.usage.map(|usage| Tokens {
            input: usage.input,
            cached: usage.cached,
            cache_write: 0,
            output: usage.output,
        }),
    })
}

fn call(spanned: Spanned<RawCall>) -> Result<ScriptCall, ScriptError> {
    let location = spanned.referenced;
    let RawCall { name, args, id } = spanned.value;
    if name.is_empty() {
        return Err(ScriptError::at(location, "`name` must not be empty"));
    }
    let id: Option<CallId> = id
        .map(|id| id.parse())
        .transpose()
        .map_err(|error: rye_protocol::IdError| ScriptError::at(location, error.to_string()))?;
    let args = Value::Object(args);
    if let Some(number) = find_large_number(&args) {
        let what = format!(
            "`args` has a number with more than 64 bits, about {number}; write it in quotes"
        );
        return Err(ScriptError::at(location, what));
    }
    Ok(ScriptCall { name, args, id })
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
