//! Google's `generateContent`.

use serde_json::{Value, json};

use crate::check::{self, Once, list, not_blank, text, want};
use crate::said::{Said, pieces};

pub(crate) fn stream(said: &Said) -> String {
    let mut parts = Vec::new();
    let mut seal = None;
    if let Some(thought) = &said.thought {
        let thoughts = pieces(&thought.text);
        parts.extend(thoughts.map(|it| json!({ "text": it, "thought": true })));
        seal = Some(thought.seal.clone());
    }
    parts.extend(pieces(&said.text).map(|it| json!({ "text": it })));
    for (number, call) in said.calls.iter().enumerate() {
        let function = json!({ "id": call.id, "name": call.tool, "args": call.args });
        let mut part = json!({ "functionCall": function });
        if let Some(seal) = seal.take().filter(|_| number == 0) {
            part["thoughtSignature"] = json!(seal);
        }
        parts.push(part);
    }
    if let Some(seal) = seal {
        // Where nothing is called, it comes with the last words, which are none.
        parts.push(json!({ "text": "", "thoughtSignature": seal }));
    }
    let last = parts.len().saturating_sub(1);
    let chunk = |(number, part): (usize, Value)| {
        let mut candidate = json!({ "content": { "parts": [part], "role": "model" }, "index": 0 });
        if number == last {
            candidate["finishReason"] = json!(said.stop.unwrap_or("STOP"));
        }
        let data = json!({
            "candidates": [candidate],
            "usageMetadata": {
                "promptTokenCount": said.input, "candidatesTokenCount": said.output,
                "cachedContentTokenCount": said.cached,
                "totalTokenCount": said.input + said.output,
            },
            "modelVersion": "gemini-test", "responseId": "mAitaLmkHPPlz7IPvtfUqQ4",
        });
        (None, data)
    };
    crate::events(parts.into_iter().enumerate().map(chunk))
}

pub(crate) fn check(body: &Value) -> Result<(), String> {
    let mut ids = Once::default();
    let (mut role, mut open) = ("model", Vec::new());
    for content in list(body, "contents")? {
        let next = text(content, "role")?;
        want(next != role, || format!("two turns of {role} in a row"))?;
        role = next;
        let parts = list(content, "parts")?;
        want(!parts.is_empty(), || format!("an empty turn of {role}"))?;
        if role == "user" {
            let answered = ids_of(parts, "functionResponse")?;
            want(open == answered, || {
                format!("calls {open:?} have the function responses {answered:?}")
            })?;
        }
        for part in parts {
            one(role, part)?;
        }
        open = ids_of(parts, "functionCall")?;
        for (id, _) in &open {
            ids.more(id)?;
        }
    }
    want(role == "user", || {
        "the last turn is not the user's".to_owned()
    })
}

/// Ids and names, in order.
fn ids_of(parts: &[Value], kind: &str) -> Result<Vec<(String, String)>, String> {
    let all = parts.iter().filter_map(|part| part.get(kind));
    all.map(|it| Ok((text(it, "id")?.to_owned(), text(it, "name")?.to_owned())))
        .collect()
}

fn one(role: &str, part: &Value) -> Result<(), String> {
    let is = |name: &str| part.get(name).is_some();
    match role {
        _ if is("text") => not_blank(part, "text"),
        "user" if is("inlineData") => not_blank(&part["inlineData"], "data"),
        "user" if is("functionResponse") => {
            let response = &part["functionResponse"]["response"];
            want(response.is_object(), || format!("no object: {response}"))
        }
        "model" if is("functionCall") => {
            check::plain(text(&part["functionCall"], "name")?, 64)?;
            let args = &part["functionCall"]["args"];
            want(args.is_object(), || format!("`args` is no object: {args}"))
        }
        _ => Err(format!("a turn of {role} has {part}")),
    }
}
