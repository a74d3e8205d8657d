//! Interprets error responses of providers.

use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822;
use rye_engine::model::ModelError;
use serde_json::Value;

/// Maximum length of a repeated message, in characters.
const MAX_MESSAGE_LEN: usize = 600;
/// Maximum length of a message shortened to one line.
const MAX_LINE_LEN: usize = 200;

/// An error reported by a provider.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ProviderError {
    /// The provider's error code, if any.
    pub(crate) kind: String,
    pub(crate) message: String,
    pub(crate) retry_after: Option<Duration>,
}

impl ProviderError {
    /// Parses an error response. Every server has its own format.
    pub(crate) fn parse(body: &str) -> Self {
        let Ok(body) = serde_json::from_str::<Value>(body) else {
            let message = body.trim().to_owned();
            return Self {
                message,
                ..Self::default()
            };
        };
        Self::from_json(match &body {
            Value::Array(all) => all.first().unwrap_or(&Value::Null),
            other => other,
        })
    }

    /// Parses JSON that is or contains the error object.
    pub(crate) fn from_json(body: &Value) -> Self {
        let error = body.get("error").filter(|it| !it.is_null()).unwrap_or(body);
        if let Value::String(message) = error {
            let message = message.clone();
            return Self {
                message,
                ..Self::default()
            };
        }
        let codes = ["code", "status", "type"].map(|name| match error.get(name) {
            Some(Value::String(code)) => code.clone(),
            Some(Value::Number(number)) => number.to_string(),
            _ => String::new(),
        });
        let known = codes.iter().find(|code| status_of(code).is_some());
        let kind = known.or_else(|| codes.iter().find(|code| !code.is_empty()));
        let message = ["message", "detail"]
            .into_iter()
            .find_map(|name| error.get(name)?.as_str());
        Self {
            kind: kind.cloned().unwrap_or_default(),
            message: message.map_or_else(|| error.to_string(), str::to_owned),
            retry_after: error.get("details").and_then(retry_delay),
        }
    }

    /// The HTTP status that corresponds to the error code, if any.
    pub(crate) fn status(&self) -> Option<u16> {
        status_of(&self.kind)
    }

    /// Converts an error that occurred within a stream.
    pub(crate) fn into_stream_error(self) -> ModelError {
        // Most errors within a stream are caused by the server, not by the request.
        let otherwise = if self.kind.starts_with("invalid") {
            400
        } else {
            500
        };
        let status = status_of(&self.kind).unwrap_or(otherwise);
        self.into_model_error(status)
    }

    /// Converts an error with the HTTP status of the response.
    pub(crate) fn into_model_error(self, status: u16) -> ModelError {
        let Self {
            kind,
            message,
            retry_after,
        } = self;
        let is_about_images = is_about_images(&kind, &message);
        let overflows = status_of(&kind) == Some(413) || is_overflow(&message);
        let message = match message.as_str() {
            "" if kind.is_empty() => format!("status {status}"),
            "" => kind,
            _ => message,
        };
        if overflows {
            return ModelError::ContextOverflow(message);
        }
        // Google reports an invalid key as an invalid request.
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
            400.. if is_about_images => ModelError::ImageRejected(message),
            _ => ModelError::Refused(message),
        }
    }
}

/// The HTTP status that corresponds to a provider's error code.
fn status_of(code: &str) -> Option<u16> {
    Some(match code {
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

/// Recognises context overflow by the message: some servers have no code for it.
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

/// Whether an error is about an image in the request. Only `OpenAI` has codes for it, such as
/// `invalid_image_format`; other providers report an invalid request and say so in the message.
fn is_about_images(code: &str, message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    code.contains("image")
        || status_of(code) != Some(404)
            && ["image", "media"].iter().any(|word| message.contains(word))
}

/// `retryDelay` in the details of a Google error.
fn retry_delay(details: &Value) -> Option<Duration> {
    let details = details.as_array()?;
    let text = details
        .iter()
        .find_map(|it| it.get("retryDelay")?.as_str())?;
    let seconds: f64 = text.strip_suffix('s')?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// Parses `Retry-After`: seconds or a date.
pub(crate) fn retry_after(text: &str, now: Timestamp) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    Some(Duration::try_from(date.duration_since(now)).unwrap_or_default())
}

/// Truncates a message and escapes control characters. Redact it first: a truncated
/// secret would not be recognised.
pub(crate) fn short(text: &str) -> String {
    truncate(text, MAX_MESSAGE_LEN)
}

/// The same for the first non-empty line.
pub(crate) fn first_line(text: &str) -> String {
    truncate(text.trim().lines().next().unwrap_or_default(), MAX_LINE_LEN)
}

fn truncate(text: &str, max_len: usize) -> String {
    let text = text.trim();
    let is_control = |letter: char| letter.is_control() && !matches!(letter, '\n' | '\t');
    let mut short = String::new();
    for (number, letter) in text.chars().enumerate() {
        if number == max_len {
            short.push('…');
            break;
        }
        if is_control(letter) {
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

    fn code(error: &ModelError) -> &'static str {
        match error {
            ModelError::Overloaded { .. } => "overloaded",
            ModelError::RateLimited { .. } => "rate limited",
            ModelError::ContextOverflow(_) => "overflow",
            ModelError::Unauthorized(_) => "unauthorized",
            ModelError::Refused(_) => "refused",
            ModelError::ImageRejected(_) => "image rejected",
            _ => "other",
        }
    }

    #[test]
    fn error_formats_of_all_providers_are_recognised() {
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
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"messages.0.content.1: Could not process image"}}"#,
                "image rejected",
                "Could not process",
            ),
            (
                400,
                r#"{"error":{"message":"Unsupported file.","type":"invalid_request_error","code":"invalid_image_format"}}"#,
                "image rejected",
                "Unsupported file",
            ),
            (
                404,
                r#"{"error":{"message":"No such model: image-1.","type":"invalid_request_error","code":"model_not_found"}}"#,
                "refused",
                "image-1",
            ),
            (502, "<html>bad gateway</html>", "overloaded", "bad gateway"),
            (500, "", "overloaded", "status 500"),
            (422, r#"{"detail":"no"}"#, "refused", "no"),
        ] {
            let error = ProviderError::parse(body).into_model_error(status);
            assert_eq!(code(&error), means, "{body}");
            assert!(error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn messages_are_truncated_and_escaped() {
        assert_eq!(short(" a\u{1b}[31m\nb\r\n"), "a\\u{1b}[31m\nb");
        assert_eq!(first_line("\n <h1>\u{7}\n</h1>"), "<h1>\\u{7}");
        assert_eq!(
            short(&"ä".repeat(MAX_MESSAGE_LEN + 1)).chars().count(),
            MAX_MESSAGE_LEN + 1
        );
        assert!(first_line(&"x".repeat(999)).ends_with("x…"));
    }

    #[test]
    fn code_determines_the_error_within_a_stream() {
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
            assert_eq!(
                code(&ProviderError::parse(body).into_stream_error()),
                means,
                "{body}"
            );
        }
    }

    #[test]
    fn retry_after_is_parsed_from_headers_and_details() {
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
        let error = ProviderError::parse(body).into_model_error(429);
        assert_eq!(error.retry_after(), Some(Duration::from_millis(21_500)));
    }
}
