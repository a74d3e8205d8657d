//! Files and images that a person or a tool gives: what models can see is shown, all else is
//! kept.

use base64ct::{Base64, Encoding as _};
use rye_protocol::Part;

use crate::blob::SCHEME;
use crate::builtin::image_type;
use crate::tool::ToolContext;

/// The largest image that is shown. In base64 it is what providers take.
pub const MAX_IMAGE_BYTES: usize = 3_750_000;

/// A file or an image, as it goes into a result.
#[derive(Debug, Clone, PartialEq)]
pub struct AttachmentResult {
    /// What is said of it, in a line.
    pub text: String,
    /// It; none where it can neither be shown nor kept.
    pub part: Option<Part>,
}

/// An image that goes with a prompt, or why it cannot. What it is its bytes say, not its name:
/// a provider that is told something else refuses the whole history.
pub fn image(name: &str, bytes: &[u8]) -> Result<Part, String> {
    if bytes.len() > MAX_IMAGE_BYTES {
        return Err(format!(
            "{name} is too large to be shown: make it smaller than {MAX_IMAGE_BYTES} bytes"
        ));
    }
    match image_type(bytes) {
        Some(mime_type) => Ok(shown(name, mime_type, bytes)),
        None => Err(format!("{name} is no PNG, JPEG, GIF or WebP image")),
    }
}

/// An image as it is shown to a model.
pub(crate) fn shown(name: &str, mime_type: &str, bytes: &[u8]) -> Part {
    Part::Attachment {
        name: name.to_owned(),
        mime_type: mime_type.to_owned(),
        source: format!("data:{mime_type};base64,{}", Base64::encode_string(bytes)),
    }
}

impl ToolContext {
    /// A file or an image to be given with a result. An image that models can see goes into
    /// the record; all else goes to the blob store, where the tool `read` finds it.
    pub async fn attach(&self, name: &str, mime_type: &str, bytes: Vec<u8>) -> AttachmentResult {
        let length = bytes.len();
        let seen = image_type(&bytes).filter(|_| length <= MAX_IMAGE_BYTES);
        if let Some(mime_type) = seen {
            return AttachmentResult {
                text: format!("[{name} is an image: {mime_type}, {length} bytes]"),
                part: Some(shown(name, mime_type, &bytes)),
            };
        }
        let about = format!("{name} is a file: {mime_type}, {length} bytes");
        let kept = match self.blobs() {
            Some(blobs) => blobs.put(bytes).await.ok(),
            None => None,
        };
        match kept {
            Some(hash) => AttachmentResult {
                text: format!("[{about}, kept as {SCHEME}{hash}]"),
                part: Some(Part::Attachment {
                    name: name.to_owned(),
                    mime_type: mime_type.to_owned(),
                    source: format!("{SCHEME}{hash}"),
                }),
            },
            None => AttachmentResult {
                text: format!("[{about}, which could not be kept]"),
                part: None,
            },
        }
    }
}
