//! Finds the blobs that a record refers to.

use std::collections::{BTreeMap, BTreeSet};

use lillux::Hash;
use rye_protocol::{Archive, EntryKind, EventKind, Part};
use serde::Serialize;
use serde_json::Value;

use super::{FULL_OUTPUT, SCHEME};

/// Length of a hash in hex.
const HEX: usize = 64;

/// All blobs that a session mentions, even in text, so that garbage collection keeps them. Some
/// may not exist.
pub fn referenced_blobs(archive: &Archive) -> BTreeSet<Hash> {
    let mut found = BTreeSet::new();
    for entry in &archive.entries {
        collect_mentioned(&to_json(entry), &mut found);
    }
    for prompt in &archive.prompts {
        collect_mentioned(&to_json(prompt), &mut found);
    }
    for gate in &archive.gates {
        collect_mentioned(&to_json(&gate.context), &mut found);
        collect_mentioned(&to_json(&gate.status), &mut found);
    }
    found.extend(required_blobs(archive).into_keys());
    found
}

/// Blobs that were stored for a session: complete tool output, attachments and artifacts, each
/// with the id of the first record that needs it.
pub fn required_blobs(archive: &Archive) -> BTreeMap<Hash, String> {
    let mut needed = BTreeMap::new();
    let mut add = |hash: Option<Hash>, id: &str| {
        if let Some(hash) = hash {
            needed.entry(hash).or_insert_with(|| id.to_owned());
        }
    };
    for entry in &archive.entries {
        if let EntryKind::Message(message) = &entry.kind {
            for part in &message.parts {
                add(required_blob(part), entry.id.as_str());
            }
        }
    }
    for prompt in &archive.prompts {
        for part in &prompt.attachments {
            add(required_blob(part), prompt.id.as_str());
        }
    }
    for event in &archive.events {
        if let EventKind::Artifact { name, source, .. } = &event.kind {
            add(parse_address(source), name);
        }
    }
    needed
}

/// Blobs with the content of files that a session changed, before and after. They stay on this
/// machine: they may contain whole workspaces.
pub(crate) fn file_blobs(archive: &Archive) -> BTreeSet<Hash> {
    let mut found = BTreeSet::new();
    for event in &archive.events {
        match &event.kind {
            EventKind::FilesChanged {
                changes, source, ..
            } => {
                let contents = changes.iter().flat_map(|it| [&it.before, &it.after]);
                let sources = contents.flatten().filter_map(|it| it.source.as_ref());
                found.extend(sources.chain(source).filter_map(|it| parse_address(it)));
            }
            EventKind::WorkspaceSnapshot { source, .. } => {
                found.extend(source.as_ref().and_then(|it| parse_address(it)));
            }
            _ => {}
        }
    }
    found
}

/// The blob that a part of a message needs.
fn required_blob(part: &Part) -> Option<Hash> {
    match part {
        Part::Attachment { source, .. } => parse_address(source),
        Part::ToolResult { data, .. } => {
            let address = data.get(FULL_OUTPUT).and_then(Value::as_str);
            address.and_then(parse_address)
        }
        _ => None,
    }
}

/// The hash in a blob address.
pub(crate) fn parse_address(source: &str) -> Option<Hash> {
    source.strip_prefix(SCHEME)?.parse().ok()
}

fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Collects the hashes of blob addresses in a text.
fn collect_mentioned(text: &str, found: &mut BTreeSet<Hash>) {
    for (at, _) in text.match_indices(SCHEME) {
        let start = at + SCHEME.len();
        let digits = text.get(start..start + HEX);
        found.extend(digits.and_then(|digits| digits.to_ascii_lowercase().parse::<Hash>().ok()));
    }
}

#[cfg(test)]
mod tests {
    use rye_protocol::{CallId, ResultStatus};
    use serde_json::json;

    use super::*;

    #[test]
    fn required_blobs_are_distinguished_from_mentions() {
        let hash = Hash::digest("full output");
        let address = format!("blob:{hash}");
        let result = |text: &str, data: Value| Part::ToolResult {
            call_id: CallId::new(),
            tool: "any".to_owned(),
            status: ResultStatus::Success,
            text: text.to_owned(),
            data,
            error: None,
            elided: false,
        };
        let attached = |source: &str| Part::Attachment {
            name: "a.pdf".to_owned(),
            mime_type: "application/pdf".to_owned(),
            source: source.to_owned(),
        };
        let required = [
            result("short", json!({ "full_output": address })),
            attached(&address),
        ];
        for part in required {
            assert_eq!(required_blob(&part), Some(hash), "{part:?}");
        }
        let mentioned = [
            result(&format!("read {address}"), Value::Null),
            attached("data:application/pdf;base64,AAAA"),
            Part::Text {
                text: format!("read {address}"),
            },
        ];
        for part in mentioned {
            assert_eq!(required_blob(&part), None, "{part:?}");
        }
    }

    #[test]
    fn invalid_blob_addresses_are_ignored() {
        let hash = "ab".repeat(32);
        let text = format!("blob:{hash}, blob:short blob:{} ä blob:", "g".repeat(64));
        let mut found = BTreeSet::new();
        collect_mentioned(&text, &mut found);
        assert_eq!(found, BTreeSet::from([hash.parse().unwrap()]));
    }
}
