//! Images, audio and files in the results of MCP tools.

use base64ct::{Base64, Encoding as _};
use rye_engine::protocol::Part;
use rye_engine::tool::ToolContext;
use serde_json::{Map, Value};

use crate::item_tools;

/// Media of a result, and their descriptions for the model.
#[derive(Default)]
pub(super) struct Media {
    pub(super) notes: Vec<String>,
    pub(super) attachments: Vec<Part>,
}

/// A file in a result.
struct File {
    name: String,
    mime_type: String,
    bytes: Option<Vec<u8>>,
}

/// Moves media from a result to attachments. The result keeps their names, but not their bytes,
/// which would only fill the context.
pub(super) async fn extract(result: &mut Value, context: &ToolContext) -> Media {
    let mut media = Media::default();
    let contents = result.get_mut("content").and_then(Value::as_array_mut);
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
            let note = format!("[{name}: {mime_type}, unreadable because it is not valid base64]");
            media.notes.push(note);
            continue;
        };
        let attached = context.attach(&name, &mime_type, bytes).await;
        media.notes.push(attached.text);
        media.attachments.extend(attached.part);
    }
    media
}

/// The text of a result for the model, with descriptions of its media.
pub(super) fn model_text(data: &Value, notes: &[String]) -> String {
    let mut output = match data.get("text").and_then(Value::as_str) {
        Some(text) => text.to_owned(),
        // The descriptions are sufficient.
        None if !notes.is_empty() && is_media(data) => String::new(),
        None => item_tools::model_text(data),
    };
    for note in notes {
        if !output.is_empty() {
            output.push('\n');
        }
        output.push_str(note);
    }
    output
}

/// Whether a result consists of media only.
fn is_media(data: &Value) -> bool {
    let has_text = |content: &Value| {
        let is_file = ["image", "audio"]
            .iter()
            .any(|kind| content["type"] == *kind);
        let is_blob = content["type"] == "resource" && content["resource"]["text"].is_null();
        !is_file && !is_blob
    };
    let fields = data.as_object().map_or(0, Map::len);
    let contents = data.get("content").and_then(Value::as_array);
    fields == 1 && contents.is_some_and(|contents| !contents.iter().any(has_text))
}

/// Removes the bytes from a content block, and returns them as a file.
fn file(content: &mut Map<String, Value>, number: usize) -> Option<File> {
    let kind = content.get("type")?.as_str()?.to_owned();
    let (object, key) = match kind.as_str() {
        "image" | "audio" => (content, "data"),
        "resource" => (content.get_mut("resource")?.as_object_mut()?, "blob"),
        _ => return None,
    };
    let Value::String(encoded) = object.remove(key)? else {
        return None;
    };
    let text = |key: &str| object.get(key).and_then(Value::as_str);
    let mime_type = text("mimeType").unwrap_or("application/octet-stream");
    let uri_name = text("uri").and_then(|uri| uri.rsplit('/').find(|part| !part.is_empty()));
    let name = uri_name.map_or_else(|| default_name(&kind, number, mime_type), str::to_owned);
    let file = File {
        name,
        mime_type: mime_type.to_owned(),
        bytes: Base64::decode_vec(encoded.trim()).ok(),
    };
    object.insert("name".to_owned(), file.name.clone().into());
    Some(file)
}

/// The name of a file without one, such as `image-1.png`.
fn default_name(kind: &str, number: usize, mime_type: &str) -> String {
    let extension = mime_type.rsplit('/').next().unwrap_or_default();
    let is_plain =
        !extension.is_empty() && extension.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let extension = if is_plain { extension } else { "bin" };
    format!("{kind}-{number}.{extension}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn files_are_removed_from_the_content_and_named() {
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
