//! Images that the record keeps elsewhere, for a model that sees them.

use std::sync::Arc;

use base64ct::{Base64, Encoding as _};
use lillux::Hash;
use rye_protocol::{Message, Part};

use super::Runner;
use crate::blob::{BlobStore, SCHEME};

/// The largest image that is shown to a model.
const LARGEST: usize = 5 * 1024 * 1024;

impl Runner {
    /// Messages with the images in them that are kept as blobs. What is not there any more,
    /// or is too large, is told as the file that it is.
    pub(super) async fn with_images(
        &self,
        mut messages: Arc<Vec<Arc<Message>>>,
    ) -> Arc<Vec<Arc<Message>>> {
        let is_kept = |message: &Message| message.parts.iter().any(|part| kept(part).is_some());
        if !messages.iter().any(|message| is_kept(message)) {
            return messages;
        }
        let engine = self.shared.engine.upgrade();
        let Some(blobs) = engine.and_then(|engine| engine.blobs.clone()) else {
            return messages;
        };
        for message in Arc::make_mut(&mut messages) {
            if is_kept(message) {
                for part in &mut Arc::make_mut(message).parts {
                    show(part, &*blobs).await;
                }
            }
        }
        messages
    }
}

/// The blob of an image, if it is kept as one.
fn kept(part: &Part) -> Option<Hash> {
    match part {
        Part::Attachment {
            mime_type, source, ..
        } if mime_type.starts_with("image/") => source.strip_prefix(SCHEME)?.parse().ok(),
        _ => None,
    }
}

async fn show(part: &mut Part, blobs: &dyn BlobStore) {
    let Some(hash) = kept(part) else { return };
    let Ok(Some(bytes)) = blobs.get(&hash).await else {
        return;
    };
    if let Part::Attachment {
        mime_type, source, ..
    } = part
        && bytes.len() <= LARGEST
    {
        *source = format!("data:{mime_type};base64,{}", Base64::encode_string(&bytes));
    }
}
