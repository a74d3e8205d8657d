//! Formats the results of `grep`.

use serde::Deserialize;
use serde_json::json;

use super::search::FileMatches;
use super::{Batch, TIMEOUT};
use crate::counted;
use rye_engine::tool::ToolOutput;

/// Maximum size of the result, in bytes.
const MAX_TEXT: usize = 50_000;

/// Maximum number of lines to count per file.
const MAX_COUNTED: usize = 1_000_000;

/// What to list.
#[derive(Debug, Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum Show {
    /// Matching lines.
    #[default]
    Lines,
    /// Files with matching lines.
    Files,
    /// Number of matching lines per file.
    Counts,
}

/// Results so far.
#[derive(Debug, Default)]
pub(super) struct Report {
    show: Show,
    limit: usize,
    text: String,
    /// Number of matching lines.
    lines: usize,
    /// Number of files with matching lines.
    files: usize,
    searched: usize,
    binary: usize,
    unreadable: usize,
    /// There are more results than shown.
    has_more: bool,
    /// All files were searched.
    pub(super) is_complete: bool,
    pub(super) out_of_time: bool,
    long_lines: bool,
}

impl Report {
    pub(super) fn new(show: Show, limit: usize) -> Self {
        Self {
            show,
            limit,
            is_complete: true,
            ..Self::default()
        }
    }

    /// Maximum number of matching lines to search for per file.
    pub(super) fn max_per_file(&self) -> usize {
        match self.show {
            // One more, to know whether there are more.
            Show::Lines => self.limit + 1,
            Show::Files => 1,
            Show::Counts => MAX_COUNTED,
        }
    }

    /// Adds the results of the next batch; false if the report is full.
    pub(super) fn add_batch(&mut self, batch: Batch) -> bool {
        self.searched += batch.searched;
        self.binary += batch.binary;
        self.unreadable += batch.unreadable;
        for (path, matches) in batch.matches {
            self.out_of_time |= matches.out_of_time;
            self.long_lines |= matches.long_line;
            if matches.count == 0 {
                continue;
            }
            if self.is_full() {
                self.has_more = true;
                return false;
            }
            self.files += 1;
            match self.show {
                Show::Lines => self.add_lines(&path, &matches),
                Show::Files => self.add(&path, matches.count),
                Show::Counts => self.add(&format!("{}\t{path}", matches.count), matches.count),
            }
            if self.has_more {
                return false;
            }
        }
        true
    }

    fn is_full(&self) -> bool {
        let count = match self.show {
            Show::Lines => self.lines,
            Show::Files | Show::Counts => self.files,
        };
        count >= self.limit || self.text.len() > MAX_TEXT
    }

    fn add(&mut self, line: &str, count: usize) {
        self.lines += count;
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn add_lines(&mut self, path: &str, matches: &FileMatches) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.add(path, 0);
        // Gaps are marked between context lines.
        let has_context = matches.lines.iter().any(|line| !line.is_match);
        let mut previous = None;
        for line in &matches.lines {
            if line.is_match && self.is_full() {
                self.has_more = true;
                return;
            }
            if has_context && previous.is_some_and(|previous| previous + 1 < line.number) {
                self.add("--", 0);
            }
            previous = Some(line.number);
            let sign = if line.is_match { ':' } else { '-' };
            let text = format!("{}{sign} {}", line.number, line.text);
            self.add(&text, usize::from(line.is_match));
        }
    }

    pub(super) fn output(mut self, files: usize) -> ToolOutput {
        let mut notes = Vec::new();
        if self.files == 0 {
            let searched = counted(self.searched, "file");
            let binary = match self.binary {
                0 => String::new(),
                binary => format!(", {} skipped", counted(binary, "binary file")),
            };
            notes.push(format!("no matches: {searched} searched{binary}"));
        }
        if self.has_more {
            let what = match self.show {
                Show::Lines => counted(self.lines, "line"),
                Show::Files | Show::Counts => counted(self.files, "file"),
            };
            notes.push(format!(
                "{what} shown, there are more: narrow the search, or raise the limit"
            ));
        }
        if self.out_of_time {
            let (searched, seconds) = (self.searched, TIMEOUT.as_secs());
            notes.push(format!(
                "timed out after {seconds} s: {searched} of {files} files searched; narrow the search \
                 with path or glob"
            ));
        }
        if !self.is_complete {
            notes.push("too many files; not all were searched: give a path".to_owned());
        }
        if self.long_lines {
            let what = "only the first 1 MiB of very long lines was searched";
            notes.push(what.to_owned());
        }
        if self.unreadable > 0 {
            let unreadable = counted(self.unreadable, "file");
            notes.push(format!("{unreadable} could not be read"));
        }
        let text = std::mem::take(&mut self.text);
        let notes = notes.into_iter().map(|note| format!("[{note}]"));
        let parts = Some(text.trim_end().to_owned()).filter(|text| !text.is_empty());
        ToolOutput::new(
            parts
                .into_iter()
                .chain(notes)
                .collect::<Vec<_>>()
                .join("\n"),
            json!({
                "lines": self.lines,
                "files": self.files,
                "searched": self.searched,
                "complete": self.is_complete && !self.has_more && !self.out_of_time,
            }),
        )
    }
}
