//! What people wrote before, in all sessions: a file with a line of JSON each.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// How many are remembered.
const MOST: usize = 1000;
/// What is longer is not: it was pasted, and is in the session.
const LONGEST: usize = 16 * 1024;
/// A file that has grown beyond this is written anew.
const LARGEST: usize = 4 * MOST;

/// The file.
#[derive(Debug, Clone)]
pub(crate) struct History {
    path: PathBuf,
}

impl History {
    pub(crate) fn at(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
        }
    }

    /// What is in it, the newest last. What cannot be read is passed over.
    pub(crate) fn read(&self) -> Vec<String> {
        let bytes = std::fs::read(&self.path).unwrap_or_default();
        let lines = bytes.split(|byte| *byte == b'\n');
        let mut past: Vec<String> = lines
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect();
        let whole = past.len();
        past.drain(..whole.saturating_sub(MOST));
        if whole > LARGEST {
            // If it cannot be, it stays long.
            let _ = self.write_anew(&past);
        }
        past
    }

    /// Adds one, in one write, so that others may add theirs at the same time.
    pub(crate) fn add(&self, text: &str) -> io::Result<()> {
        if text.trim().is_empty() || text.len() > LONGEST {
            return Ok(());
        }
        let mut line = serde_json::to_vec(text)?;
        line.push(b'\n');
        let mut options = OpenOptions::new();
        options.create(true).append(true).mode(0o600);
        options.open(&self.path)?.write_all(&line)
    }

    fn write_anew(&self, past: &[String]) -> io::Result<()> {
        let mut all = Vec::new();
        for text in past {
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
    fn what_was_written_is_there_the_next_time_in_any_form() {
        let folder = tempfile::tempdir().unwrap();
        let history = History::at(&folder.path().join("chat-history"));
        assert!(history.read().is_empty());
        for text in ["one", "two\nlines", "  ", "ünï \x1b[31m"] {
            history.add(text).unwrap();
        }
        history.add(&"x".repeat(LONGEST + 1)).unwrap();
        assert_eq!(history.read(), ["one", "two\nlines", "ünï \x1b[31m"]);
    }

    #[test]
    fn it_does_not_grow_for_ever_and_a_broken_line_costs_itself_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chat-history");
        std::fs::write(&path, "\"before\"\n{broken\n\"after\"\n").unwrap();
        let history = History::at(&path);
        assert_eq!(history.read(), ["before", "after"]);
        let many: Vec<_> = (0..=LARGEST).map(|it| format!("\"{it}\"")).collect();
        std::fs::write(&path, many.join("\n")).unwrap();
        assert_eq!(history.read().len(), MOST);
        let kept = std::fs::read_to_string(&path).unwrap();
        assert_eq!(kept.lines().count(), MOST);
        assert_eq!(kept.lines().last(), Some("\"4000\""));
    }
}
