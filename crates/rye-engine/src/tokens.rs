//! Token estimates; only the provider counts exactly.

use std::io::{self, Write};

use rye_protocol::{Entry, EntryKind, Message, Part};
use serde_json::Value;

/// Average bytes of text per token.
const BYTES_PER_TOKEN: u64 = 4;

/// Estimated tokens of an image of any size.
const IMAGE_TOKENS: u64 = 1_500;

/// Estimates the tokens of this many bytes of text.
pub(crate) fn estimate_bytes(bytes: usize) -> u64 {
    u64::try_from(bytes)
        .unwrap_or(u64::MAX)
        .div_ceil(BYTES_PER_TOKEN)
}

/// Estimates the tokens of a part.
pub(crate) fn estimate_part(part: &Part) -> u64 {
    match part {
        Part::ToolResult { elided: true, .. } => 8,
        Part::Text { text } | Part::Thinking { text, .. } | Part::ToolResult { text, .. } => {
            estimate_bytes(text.len())
        }
        Part::ToolCall { tool, args, .. } => estimate_bytes(tool.len() + json_length(args)),
        Part::Attachment { mime_type, .. } if mime_type.starts_with("image/") => IMAGE_TOKENS,
        Part::Attachment { name, .. } => estimate_bytes(name.len()),
        Part::Error { .. } => 0,
    }
}

/// Estimates the tokens of a message.
pub(crate) fn estimate_message(message: &Message) -> u64 {
    message.parts.iter().map(estimate_part).sum()
}

/// Estimates the tokens of an entry that is not covered by a compaction.
pub(crate) fn estimate_entry(entry: &Entry) -> u64 {
    match &entry.kind {
        EntryKind::Message(message) => estimate_message(message),
        EntryKind::BranchSummary { summary, .. } => estimate_bytes(summary.len()),
        EntryKind::Compaction { .. }
        | EntryKind::CompactionUndone { .. }
        | EntryKind::DecisionGate { .. }
        | EntryKind::Run { .. } => 0,
    }
}

/// The length of a value as JSON, without building the text.
fn json_length(value: &Value) -> usize {
    struct Counter(usize);
    impl Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    // Counting cannot fail.
    let _ = serde_json::to_writer(&mut counter, value);
    counter.0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_length_matches_serialised_text() {
        let args = json!({ "path": "a.txt", "n": [1, null, "ä"] });
        assert_eq!(json_length(&args), args.to_string().len());
    }
}
