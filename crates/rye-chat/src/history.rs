//! Prompt history of all sessions: a file with one JSON string per line.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Prompts that are loaded.
const MAX_PROMPTS: usize = 1000;
/// Longest prompt that is stored, in bytes; longer ones are usually pasted.
const MAX_PROMPT_BYTES: usize = 16 * 1024;
/// A file with more prompts is shortened.
const MAX_FILE_PROMPTS: usize = 4 * MAX_PROMPTS;

/// The history file.
#[derive(Debug, Clone)]
pub(crate) struct History {
    path: PathBuf,
}

impl History {
    pub(crate) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
        }
    }

    /// The prompts, the newest last. Invalid lines are skipped.
    pub(crate) fn load(&self) -> Vec<String> {
        let bytes = std::fs::read(&self.path).unwrap_or_default();
        let lines = bytes.split(|byte| *byte == b'\n');
        let mut prompts: Vec<String> = lines
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect();
        let count = prompts.len();
        prompts.drain(..count.saturating_sub(MAX_PROMPTS));
        if count > MAX_FILE_PROMPTS {
            // If this fails, the file stays long.
            let _ = self.rewrite(&prompts);
        }
        prompts
    }

    /// Appends a prompt in a single write, so that several chats can append concurrently.
    pub(crate) fn append(&self, text: &str) -> io::Result<()> {
        if text.trim().is_empty() || text.len() > MAX_PROMPT_BYTES {
            return Ok(());
        }
        let mut line = serde_json::to_vec(text)?;
        line.push(b'\n');
        let mut options = OpenOptions::new();
        options.create(true).append(true).mode(0o600);
        options.open(&self.path)?.write_all(&line)
    }

    fn rewrite(&self, prompts: &[String]) -> io::Result<()> {
        let mut all = Vec::new();
        for text in prompts {
            serde_json::to_writer(&mut all, text)?;
            all.push(b'\n');
        }
        let new = self.path.with_extension("new");
        let mut options = OpenOptions::new();
        options.create(true).truncate(true).write(true).mode(0o600);
        options.open(&new)?.write_all(&all)?;
        std::fs::rename(new, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appended_prompts_are_loaded_unchanged() {
        let directory = tempfile::tempdir().unwrap();
        let history = History::new(&directory.path().join("chat-history"));
        assert!(history.load().is_empty());
        for text in ["one", "two\nlines", "  ", "ünï \x1b[31m"] {
            history.append(text).unwrap();
        }
        history.append(&"x".repeat(MAX_PROMPT_BYTES + 1)).unwrap();
        assert_eq!(history.load(), ["one", "two\nlines", "ünï \x1b[31m"]);
    }

    #[test]
    fn long_file_is_shortened_and_invalid_lines_are_skipped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("chat-history");
        std::fs::write(&path, "\"before\"\n{broken\n\"after\"\n").unwrap();
        let history = History::new(&path);
        assert_eq!(history.load(), ["before", "after"]);
        let many: Vec<_> = (0..=MAX_FILE_PROMPTS)
            .map(|it| format!("\"{it}\""))
            .collect();
        std::fs::write(&path, many.join("\n")).unwrap();
        assert_eq!(history.load().len(), MAX_PROMPTS);
        let kept = std::fs::read_to_string(&path).unwrap();
        assert_eq!(kept.lines().count(), MAX_PROMPTS);
        assert_eq!(kept.lines().last(), Some("\"4000\""));
    }
}
