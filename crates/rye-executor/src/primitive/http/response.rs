//! HTTP responses as tool output.

use lillux::cas::Cas;
use lillux::process::{CapturedOutput, OutputCapture};
use reqwest::Response;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use serde_json::{Map, Value, json};

use super::error_chain;
use crate::primitive::execute::parse_json;
use crate::primitive::{CallFailure, CallOutcome, record_overflow};

/// Bytes of a body to keep in memory by default.
const DEFAULT_LIMIT: usize = 1 << 20;

/// Bytes of a body to keep in memory, from the configuration.
pub(super) fn limit(config: &Map<String, Value>) -> usize {
    let limit = config.get("max_output").and_then(Value::as_u64);
    limit.map_or(DEFAULT_LIMIT, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    })
}

/// Reads a response to its end.
pub(super) async fn read(
    mut response: Response,
    limit: usize,
    spill: Option<Cas>,
) -> Result<CallOutcome, CallFailure> {
    let status = response.status();
    let headers = response.headers().clone();
    let mut capture = OutputCapture::new(limit, spill.clone());
    loop {
        match response.chunk().await {
            Ok(Some(bytes)) => capture.push(&bytes).await,
            Ok(None) => break,
            Err(error) => {
                let message = format!("the response was interrupted: {}", error_chain(error));
                return Err(CallFailure::new("connection", message));
            }
        }
    }
    let captured = capture.finish().await;
    let mut metadata = Map::new();
    record_overflow(&mut metadata, "body", &captured);
    if captured.overflow.is_none() && std::str::from_utf8(&captured.bytes).is_err() {
        record_binary(&mut metadata, &captured, spill).await;
    }
    let failure = (status.is_client_error() || status.is_server_error())
        .then(|| CallFailure::new("http_status", format!("the server responded with {status}")));
    Ok(CallOutcome {
        data: json!({
            "status": status.as_u16(),
            "headers": headers_json(&headers),
            "body": body(&headers, &captured, &mut metadata),
        }),
        exit_code: None,
        failure,
        metadata,
    })
}

/// Stores a body that is not valid UTF-8, because its text representation is lossy.
async fn record_binary(
    metadata: &mut Map<String, Value>,
    captured: &CapturedOutput,
    spill: Option<Cas>,
) {
    metadata.insert("body_binary".into(), json!(true));
    metadata.insert("body_bytes".into(), json!(captured.total));
    let Some(store) = spill else {
        return;
    };
    let bytes = captured.bytes.clone();
    let stored = tokio::task::spawn_blocking(move || store.put(&bytes)).await;
    if let Ok(Ok(stored)) = stored {
        metadata.insert("body_hash".into(), json!(stored.hash));
    }
}

/// Headers as an object with lower-case names; repeated values are joined with commas.
fn headers_json(headers: &HeaderMap) -> Value {
    let mut all = Map::new();
    for (name, value) in headers {
        let value = String::from_utf8_lossy(value.as_bytes());
        let text = match all.get(name.as_str()).and_then(Value::as_str) {
            Some(before) => format!("{before}, {value}"),
            None => value.into_owned(),
        };
        all.insert(name.as_str().to_owned(), Value::String(text));
    }
    Value::Object(all)
}

/// The body as JSON if the content type says so and it parses, otherwise as text.
fn body(
    headers: &HeaderMap,
    captured: &CapturedOutput,
    metadata: &mut Map<String, Value>,
) -> Value {
    let content_type = headers.get(CONTENT_TYPE);
    let content_type = content_type.and_then(|it| it.to_str().ok());
    let media_type = content_type
        .unwrap_or_default()
        .split(';')
        .next()
        .unwrap_or_default()
        .trim();
    let is_json =
        media_type.eq_ignore_ascii_case("application/json") || media_type.ends_with("+json");
    let text = std::str::from_utf8(&captured.bytes).ok();
    let text = text.filter(|_| is_json && captured.overflow.is_none());
    text.and_then(|text| parse_json(text, metadata))
        .unwrap_or_else(|| Value::String(captured.text().into_owned()))
}
