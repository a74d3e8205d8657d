//! Images in model requests: loads images stored as blobs, and retries without images if the
//! provider rejects one.

use std::sync::Arc;

use base64ct::{Base64, Encoding as _};
use lillux::Hash;
use rye_protocol::{Message, Part};

use super::Runner;
use crate::attachment::MAX_IMAGE_BYTES;
use crate::blob::{BlobStore, SCHEME};
use crate::model::{Deltas, Model, ModelAnswer, ModelError, ModelRequest};

impl Runner {
    /// Inlines images that are stored as blobs. An image that is missing or too large stays a
    /// reference.
    pub(super) async fn with_images(
        &self,
        mut messages: Arc<Vec<Arc<Message>>>,
    ) -> Arc<Vec<Arc<Message>>> {
        let has_stored_image = |message: &Message| {
            message
                .parts
                .iter()
                .any(|part| stored_image(part).is_some())
        };
        if !messages.iter().any(|message| has_stored_image(message)) {
            return messages;
        }
        let engine = self.shared.engine.upgrade();
        let Some(blobs) = engine.and_then(|engine| engine.blobs.clone()) else {
            return messages;
        };
        for message in Arc::make_mut(&mut messages) {
            if has_stored_image(message) {
                for part in &mut Arc::make_mut(message).parts {
                    inline_image(part, &*blobs).await;
                }
            }
        }
        messages
    }
}

/// The blob hash of an image that is stored as a blob.
fn stored_image(part: &Part) -> Option<Hash> {
    match part {
        Part::Attachment {
            mime_type, source, ..
        } if mime_type.starts_with("image/") => source.strip_prefix(SCHEME)?.parse().ok(),
        _ => None,
    }
}

async fn inline_image(part: &mut Part, blobs: &dyn BlobStore) {
    let Some(hash) = stored_image(part) else {
        return;
    };
    let Ok(Some(bytes)) = blobs.get(&hash).await else {
        return;
    };
    if let Part::Attachment {
        mime_type, source, ..
    } = part
        && bytes.len() <= MAX_IMAGE_BYTES
    {
        *source = format!("data:{mime_type};base64,{}", Base64::encode_string(&bytes));
    }
}

/// Calls a model. A provider that rejects an image rejects every later request with the same
/// history, so such a request is repeated without images.
pub(super) async fn call_model(
    model: &dyn Model,
    request: ModelRequest,
    deltas: Deltas,
) -> Result<ModelAnswer, ModelError> {
    let original = request.clone();
    let reason = match model.call(request, Arc::clone(&deltas)).await {
        Err(ModelError::ImageRejected(reason)) => reason,
        other => return other,
    };
    match without_images(&original.messages) {
        Some(messages) => {
            model
                .call(
                    ModelRequest {
                        messages,
                        ..original
                    },
                    deltas,
                )
                .await
        }
        None => Err(ModelError::ImageRejected(reason)),
    }
}

/// The messages with a text placeholder for each image; `None` if there is no image.
fn without_images(messages: &[Arc<Message>]) -> Option<Arc<Vec<Arc<Message>>>> {
    let has_images = |message: &Message| message.parts.iter().any(|it| placeholder(it).is_some());
    if !messages.iter().any(|message| has_images(message)) {
        return None;
    }
    let mut all = messages.to_vec();
    for message in all.iter_mut().filter(|message| has_images(message)) {
        for part in &mut Arc::make_mut(message).parts {
            if let Some(text) = placeholder(part) {
                *part = text;
            }
        }
    }
    Some(Arc::new(all))
}

/// The text placeholder for an image.
fn placeholder(part: &Part) -> Option<Part> {
    match part {
        Part::Attachment {
            name, mime_type, ..
        } if mime_type.starts_with("image/") => Some(Part::Text {
            text: format!("[image {name} is not shown: the provider rejected it]"),
        }),
        _ => None,
    }
}
