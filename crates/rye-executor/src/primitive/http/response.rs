//! What a server answered, as data.

use lillux::cas::Cas;
use lillux::process::{CapturedOutput, OutputCapture};
use reqwest::Response;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use serde_json::{Map, Value, json};

use super::causes;
use crate::primitive::{CallFailure, CallOutcome, note_overflow};

/// How much of a body stays in memory.
const LIMIT: usize = 1 << 20;

/// How much of a body stays in memory, as the configuration says.
pub(super) fn limit(config: &Map<String, Value>) -> usize {
    let asked = config.get("max_output").and_then(Value::as_u64);
    asked.map_or(LIMIT, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Reads an answer to its end.
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
                let why = format!("the answer broke off: {}", causes(error));
                return Err(CallFailure::new("connection", why));
            }
        }
    }
    let captured = capture.finish().await;
    let mut metadata = Map::new();
    note_overflow(&mut metadata, "body", &captured);
    if captured.overflow.is_none() && std::str::from_utf8(&captured.bytes).is_err() {
        note_binary(&mut metadata, &captured, spill).await;
    }
    let failure = (status.is_client_error() || status.is_server_error())
        .then(|| CallFailure::new("http_status", format!("the server answered {status}")));
    Ok(CallOutcome {
        data: json!({
            "status": status.as_u16(),
            "headers": listed(&headers),
            "body": body(&headers, &captured),
        }),
        exit_code: None,
        failure,
        metadata,
    })
}

/// What is not text is kept whole elsewhere: as text it is not what was sent.
async fn note_binary(
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

/// Names in lower case; values of one name behind each other.
fn listed(headers: &HeaderMap) -> Value {
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

/// JSON where the answer says that it is, and is; else text.
fn body(headers: &HeaderMap, captured: &CapturedOutput) -> Value {
    let kind = headers.get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let is_json = kind.eq_ignore_ascii_case("application/json") || kind.ends_with("+json");
    let parsed = (is_json && captured.overflow.is_none())
        .then(|| serde_json::from_slice(&captured.bytes).ok());
    parsed
        .flatten()
        .unwrap_or_else(|| Value::String(captured.text().into_owned()))
}
