//! Attachments: images go to the model, all other files to the blob store.

use base64ct::{Base64, Encoding as _};
use rye_protocol::Part;

use crate::blob::SCHEME;
use crate::tool::ToolContext;

/// Maximum size of an image; its base64 form stays within the limits of providers.
pub const MAX_IMAGE_BYTES: usize = 3_750_000;

/// An attachment of a tool result.
#[derive(Debug, Clone, PartialEq)]
pub struct AttachmentResult {
    /// One-line description for the model.
    pub text: String,
    /// The attachment; `None` if it could not be stored.
    pub part: Option<Part>,
}

/// Creates an image attachment for a prompt; the error is the reason. The type comes from the
/// content, because a provider rejects a history with a mislabelled image.
pub fn image(name: &str, bytes: &[u8]) -> Result<Part, String> {
    if bytes.len() > MAX_IMAGE_BYTES {
        return Err(format!(
            "{name} is too large: the maximum is {MAX_IMAGE_BYTES} bytes"
        ));
    }
    match image_type(bytes) {
        Some(mime_type) => Ok(inline_image(name, mime_type, bytes)),
        None => Err(format!("{name} is not a PNG, JPEG, GIF or WebP image")),
    }
}

/// Media type of an image that models accept, by its first bytes.
pub fn image_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', rest @ ..] if rest.get(4..8) == Some(b"WEBP") => {
            Some("image/webp")
        }
        _ => None,
    }
}

/// MIME types by the extension of a file name, for files whose content does not tell.
const MIME_TYPES: [(&str, &str); 13] = [
    ("csv", "text/csv"),
    ("gz", "application/gzip"),
    ("html", "text/html"),
    ("json", "application/json"),
    ("md", "text/markdown"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("svg", "image/svg+xml"),
    ("wav", "audio/wav"),
    ("webm", "video/webm"),
    ("xml", "application/xml"),
    ("yaml", "application/yaml"),
    ("zip", "application/zip"),
];

/// The MIME type of a file, by its content and name.
pub fn mime_type(name: &str, bytes: &[u8]) -> &'static str {
    if let Some(image) = image_type(bytes) {
        return image;
    }
    if bytes.starts_with(b"%PDF-") {
        return "application/pdf";
    }
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    let is_same = |(known, _): &&(&str, &str)| {
        extension.is_some_and(|extension| extension.eq_ignore_ascii_case(known))
    };
    match MIME_TYPES.iter().find(is_same) {
        Some((_, mime_type)) => mime_type,
        None if std::str::from_utf8(bytes).is_ok() => "text/plain",
        None => "application/octet-stream",
    }
}

/// An inline image.
pub fn inline_image(name: &str, mime_type: &str, bytes: &[u8]) -> Part {
    Part::Attachment {
        name: name.to_owned(),
        mime_type: mime_type.to_owned(),
        source: format!("data:{mime_type};base64,{}", Base64::encode_string(bytes)),
    }
}

impl ToolContext {
    /// Creates an attachment for a tool result. An image is stored inline; any other file goes to
    /// the blob store, where the tool `read` finds it.
    pub async fn attach(&self, name: &str, mime_type: &str, bytes: Vec<u8>) -> AttachmentResult {
        let length = bytes.len();
        let image = image_type(&bytes).filter(|_| length <= MAX_IMAGE_BYTES);
        if let Some(mime_type) = image {
            return AttachmentResult {
                text: format!("[{name} is an image: {mime_type}, {length} bytes]"),
                part: Some(inline_image(name, mime_type, &bytes)),
            };
        }
        let description = format!("{name} is a file: {mime_type}, {length} bytes");
        let stored = match self.blobs() {
            Some(blobs) => blobs.put(bytes).await.ok(),
            None => None,
        };
        match stored {
            Some(hash) => AttachmentResult {
                text: format!("[{description}, stored as {SCHEME}{hash}]"),
                part: Some(Part::Attachment {
                    name: name.to_owned(),
                    mime_type: mime_type.to_owned(),
                    source: format!("{SCHEME}{hash}"),
                }),
            },
            None => AttachmentResult {
                text: format!("[{description}, which could not be stored]"),
                part: None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mime_type_follows_from_content_and_name() {
        let table: [(&str, &[u8], &str); 6] = [
            ("a.txt", b"\x89PNG\r\n\x1a\n", "image/png"),
            ("report", b"%PDF-1.7", "application/pdf"),
            ("data.JSON", b"{}", "application/json"),
            ("page.html", b"<p>", "text/html"),
            ("notes", "größer".as_bytes(), "text/plain"),
            ("core.bin", b"\xff\xfe\x00", "application/octet-stream"),
        ];
        for (name, bytes, expected) in table {
            assert_eq!(mime_type(name, bytes), expected, "{name}");
        }
    }
}
