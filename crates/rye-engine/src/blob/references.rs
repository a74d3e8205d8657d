//! Which blobs a record names.

use std::collections::{BTreeMap, BTreeSet};

use lillux::Hash;
use rye_protocol::{Archive, EntryKind, EventKind, Part};
use serde::Serialize;
use serde_json::Value;

use super::SCHEME;
use crate::runner::MAX_TEXT_BYTES;
use crate::text::whole_of;

/// The length of a hash, written.
const HEX: usize = 64;

/// All that a session names, also in words, so that none goes which somebody may ask for.
/// Not all of them were ever kept.
pub fn referenced_blobs(archive: &Archive) -> BTreeSet<Hash> {
    let mut found = BTreeSet::new();
    for entry in &archive.entries {
        mentioned(&json(entry), &mut found);
    }
    for prompt in &archive.prompts {
        mentioned(&json(prompt), &mut found);
    }
    found.extend(required_blobs(archive).into_keys());
    found
}

/// Those that were kept for a session: what is left out of its results, files and images,
/// and what its tools made. With each, the id of the first that needs it.
pub fn required_blobs(archive: &Archive) -> BTreeMap<Hash, String> {
    let mut needed = BTreeMap::new();
    let mut add = |hash: Option<Hash>, place: &str| {
        if let Some(hash) = hash {
            needed.entry(hash).or_insert_with(|| place.to_owned());
        }
    };
    for entry in &archive.entries {
        if let EntryKind::Message(message) = &entry.kind {
            for part in &message.parts {
                add(kept(part), entry.id.as_str());
            }
        }
    }
    for prompt in &archive.prompts {
        for part in &prompt.attachments {
            add(kept(part), prompt.id.as_str());
        }
    }
    for event in &archive.events {
        if let EventKind::Artifact { name, source } = &event.kind {
            add(address(source), name);
        }
    }
    needed
}

/// What a part of a message has in the blob store.
fn kept(part: &Part) -> Option<Hash> {
    match part {
        Part::Attachment { source, .. } => address(source),
        Part::ToolResult { text, data, .. } => {
            let whole = data.get("whole").and_then(Value::as_str).and_then(address);
            // A shorter one was not cut, whatever it says.
            let is_cut = text.len() >= MAX_TEXT_BYTES / 2;
            whole.or_else(|| is_cut.then(|| whole_of(text)).flatten())
        }
        _ => None,
    }
}

fn address(source: &str) -> Option<Hash> {
    source.strip_prefix(SCHEME)?.parse().ok()
}

fn json(thing: &impl Serialize) -> String {
    serde_json::to_string(thing).unwrap_or_default()
}

/// The hashes behind the scheme in a text.
fn mentioned(text: &str, found: &mut BTreeSet<Hash>) {
    for (at, _) in text.match_indices(SCHEME) {
        let start = at + SCHEME.len();
        let hex = text.get(start..start + HEX);
        found.extend(hex.and_then(|hex| hex.to_ascii_lowercase().parse::<Hash>().ok()));
    }
}

#[cfg(test)]
mod tests {
    use rye_protocol::{CallId, ResultStatus};
    use serde_json::json;

    use super::*;
    use crate::text::{Whole, without_middle};

    #[test]
    fn what_was_kept_is_told_from_what_is_only_spoken_of() {
        let hash = Hash::digest("all of it");
        let hashes = [None, Some(hash)];
        let whole = Whole {
            hash: &hash,
            first_line: 1,
        };
        let long = "a line\n".repeat(MAX_TEXT_BYTES / 3);
        let cut = without_middle(&long, MAX_TEXT_BYTES, Some(whole));
        let quoted = without_middle(&long, 100, Some(whole));
        let result = |text: &str, data: Value| Part::ToolResult {
            call_id: CallId::new(),
            tool: "any".to_owned(),
            status: ResultStatus::Success,
            text: text.to_owned(),
            data,
            error: None,
            elided: false,
        };
        let attached = |source: String| Part::Attachment {
            name: "a.pdf".to_owned(),
            mime_type: "application/pdf".to_owned(),
            source,
        };
        for (part, is_kept) in [
            (result(&cut, Value::Null), 1),
            (
                result("short", json!({ "whole": format!("blob:{hash}") })),
                1,
            ),
            (attached(format!("blob:{hash}")), 1),
            (result(&quoted, Value::Null), 0),
            (result(&long, Value::Null), 0),
            (attached("data:application/pdf;base64,AAAA".to_owned()), 0),
            (
                Part::Text {
                    text: format!("read blob:{hash}"),
                },
                0,
            ),
        ] {
            assert_eq!(kept(&part), hashes[is_kept], "{part:?}");
        }
    }

    #[test]
    fn what_looks_like_a_blob_and_is_none_is_not_one() {
        let hash = "ab".repeat(32);
        let text = format!("blob:{hash}, blob:short blob:{} ä blob:", "g".repeat(64));
        let mut found = BTreeSet::new();
        mentioned(&text, &mut found);
        assert_eq!(found, BTreeSet::from([hash.parse().unwrap()]));
    }
}
