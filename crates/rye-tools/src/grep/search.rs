//! Searches the bytes of one file for matching lines.

use std::ops::Range;
use std::time::Instant;

use memchr::{memchr, memchr_iter, memrchr};
use regex::bytes::{Regex, RegexBuilder};

/// Number of bytes to search between checks of the deadline.
const WINDOW: usize = 64 * 1024;
/// Maximum number of bytes of a line to search.
const MAX_LINE: usize = 1024 * 1024;
/// Maximum number of bytes of a line to show.
const MAX_SHOWN: usize = 400;
/// Number of these bytes before the match.
const SHOWN_BEFORE: usize = 100;
/// Maximum size of a compiled pattern, in bytes.
const MAX_PROGRAM: usize = 1024 * 1024;

/// A compiled search.
#[derive(Debug)]
pub(super) struct Searcher {
    regex: Regex,
    /// Matches may span lines.
    multiline: bool,
    /// Number of context lines; `None` to return no lines.
    context: Option<usize>,
}

/// Byte positions of a matching line and of the match in it.
type Hit = (usize, usize);

/// Options of a search.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SearchOptions {
    pub(super) literal: bool,
    pub(super) ignore_case: bool,
    pub(super) multiline: bool,
    pub(super) context: Option<usize>,
}

/// A line of the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) number: usize,
    /// The line matches; otherwise it is context.
    pub(super) is_match: bool,
    pub(super) text: String,
}

/// Results for one file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FileMatches {
    /// Number of matching lines.
    pub(super) count: usize,
    pub(super) lines: Vec<Line>,
    /// The deadline passed before the end of the file.
    pub(super) out_of_time: bool,
    /// A line was so long that only its beginning was searched.
    pub(super) long_line: bool,
}

impl Searcher {
    /// Compiles a pattern. The error is a message for the model.
    pub(super) fn new(pattern: &str, options: SearchOptions) -> Result<Self, String> {
        let escaped = regex::escape(pattern);
        let pattern = if options.literal { &escaped } else { pattern };
        let regex = RegexBuilder::new(pattern)
            .case_insensitive(options.ignore_case)
            .multi_line(true)
            .crlf(true)
            .dot_matches_new_line(options.multiline)
            .size_limit(MAX_PROGRAM)
            .build();
        let regex = regex.map_err(|error| {
            format!("{error}\n(ripgrep syntax; set `literal` for literal text)")
        })?;
        Ok(Self {
            regex,
            multiline: options.multiline,
            context: options.context,
        })
    }

    /// Searches a file for at most `limit` matching lines, until the deadline.
    pub(super) fn search(&self, bytes: &[u8], limit: usize, deadline: Instant) -> FileMatches {
        let mut found = FileMatches::default();
        let hits = if self.multiline {
            self.find_spans(bytes, limit)
        } else {
            self.find_lines(bytes, limit, deadline, &mut found)
        };
        found.count = hits.len();
        if let Some(context) = self.context {
            found.lines = with_context(bytes, &hits, context);
        }
        found
    }

    /// Finds matching lines, each searched separately.
    fn find_lines(
        &self,
        bytes: &[u8],
        limit: usize,
        deadline: Instant,
        matches: &mut FileMatches,
    ) -> Vec<Hit> {
        let mut hits = Vec::new();
        let mut from = 0;
        while from < bytes.len() {
            if Instant::now() >= deadline {
                matches.out_of_time = true;
                break;
            }
            let end = line_end(bytes, (from + WINDOW).min(bytes.len() - 1));
            let searched = end.min(from + WINDOW + MAX_LINE);
            matches.long_line |= searched < end;
            let mut at = from;
            // A match in the window may extend into the next line, so each line with a match is
            // searched again separately.
            while let Some(found) = self.regex.find_at(&bytes[..searched], at) {
                let start = line_start(bytes, found.start());
                if start >= searched {
                    break;
                }
                let next = line_end(bytes, start);
                let line = trim_line_end(&bytes[start..next.min(searched)]);
                if let Some(found) = self.regex.find(line) {
                    hits.push((start, start + found.start()));
                    if hits.len() >= limit {
                        return hits;
                    }
                }
                at = next;
                if at >= searched {
                    break;
                }
            }
            from = end;
        }
        hits
    }

    /// Finds the lines of matches that may span several lines.
    fn find_spans(&self, bytes: &[u8], limit: usize) -> Vec<Hit> {
        let mut hits: Vec<Hit> = Vec::new();
        for found in self.regex.find_iter(bytes) {
            let mut start = line_start(bytes, found.start());
            let mut at = found.start();
            // A match after the last line belongs to no line.
            while start < bytes.len() && hits.len() < limit {
                if hits.last().is_none_or(|(last, _)| *last < start) {
                    hits.push((start, at));
                }
                start = line_end(bytes, start);
                at = start;
                if start >= found.end() {
                    break;
                }
            }
        }
        hits
    }
}

/// The matching lines with their context.
fn with_context(bytes: &[u8], hits: &[Hit], context: usize) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let (mut number, mut counted) = (1, 0);
    for (start, found) in hits {
        number += newlines(&bytes[counted..*start]);
        counted = *start;
        // The line may already be there as context of the previous match.
        lines.truncate(lines.partition_point(|line| line.number < number));
        let last = lines.last().map_or(0, |line| line.number);
        for (line, range) in lines_before(bytes, *start, number, context.min(number - last - 1)) {
            lines.push(Line::context(line, &bytes[range]));
        }
        let mut edge = line_end(bytes, *start);
        lines.push(Line {
            number,
            is_match: true,
            text: excerpt(trim_line_end(&bytes[*start..edge]), found - start),
        });
        for after in 1..=context {
            if edge >= bytes.len() {
                break;
            }
            let next = line_end(bytes, edge);
            lines.push(Line::context(number + after, &bytes[edge..next]));
            edge = next;
        }
    }
    lines
}

/// The `count` lines before a position, in order, with their numbers.
fn lines_before(
    bytes: &[u8],
    start: usize,
    number: usize,
    count: usize,
) -> Vec<(usize, Range<usize>)> {
    let mut lines = Vec::new();
    let mut edge = start;
    for before in 1..=count {
        let first = line_start(bytes, edge - 1);
        lines.push((number - before, first..edge));
        edge = first;
    }
    lines.reverse();
    lines
}

impl Line {
    fn context(number: usize, line: &[u8]) -> Self {
        let (is_match, text) = (false, excerpt(trim_line_end(line), 0));
        Self {
            number,
            is_match,
            text,
        }
    }
}

fn newlines(bytes: &[u8]) -> usize {
    memchr_iter(b'\n', bytes).count()
}

/// Start of the line at a byte position.
fn line_start(bytes: &[u8], at: usize) -> usize {
    let before = &bytes[..at.min(bytes.len())];
    memrchr(b'\n', before).map_or(0, |end| end + 1)
}

/// Start of the next line.
fn line_end(bytes: &[u8], at: usize) -> usize {
    let end = memchr(b'\n', &bytes[at..]);
    end.map_or(bytes.len(), |end| at + end + 1)
}

fn trim_line_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// A line, truncated around the match if it is long.
fn excerpt(line: &[u8], found: usize) -> String {
    if line.len() <= MAX_SHOWN {
        return String::from_utf8_lossy(line).into_owned();
    }
    let is_inside = |at: &usize| line.get(*at).is_some_and(|byte| byte & 0xc0 == 0x80);
    let mut start = found
        .saturating_sub(SHOWN_BEFORE)
        .min(line.len() - MAX_SHOWN);
    let mut end = start + MAX_SHOWN;
    while is_inside(&start) && start > 0 {
        start -= 1;
    }
    while is_inside(&end) && end > start {
        end -= 1;
    }
    let before = if start > 0 { "… " } else { "" };
    let after = if end < line.len() { " …" } else { "" };
    format!(
        "{before}{}{after}",
        String::from_utf8_lossy(&line[start..end])
    )
}
