//! Why there is no answer, from what a provider says.

use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822;
use rye_engine::model::ModelError;
use serde_json::Value;

/// How much of a message is repeated.
const LONGEST: usize = 600;
/// And of one that is to be a line.
const LONGEST_LINE: usize = 200;

/// What a provider said went wrong.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Said {
    /// Its word for it, if it has one.
    pub(crate) kind: String,
    pub(crate) message: String,
    pub(crate) retry_after: Option<Duration>,
}

impl Said {
    /// Reads the body of an answer that is none. Every server has a form of its own.
    pub(crate) fn read(body: &str) -> Self {
        let Ok(body) = serde_json::from_str::<Value>(body) else {
            let message = body.trim().to_owned();
            return Self {
                message,
                ..Self::default()
            };
        };
        Self::of(match &body {
            Value::Array(all) => all.first().unwrap_or(&Value::Null),
            other => other,
        })
    }

    /// The same of JSON, with the error inside or being it.
    pub(crate) fn of(body: &Value) -> Self {
        let error = body.get("error").filter(|it| !it.is_null()).unwrap_or(body);
        if let Value::String(message) = error {
            let message = message.clone();
            return Self {
                message,
                ..Self::default()
            };
        }
        let words = ["code", "status", "type"].map(|name| match error.get(name) {
            Some(Value::String(word)) => word.clone(),
            Some(Value::Number(number)) => number.to_string(),
            _ => String::new(),
        });
        let known = words.iter().find(|word| status_of(word).is_some());
        let kind = known.or_else(|| words.iter().find(|word| !word.is_empty()));
        let message = ["message", "detail"]
            .into_iter()
            .find_map(|name| error.get(name)?.as_str());
        Self {
            kind: kind.cloned().unwrap_or_default(),
            message: message.map_or_else(|| error.to_string(), str::to_owned),
            retry_after: error.get("details").and_then(retry_delay),
        }
    }

    /// The status that goes with its word for it, if one does.
    pub(crate) fn status(&self) -> Option<u16> {
        status_of(&self.kind)
    }

    /// What it means when it comes amid a stream.
    pub(crate) fn amid_stream(self) -> ModelError {
        // Most of what breaks off an answer is the server's trouble, not the request's.
        let otherwise = if self.kind.starts_with("invalid") {
            400
        } else {
            500
        };
        let status = status_of(&self.kind).unwrap_or(otherwise);
        self.with_status(status)
    }

    /// What it means with the status of the answer.
    pub(crate) fn with_status(self, status: u16) -> ModelError {
        let Self {
            kind,
            message,
            retry_after,
        } = self;
        let overflows = status_of(&kind) == Some(413) || is_overflow(&message);
        let message = match message.as_str() {
            "" if kind.is_empty() => format!("status {status}"),
            "" => kind,
            _ => message,
        };
        if overflows {
            return ModelError::ContextOverflow(message);
        }
        // Google's word for a wrong key is that the request is wrong.
        if message.contains("API key not valid") {
            return ModelError::Unauthorized(message);
        }
        match status {
            401 | 403 => ModelError::Unauthorized(message),
            413 => ModelError::ContextOverflow(message),
            429 => ModelError::RateLimited {
                message,
                retry_after,
            },
            408 | 500.. => ModelError::Overloaded {
                message,
                retry_after,
            },
            _ => ModelError::Refused(message),
        }
    }
}

/// The status that a provider's word for an error goes with.
fn status_of(word: &str) -> Option<u16> {
    Some(match word {
        "authentication_error" | "invalid_api_key" | "UNAUTHENTICATED" => 401,
        "permission_error" | "PERMISSION_DENIED" => 403,
        "not_found_error" | "model_not_found" | "NOT_FOUND" => 404,
        "context_length_exceeded" | "request_too_large" | "exceed_context_size_error" => 413,
        "rate_limit_error"
        | "rate_limit_exceeded"
        | "insufficient_quota"
        | "RESOURCE_EXHAUSTED" => 429,
        "overloaded_error" | "UNAVAILABLE" => 529,
        "api_error" | "server_error" | "timeout_error" | "INTERNAL" => 500,
        number => number.parse().ok().filter(|it| (400..600).contains(it))?,
    })
}

/// Servers differ in what they call it, and some have no word for it at all.
fn is_overflow(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    [
        "prompt is too long",
        "maximum context length",
        "context length exceeded",
        "exceed context limit",
        "exceeds the available context size",
        "exceeds the context window",
        "exceeds the maximum number of tokens",
    ]
    .iter()
    .any(|words| message.contains(words))
}

/// `retryDelay` among the details of an error of Google's.
fn retry_delay(details: &Value) -> Option<Duration> {
    let details = details.as_array()?;
    let text = details
        .iter()
        .find_map(|it| it.get("retryDelay")?.as_str())?;
    let seconds: f64 = text.strip_suffix('s')?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// `Retry-After`: seconds, or a date.
pub(crate) fn retry_after(text: &str, now: Timestamp) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    Some(Duration::try_from(date.duration_since(now)).unwrap_or_default())
}

/// A message that is not too long, without what a terminal would obey. To be masked before:
/// half a secret is not found any more.
pub(crate) fn short(text: &str) -> String {
    cut(text, LONGEST)
}

/// The same of the first line that says something.
pub(crate) fn first_line(text: &str) -> String {
    cut(text.trim().lines().next().unwrap_or_default(), LONGEST_LINE)
}

fn cut(text: &str, longest: usize) -> String {
    let text = text.trim();
    let is_odd = |letter: char| letter.is_control() && !matches!(letter, '\n' | '\t');
    let mut short = String::new();
    for (number, letter) in text.chars().enumerate() {
        if number == longest {
            short.push('…');
            break;
        }
        if is_odd(letter) {
            short.extend(letter.escape_default());
        } else {
            short.push(letter);
        }
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(error: &ModelError) -> &'static str {
        match error {
            ModelError::Overloaded { .. } => "overloaded",
            ModelError::RateLimited { .. } => "rate limited",
            ModelError::ContextOverflow(_) => "overflow",
            ModelError::Unauthorized(_) => "unauthorized",
            ModelError::Refused(_) => "refused",
            _ => "other",
        }
    }

    #[test]
    fn every_providers_words_are_understood() {
        for (status, body, means, says) in [
            (
                401,
                r#"{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"},"request_id":"req_1"}"#,
                "unauthorized",
                "invalid x-api-key",
            ),
            (
                529,
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
                "overloaded",
                "Overloaded",
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 208310 tokens > 200000 maximum"}}"#,
                "overflow",
                "208310",
            ),
            (
                400,
                r#"{"error":{"message":"Your input is too much for this model.","type":"invalid_request_error","param":"input","code":"context_length_exceeded"}}"#,
                "overflow",
                "too much",
            ),
            (
                429,
                r#"{"error":{"message":"You exceeded your current quota.","type":"insufficient_quota","code":"insufficient_quota"}}"#,
                "rate limited",
                "quota",
            ),
            (
                404,
                r#"{"error":{"message":"The model does not exist.","type":"invalid_request_error","code":"model_not_found"}}"#,
                "refused",
                "does not exist",
            ),
            (
                400,
                r#"[{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT"}}]"#,
                "unauthorized",
                "API key not valid",
            ),
            (
                503,
                r#"{"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}"#,
                "overloaded",
                "is overloaded",
            ),
            (
                404,
                r#"{"error":"model 'x' not found"}"#,
                "refused",
                "model 'x' not found",
            ),
            (
                400,
                r#"{"object":"error","message":"This model's maximum context length is 4096 tokens.","type":"BadRequestError","code":400}"#,
                "overflow",
                "4096",
            ),
            (502, "<html>bad gateway</html>", "overloaded", "bad gateway"),
            (500, "", "overloaded", "status 500"),
            (422, r#"{"detail":"no"}"#, "refused", "no"),
        ] {
            let error = Said::read(body).with_status(status);
            assert_eq!(word(&error), means, "{body}");
            assert!(error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn a_message_is_short_and_does_nothing_to_a_terminal() {
        assert_eq!(short(" a\u{1b}[31m\nb\r\n"), "a\\u{1b}[31m\nb");
        assert_eq!(first_line("\n <h1>\u{7}\n</h1>"), "<h1>\\u{7}");
        assert_eq!(short(&"ä".repeat(LONGEST + 1)).chars().count(), LONGEST + 1);
        assert!(first_line(&"x".repeat(999)).ends_with("x…"));
    }

    #[test]
    fn amid_a_stream_the_word_stands_for_the_status() {
        for (body, means) in [
            (
                r#"{"type":"overloaded_error","message":"Overloaded"}"#,
                "overloaded",
            ),
            (
                r#"{"code":"rate_limit_exceeded","message":"slower"}"#,
                "rate limited",
            ),
            (
                r#"{"code":"context_length_exceeded","message":"longer"}"#,
                "overflow",
            ),
            (r#"{"code":"invalid_prompt","message":"no"}"#, "refused"),
            (
                r#"{"error":{"code":502,"message":"upstream"}}"#,
                "overloaded",
            ),
            (r#"{"message":"who knows"}"#, "overloaded"),
        ] {
            assert_eq!(word(&Said::read(body).amid_stream()), means, "{body}");
        }
    }

    #[test]
    fn when_to_ask_again_is_seconds_or_a_date_or_among_the_details() {
        let now = "1994-11-06T08:49:30Z".parse().unwrap();
        for (text, millis) in [
            ("3", Some(3000)),
            (" 0.5 ", Some(500)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(7000)),
            ("Sun, 06 Nov 1994 08:49:07 GMT", Some(0)),
            ("soon", None),
            ("-1", None),
            ("inf", None),
        ] {
            let expected = millis.map(Duration::from_millis);
            assert_eq!(retry_after(text, now), expected, "{text}");
        }
        let body = r#"{"error":{"code":429,"message":"quota","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"21.5s"}]}}"#;
        let error = Said::read(body).with_status(429);
        assert_eq!(error.retry_after(), Some(Duration::from_millis(21_500)));
    }
}
