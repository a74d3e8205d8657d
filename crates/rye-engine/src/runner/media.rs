//! Images in what a model is asked: those that the record keeps elsewhere are put in, and those
//! that its provider does not take are left out.

use std::sync::Arc;

use base64ct::{Base64, Encoding as _};
use lillux::Hash;
use rye_protocol::{Message, Part};

use super::Runner;
use crate::attachment::MAX_IMAGE_BYTES;
use crate::blob::{BlobStore, SCHEME};
use crate::model::{Deltas, Model, ModelAnswer, ModelError, ModelRequest};

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
        && bytes.len() <= MAX_IMAGE_BYTES
    {
        *source = format!("data:{mime_type};base64,{}", Base64::encode_string(&bytes));
    }
}

/// Asks a model. A provider that cannot make anything of an image refuses the whole history
/// that it is in, now and ever after; so it is asked again without.
pub(super) async fn ask(
    model: &dyn Model,
    request: ModelRequest,
    deltas: Deltas,
) -> Result<ModelAnswer, ModelError> {
    let asked = request.clone();
    let why = match model.call(request, Arc::clone(&deltas)).await {
        Err(ModelError::Refused(why)) if is_about_images(&why) => why,
        other => return other,
    };
    match without_images(&asked.messages) {
        Some(messages) => model.call(ModelRequest { messages, ..asked }, deltas).await,
        None => Err(ModelError::Refused(why)),
    }
}

fn is_about_images(why: &str) -> bool {
    let why = why.to_ascii_lowercase();
    ["image", "media"].iter().any(|word| why.contains(word))
}

/// The messages with words in place of images, if there are any.
fn without_images(messages: &[Arc<Message>]) -> Option<Arc<Vec<Arc<Message>>>> {
    let has_images = |message: &Message| message.parts.iter().any(|it| left_out(it).is_some());
    if !messages.iter().any(|message| has_images(message)) {
        return None;
    }
    let mut all = messages.to_vec();
    for message in all.iter_mut().filter(|message| has_images(message)) {
        for part in &mut Arc::make_mut(message).parts {
            if let Some(words) = left_out(part) {
                *part = words;
            }
        }
    }
    Some(Arc::new(all))
}

/// What stands in place of an image.
fn left_out(part: &Part) -> Option<Part> {
    match part {
        Part::Attachment {
            name, mime_type, ..
        } if mime_type.starts_with("image/") => Some(Part::Text {
            text: format!("[the image {name}, which cannot be shown: it was refused]"),
        }),
        _ => None,
    }
}
