//! Google's `streamGenerateContent` API.

use serde_json::{Value, json};

use super::completion::{Completion, deltas};
use super::validate::{self, UniqueIds, ensure, list, not_blank, text};

pub(crate) fn stream(completion: &Completion) -> String {
    let mut parts = Vec::new();
    let mut signature = None;
    if let Some(thinking) = &completion.thinking {
        let thinking_deltas = deltas(&thinking.text);
        parts.extend(thinking_deltas.map(|it| json!({ "text": it, "thought": true })));
        signature = Some(thinking.signature.clone());
    }
    parts.extend(deltas(&completion.text).map(|it| json!({ "text": it })));
    for (number, call) in completion.calls.iter().enumerate() {
        let function = json!({ "id": call.id, "name": call.tool, "args": call.args });
        let mut part = json!({ "functionCall": function });
        if let Some(signature) = signature.take().filter(|_| number == 0) {
            part["thoughtSignature"] = json!(signature);
        }
        parts.push(part);
    }
    if let Some(signature) = signature {
        // Without a call, the signature comes with an empty last part.
        parts.push(json!({ "text": "", "thoughtSignature": signature }));
    }
    let last = parts.len().saturating_sub(1);
    let chunk = |(number, part): (usize, Value)| {
        let mut candidate = json!({ "content": { "parts": [part], "role": "model" }, "index": 0 });
        if number == last {
            candidate["finishReason"] = json!(completion.stop_reason.unwrap_or("STOP"));
        }
        let data = json!({
            "candidates": [candidate],
            "usageMetadata": {
                "promptTokenCount": completion.input_tokens, "candidatesTokenCount": completion.output_tokens,
                "cachedContentTokenCount": completion.cached_tokens,
                "totalTokenCount": completion.input_tokens + completion.output_tokens,
            },
            "modelVersion": "gemini-test", "responseId": "mAitaLmkHPPlz7IPvtfUqQ4",
        });
        (None, data)
    };
    super::events(parts.into_iter().enumerate().map(chunk))
}

pub(crate) fn check(body: &Value) -> Result<(), String> {
    let mut ids = UniqueIds::default();
    let (mut role, mut open) = ("model", Vec::new());
    for content in list(body, "contents")? {
        let next = text(content, "role")?;
        ensure(next != role, || {
            format!("two consecutive turns of role {role}")
        })?;
        role = next;
        let parts = list(content, "parts")?;
        ensure(!parts.is_empty(), || format!("empty turn of role {role}"))?;
        if role == "user" {
            let answered = ids_of(parts, "functionResponse")?;
            ensure(open == answered, || {
                format!("calls {open:?} have the function responses {answered:?}")
            })?;
        }
        for part in parts {
            check_part(role, part)?;
        }
        open = ids_of(parts, "functionCall")?;
        for (id, _) in &open {
            ids.insert(id)?;
        }
    }
    ensure(role == "user", || {
        "the last turn does not have role user".to_owned()
    })
}

/// Id and name of each part of a kind, in order.
fn ids_of(parts: &[Value], kind: &str) -> Result<Vec<(String, String)>, String> {
    let all = parts.iter().filter_map(|part| part.get(kind));
    all.map(|it| Ok((text(it, "id")?.to_owned(), text(it, "name")?.to_owned())))
        .collect()
}

fn check_part(role: &str, part: &Value) -> Result<(), String> {
    let has = |name: &str| part.get(name).is_some();
    match role {
        _ if has("text") => not_blank(part, "text"),
        "user" if has("inlineData") => not_blank(&part["inlineData"], "data"),
        "user" if has("functionResponse") => {
            let response = &part["functionResponse"]["response"];
            ensure(response.is_object(), || {
                format!("`response` is not an object: {response}")
            })
        }
        "model" if has("functionCall") => {
            validate::identifier(text(&part["functionCall"], "name")?, 64)?;
            let args = &part["functionCall"]["args"];
            ensure(args.is_object(), || {
                format!("`args` is not an object: {args}")
            })
        }
        _ => Err(format!("role {role} cannot have {part}")),
    }
}
