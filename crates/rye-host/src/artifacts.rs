//! Files that the tools of a session produced.

use base64ct::{Base64, Encoding as _};
use lillux::Hash;
use rye_engine::Engine;
use rye_engine::blob::SCHEME;
use rye_engine::protocol::{EntryKind, EventKind, Millis, Part, Role, SessionId};
use serde::Serialize;

use crate::failure::Failure;

/// Events that are read at a time.
const PAGE: usize = 1000;

/// A file that a tool produced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Artifact {
    /// Its number in the session, from 1.
    pub number: usize,
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: ArtifactKind,
    /// Its MIME type.
    pub mime_type: String,
    /// Length in bytes, if known.
    pub size: Option<u64>,
    /// When it was produced.
    pub at: Millis,
    /// Where its bytes are: a blob or a `data:` URL.
    #[serde(skip)]
    source: String,
}

/// What an artifact is, by its MIME type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ArtifactKind {
    /// Text that people read.
    Text,
    /// A picture.
    Image,
    /// A sound.
    Audio,
    /// A film.
    Video,
    /// Anything else.
    Data,
}

impl ArtifactKind {
    /// The kind of a MIME type.
    pub fn of(mime_type: &str) -> Self {
        match mime_type.split('/').next() {
            Some("text") => Self::Text,
            Some("image") => Self::Image,
            Some("audio") => Self::Audio,
            Some("video") => Self::Video,
            _ => Self::Data,
        }
    }
}

/// The artifacts of a session, oldest first: those that tools published, and the files in the
/// results of tools.
pub async fn artifacts(engine: &Engine, session: &SessionId) -> Result<Vec<Artifact>, Failure> {
    let mut found = Vec::new();
    let mut last = 0;
    loop {
        let page = engine.events(session, last, PAGE).await?;
        let Some(sequence) = page.last().and_then(|event| event.sequence) else {
            break;
        };
        last = sequence;
        for event in page {
            if let EventKind::Artifact {
                name,
                mime_type,
                size,
                source,
            } = event.kind
            {
                found.push(artifact(name, mime_type, Some(size), source, event.at));
            }
        }
    }
    for (_, entries) in engine.history(session).await? {
        for entry in entries {
            let EntryKind::Message(message) = entry.kind else {
                continue;
            };
            for part in message.parts {
                if let (
                    Role::Tool,
                    Part::Attachment {
                        name,
                        mime_type,
                        source,
                    },
                ) = (message.role, part)
                {
                    let size = inline_bytes(&source).map(|bytes| bytes.len() as u64);
                    found.push(artifact(name, mime_type, size, source, entry.created_at));
                }
            }
        }
    }
    found.sort_by_key(|artifact| artifact.at);
    for (artifact, number) in found.iter_mut().zip(1..) {
        artifact.number = number;
        if let (None, Some(hash)) = (artifact.size, blob_hash(&artifact.source)) {
            let bytes = engine.blob(&hash).await.ok().flatten();
            artifact.size = bytes.map(|bytes| bytes.len() as u64);
        }
    }
    Ok(found)
}

fn artifact(
    name: String,
    mime_type: String,
    size: Option<u64>,
    source: String,
    at: Millis,
) -> Artifact {
    Artifact {
        number: 0,
        kind: ArtifactKind::of(&mime_type),
        name,
        mime_type,
        size,
        at,
        source,
    }
}

/// The bytes of an artifact.
pub async fn artifact_bytes(engine: &Engine, artifact: &Artifact) -> Result<Vec<u8>, Failure> {
    if let Some(bytes) = inline_bytes(&artifact.source) {
        return Ok(bytes);
    }
    let stored = match blob_hash(&artifact.source) {
        Some(hash) => engine.blob(&hash).await,
        None => Ok(None),
    };
    let stored = stored.map_err(|error| Failure::failed("blobs", error))?;
    stored.ok_or_else(|| {
        let message = format!("the content of {} is no longer stored", artifact.name);
        Failure::failed("gone", message)
    })
}

fn blob_hash(source: &str) -> Option<Hash> {
    source.strip_prefix(SCHEME)?.parse().ok()
}

/// The bytes in a `data:` URL.
fn inline_bytes(source: &str) -> Option<Vec<u8>> {
    let (_, data) = source.strip_prefix("data:")?.split_once(";base64,")?;
    Base64::decode_vec(data).ok()
}
