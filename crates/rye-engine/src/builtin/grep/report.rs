//! What is told of what was found.

use serde::Deserialize;
use serde_json::json;

use super::search::Found;
use super::{Batch, TIME};
use crate::builtin::counted;
use crate::tool::ToolOutput;

/// How much is told in all.
const SHOWN: usize = 50_000;

/// How many lines of a file are counted.
const COUNTED: usize = 1_000_000;

/// What is told.
#[derive(Debug, Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum Show {
    /// Lines that fit.
    #[default]
    Lines,
    /// Files that have such lines.
    Files,
    /// How many each has.
    Counts,
}

/// What was found so far.
#[derive(Debug)]
pub(super) struct Report {
    show: Show,
    limit: usize,
    text: String,
    /// Lines that fit, and files that have such.
    lines: usize,
    files: usize,
    searched: usize,
    binary: usize,
    unreadable: usize,
    /// Whether there is more than is told.
    more: bool,
    /// Whether all files were looked at.
    pub(super) whole: bool,
    pub(super) out_of_time: bool,
    long_lines: bool,
}

impl Report {
    pub(super) fn new(show: Show, limit: usize) -> Self {
        Self {
            show,
            limit,
            text: String::new(),
            lines: 0,
            files: 0,
            searched: 0,
            binary: 0,
            unreadable: 0,
            more: false,
            whole: true,
            out_of_time: false,
            long_lines: false,
        }
    }

    /// How many lines of a file are looked for.
    pub(super) fn each(&self) -> usize {
        match self.show {
            // One more says whether there are more.
            Show::Lines => self.limit + 1,
            Show::Files => 1,
            Show::Counts => COUNTED,
        }
    }

    /// Takes the next files in; whether more are wanted.
    pub(super) fn take(&mut self, batch: Batch) -> bool {
        self.searched += batch.searched;
        self.binary += batch.binary;
        self.unreadable += batch.unreadable;
        for (path, found) in batch.found {
            self.out_of_time |= found.out_of_time;
            self.long_lines |= found.long_line;
            if found.count == 0 {
                continue;
            }
            if self.is_full() {
                self.more = true;
                return false;
            }
            self.files += 1;
            match self.show {
                Show::Lines => self.add_lines(&path, &found),
                Show::Files => self.add(&path, found.count),
                Show::Counts => self.add(&format!("{}\t{path}", found.count), found.count),
            }
            if self.more {
                return false;
            }
        }
        true
    }

    fn is_full(&self) -> bool {
        let told = match self.show {
            Show::Lines => self.lines,
            Show::Files | Show::Counts => self.files,
        };
        told >= self.limit || self.text.len() > SHOWN
    }

    fn add(&mut self, line: &str, count: usize) {
        self.lines += count;
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn add_lines(&mut self, path: &str, found: &Found) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.add(path, 0);
        let mut before = None;
        for line in &found.lines {
            if line.fits && self.is_full() {
                self.more = true;
                return;
            }
            if before.is_some_and(|before| before + 1 < line.number) && found.has_context() {
                self.add("--", 0);
            }
            before = Some(line.number);
            let sign = if line.fits { ':' } else { '-' };
            let text = format!("{}{sign} {}", line.number, line.text);
            self.add(&text, usize::from(line.fits));
        }
    }

    pub(super) fn output(mut self, files: usize) -> ToolOutput {
        let mut notes = Vec::new();
        if self.files == 0 {
            let searched = counted(self.searched, "file");
            let binary = match self.binary {
                0 => String::new(),
                binary => format!(", {} left out", counted(binary, "binary file")),
            };
            notes.push(format!("nothing fits: {searched} searched{binary}"));
        }
        if self.more {
            let what = match self.show {
                Show::Lines => counted(self.lines, "line"),
                Show::Files | Show::Counts => counted(self.files, "file"),
            };
            notes.push(format!(
                "{what} shown, there are more: narrow the search, or raise the limit"
            ));
        }
        if self.out_of_time {
            let (searched, seconds) = (self.searched, TIME.as_secs());
            notes.push(format!(
                "its time was up after {seconds} s: {searched} of {files} files were searched; \
                 narrow the search with path or glob"
            ));
        }
        if !self.whole {
            notes.push("not all files were looked at, there are too many: give a path".to_owned());
        }
        if self.long_lines {
            let what = "of lines that are longer than 1 MiB only the beginning was searched";
            notes.push(what.to_owned());
        }
        if self.unreadable > 0 {
            let unreadable = counted(self.unreadable, "file");
            notes.push(format!("{unreadable} could not be read"));
        }
        let text = std::mem::take(&mut self.text);
        let notes = notes.into_iter().map(|note| format!("[{note}]"));
        let parts = Some(text.trim_end().to_owned()).filter(|text| !text.is_empty());
        ToolOutput {
            text: parts
                .into_iter()
                .chain(notes)
                .collect::<Vec<_>>()
                .join("\n"),
            data: json!({
                "lines": self.lines,
                "files": self.files,
                "searched": self.searched,
                "whole": self.whole && !self.more && !self.out_of_time,
            }),
            attachments: Vec::new(),
        }
    }
}

impl Found {
    /// Whether lines are shown that do not fit: then gaps are, too.
    fn has_context(&self) -> bool {
        self.lines.iter().any(|line| !line.fits)
    }
}
