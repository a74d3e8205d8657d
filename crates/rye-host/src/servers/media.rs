//! What a server's tool gives that is no text: taken out of the answer, and handed on as
//! what it is.

use base64ct::{Base64, Encoding as _};
use rye_engine::protocol::Part;
use rye_engine::tool::ToolContext;
use serde_json::{Map, Value};

use crate::items;

/// Images, sounds and files of an answer, and what is said of them.
#[derive(Default)]
pub(super) struct Media {
    pub(super) notes: Vec<String>,
    pub(super) attachments: Vec<Part>,
}

/// A file in an answer.
struct File {
    name: String,
    mime_type: String,
    bytes: Option<Vec<u8>>,
}

/// Takes them out of an answer. In its data their names stay, and not the bytes: what a model
/// cannot read as text would only fill its context.
pub(super) async fn take(answer: &mut Value, context: &ToolContext) -> Media {
    let mut media = Media::default();
    let contents = answer.get_mut("content").and_then(Value::as_array_mut);
    for (at, content) in contents.into_iter().flatten().enumerate() {
        let Some(file) = content
            .as_object_mut()
            .and_then(|content| file(content, at + 1))
        else {
            continue;
        };
        let File {
            name,
            mime_type,
            bytes,
        } = file;
        let Some(bytes) = bytes else {
            let note = format!("[{name}: {mime_type}, which is not base64 and cannot be read]");
            media.notes.push(note);
            continue;
        };
        let attached = context.attach(&name, &mime_type, bytes).await;
        media.notes.push(attached.text);
        media.attachments.extend(attached.part);
    }
    media
}

/// What a model reads of an answer: its words, and what is said of all else.
pub(super) fn words(data: &Value, notes: &[String]) -> String {
    let mut words = match data.get("text").and_then(Value::as_str) {
        Some(text) => text.to_owned(),
        // What is said of them says all.
        None if !notes.is_empty() && is_media(data) => String::new(),
        None => items::words(data),
    };
    for note in notes {
        if !words.is_empty() {
            words.push('\n');
        }
        words.push_str(note);
    }
    words
}

/// Whether data is but the contents of an answer, and none of them says anything.
fn is_media(data: &Value) -> bool {
    let says = |content: &Value| {
        let is_file = ["image", "audio"]
            .iter()
            .any(|kind| content["type"] == *kind);
        let is_read = content["type"] == "resource" && content["resource"]["text"].is_null();
        !is_file && !is_read
    };
    let fields = data.as_object().map_or(0, Map::len);
    let contents = data.get("content").and_then(Value::as_array);
    fields == 1 && contents.is_some_and(|contents| !contents.iter().any(says))
}

/// The file that a content is, with its bytes taken out of it.
fn file(content: &mut Map<String, Value>, number: usize) -> Option<File> {
    let kind = content.get("type")?.as_str()?.to_owned();
    let (place, data) = match kind.as_str() {
        "image" | "audio" => (content, "data"),
        "resource" => (content.get_mut("resource")?.as_object_mut()?, "blob"),
        _ => return None,
    };
    let Value::String(coded) = place.remove(data)? else {
        return None;
    };
    let text = |key: &str| place.get(key).and_then(Value::as_str);
    let mime_type = text("mimeType").unwrap_or("application/octet-stream");
    let of_uri = text("uri").and_then(|uri| uri.rsplit('/').find(|part| !part.is_empty()));
    let name = of_uri.map_or_else(|| named(&kind, number, mime_type), str::to_owned);
    let file = File {
        name,
        mime_type: mime_type.to_owned(),
        bytes: Base64::decode_vec(coded.trim()).ok(),
    };
    place.insert("name".to_owned(), file.name.clone().into());
    Some(file)
}

/// A name for what has none: `image-1.png`.
fn named(kind: &str, number: usize, mime_type: &str) -> String {
    let ending = mime_type.rsplit('/').next().unwrap_or_default();
    let is_plain = !ending.is_empty() && ending.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let ending = if is_plain { ending } else { "bin" };
    format!("{kind}-{number}.{ending}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bytes_leave_an_answer_and_names_stay() {
        for (mut content, expected, left) in [
            (
                json!({"type": "image", "data": "aGk=", "mimeType": "image/png"}),
                Some(("image-2.png", "image/png", Some(&b"hi"[..]))),
                json!({"type": "image", "mimeType": "image/png", "name": "image-2.png"}),
            ),
            (
                json!({"type": "audio", "data": "!", "mimeType": "audio/x-wav"}),
                Some(("audio-2.bin", "audio/x-wav", None)),
                json!({"type": "audio", "mimeType": "audio/x-wav", "name": "audio-2.bin"}),
            ),
            (
                json!({"type": "resource", "resource": {"uri": "file:///a/b.pdf", "blob": "aGk="}}),
                Some(("b.pdf", "application/octet-stream", Some(&b"hi"[..]))),
                json!({"type": "resource", "resource": {"uri": "file:///a/b.pdf", "name": "b.pdf"}}),
            ),
            (
                json!({"type": "resource", "resource": {"uri": "x:y", "text": "words"}}),
                None,
                json!({"type": "resource", "resource": {"uri": "x:y", "text": "words"}}),
            ),
            (
                json!({"type": "text", "text": "words"}),
                None,
                json!({"type": "text", "text": "words"}),
            ),
        ] {
            let found = file(content.as_object_mut().unwrap(), 2);
            let found = found
                .as_ref()
                .map(|it| (it.name.as_str(), it.mime_type.as_str(), it.bytes.as_deref()));
            assert_eq!(found, expected);
            assert_eq!(content, left);
        }
    }
}
