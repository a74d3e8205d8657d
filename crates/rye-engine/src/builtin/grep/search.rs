//! Lines that fit, in the bytes of one file.

use std::ops::Range;
use std::time::Instant;

use memchr::{memchr, memchr_iter, memrchr};
use regex::bytes::{Regex, RegexBuilder};

/// How much is searched before the clock is looked at.
const WINDOW: usize = 64 * 1024;
/// How much of one line is searched.
const LINE: usize = 1024 * 1024;
/// How much of a line is shown, and how much of that stands before what was found.
const SHOWN: usize = 400;
const BEFORE: usize = 100;
/// How large a pattern may become.
const PROGRAM: usize = 1024 * 1024;

/// What is looked for.
#[derive(Debug)]
pub(super) struct Finder {
    regex: Regex,
    /// Whether it may span lines.
    multiline: bool,
    /// How many lines around it are shown; none if no line is.
    context: Option<usize>,
}

/// A line that fits: where it begins, and what fits in it.
type Hit = (usize, usize);

/// How to look.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct How {
    pub(super) literal: bool,
    pub(super) ignore_case: bool,
    pub(super) multiline: bool,
    pub(super) context: Option<usize>,
}

/// A line that is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) number: usize,
    /// Whether something in it fits, or it only stands beside such a line.
    pub(super) fits: bool,
    pub(super) text: String,
}

/// What was found in a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// How many lines fit.
    pub(super) count: usize,
    pub(super) lines: Vec<Line>,
    /// Whether there was no time to search all of it.
    pub(super) out_of_time: bool,
    /// Whether a line is so long that only its beginning was searched.
    pub(super) long_line: bool,
}

impl Finder {
    /// In words why it cannot be.
    pub(super) fn new(pattern: &str, how: How) -> Result<Self, String> {
        let escaped = regex::escape(pattern);
        let pattern = if how.literal { &escaped } else { pattern };
        let regex = RegexBuilder::new(pattern)
            .case_insensitive(how.ignore_case)
            .multi_line(true)
            .crlf(true)
            .dot_matches_new_line(how.multiline)
            .size_limit(PROGRAM)
            .build();
        let regex = regex.map_err(|error| {
            format!("{error}\n(the syntax is that of ripgrep; with `literal` it is plain text)")
        })?;
        Ok(Self {
            regex,
            multiline: how.multiline,
            context: how.context,
        })
    }

    /// At most so many lines that fit, until then.
    pub(super) fn search(&self, bytes: &[u8], most: usize, until: Instant) -> Found {
        let mut found = Found::default();
        let hits = if self.multiline {
            self.spans(bytes, most)
        } else {
            self.lines(bytes, most, until, &mut found)
        };
        found.count = hits.len();
        if let Some(context) = self.context {
            found.lines = show(bytes, &hits, context);
        }
        found
    }

    /// Lines that fit by themselves.
    fn lines(&self, bytes: &[u8], most: usize, until: Instant, told: &mut Found) -> Vec<Hit> {
        let mut hits = Vec::new();
        let mut from = 0;
        while from < bytes.len() {
            if Instant::now() >= until {
                told.out_of_time = true;
                break;
            }
            let end = line_end(bytes, (from + WINDOW).min(bytes.len() - 1));
            let searched = end.min(from + WINDOW + LINE);
            told.long_line |= searched < end;
            let mut at = from;
            // If something fits in a line, something fits from its start on; but what fits
            // may reach into the next line. So each line is asked again, alone.
            while let Some(found) = self.regex.find_at(&bytes[..searched], at) {
                let start = line_start(bytes, found.start());
                if start >= searched {
                    break;
                }
                let next = line_end(bytes, start);
                let line = trimmed(&bytes[start..next.min(searched)]);
                if let Some(found) = self.regex.find(line) {
                    hits.push((start, start + found.start()));
                    if hits.len() >= most {
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

    /// Lines that something fits in that may span several.
    fn spans(&self, bytes: &[u8], most: usize) -> Vec<Hit> {
        let mut hits: Vec<Hit> = Vec::new();
        for found in self.regex.find_iter(bytes) {
            let mut start = line_start(bytes, found.start());
            let mut at = found.start();
            // What is found behind the last line is in none.
            while start < bytes.len() && hits.len() < most {
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

/// The lines that fit, and those beside them.
fn show(bytes: &[u8], hits: &[Hit], context: usize) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let (mut number, mut counted) = (1, 0);
    for (start, found) in hits {
        number += newlines(&bytes[counted..*start]);
        counted = *start;
        // It may have been shown as standing beside the one before.
        lines.truncate(lines.partition_point(|line| line.number < number));
        let last = lines.last().map_or(0, |line| line.number);
        for (line, range) in above(bytes, *start, number, context.min(number - last - 1)) {
            lines.push(Line::beside(line, &bytes[range]));
        }
        let mut edge = line_end(bytes, *start);
        lines.push(Line {
            number,
            fits: true,
            text: shown(trimmed(&bytes[*start..edge]), found - start),
        });
        for after in 1..=context {
            if edge >= bytes.len() {
                break;
            }
            let next = line_end(bytes, edge);
            lines.push(Line::beside(number + after, &bytes[edge..next]));
            edge = next;
        }
    }
    lines
}

/// So many lines above one, in order, with their numbers.
fn above(bytes: &[u8], start: usize, number: usize, count: usize) -> Vec<(usize, Range<usize>)> {
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
    fn beside(number: usize, line: &[u8]) -> Self {
        let (fits, text) = (false, shown(trimmed(line), 0));
        Self { number, fits, text }
    }
}

fn newlines(bytes: &[u8]) -> usize {
    memchr_iter(b'\n', bytes).count()
}

/// Where the line begins that a byte is in.
fn line_start(bytes: &[u8], at: usize) -> usize {
    let before = &bytes[..at.min(bytes.len())];
    memrchr(b'\n', before).map_or(0, |end| end + 1)
}

/// Where the next line begins.
fn line_end(bytes: &[u8], at: usize) -> usize {
    let end = memchr(b'\n', &bytes[at..]);
    end.map_or(bytes.len(), |end| at + end + 1)
}

fn trimmed(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// A line, or as much of it as is near to what was found.
fn shown(line: &[u8], found: usize) -> String {
    if line.len() <= SHOWN {
        return String::from_utf8_lossy(line).into_owned();
    }
    let is_inside = |at: &usize| line.get(*at).is_some_and(|byte| byte & 0xc0 == 0x80);
    let mut start = found.saturating_sub(BEFORE).min(line.len() - SHOWN);
    let mut end = start + SHOWN;
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
