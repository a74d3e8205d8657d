//! Prompt history of all sessions: a file with one JSON string per line.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use lillux::durable;

/// Prompts that are loaded.
const MAX_PROMPTS: usize = 1000;
/// Longest prompt that is stored, in bytes; longer ones are usually pasted.
const MAX_PROMPT_BYTES: usize = 16 * 1024;
/// A file with more prompts is shortened.
const MAX_FILE_PROMPTS: usize = 4 * MAX_PROMPTS;

/// The prompts, the newest last. Invalid lines are skipped.
pub(crate) fn load(path: &Path) -> Vec<String> {
    let bytes = std::fs::read(path).unwrap_or_default();
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let parsed = lines.filter_map(|line| Some((serde_json::from_slice(line).ok()?, line)));
    let (mut prompts, mut lines): (Vec<_>, Vec<_>) = parsed.unzip();
    let surplus = prompts.len().saturating_sub(MAX_PROMPTS);
    prompts.drain(..surplus);
    if lines.len() > MAX_FILE_PROMPTS {
        lines.drain(..surplus);
        // If this fails, the file stays long.
        let _ = durable::rewrite(path, &lines.concat());
    }
    prompts
}

/// Appends a prompt in a single write, so that several chats can append concurrently.
pub(crate) fn append(path: &Path, text: &str) -> io::Result<()> {
    if text.trim().is_empty() || text.len() > MAX_PROMPT_BYTES {
        return Ok(());
    }
    let mut line = serde_json::to_vec(text)?;
    line.push(b'\n');
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o600);
    options.open(path)?.write_all(&line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appended_prompts_are_loaded_unchanged() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("chat-history");
        assert!(load(&path).is_empty());
        for text in ["one", "two\nlines", "  ", "ünï \x1b[31m"] {
            append(&path, text).unwrap();
        }
        append(&path, &"x".repeat(MAX_PROMPT_BYTES + 1)).unwrap();
        assert_eq!(load(&path), ["one", "two\nlines", "ünï \x1b[31m"]);
    }

    #[test]
    fn long_file_is_shortened_and_invalid_lines_are_skipped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("chat-history");
        std::fs::write(&path, "\"before\"\n{broken\n\"after\"\n").unwrap();
        assert_eq!(load(&path), ["before", "after"]);
        let many: Vec<_> = (0..=MAX_FILE_PROMPTS)
            .map(|it| format!("\"{it}\""))
            .collect();
        std::fs::write(&path, many.join("\n")).unwrap();
        assert_eq!(load(&path).len(), MAX_PROMPTS);
        let kept = std::fs::read_to_string(&path).unwrap();
        assert_eq!(kept.lines().count(), MAX_PROMPTS);
        assert_eq!(kept.lines().last(), Some("\"4000\""));
    }
}
