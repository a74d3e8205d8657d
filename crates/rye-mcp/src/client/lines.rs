//! Splits a byte stream into lines of limited length.

use std::ops::Range;

use serde_json::Value;

/// How many bytes to keep of both ends of an oversized line: enough to find the id of the
/// request that it answers.
const KEPT_BYTES: usize = 1024;
/// An oversized line without an id at its start is abandoned at this multiple of the limit.
const ABANDON_FACTOR: usize = 4;
/// JSON key of a message's id.
const ID_KEY: &str = "\"id\"";

/// The next line of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Range of the line in the buffer, without the line break.
    Complete(Range<usize>),
    /// The line exceeded the limit and was dropped. Contains the id of the message if known.
    TooLong(Option<i64>),
}

/// Splits a stream into lines and drops oversized ones.
pub(super) struct LineSplitter {
    limit: usize,
    buffer: Vec<u8>,
    /// Start of the current line in the buffer.
    line_start: usize,
    /// Up to where the buffer was searched for a line break.
    searched: usize,
    dropping: Option<OversizedLine>,
}

/// Both ends of a line that is being dropped.
struct OversizedLine {
    head: Vec<u8>,
    tail: Vec<u8>,
    /// Length so far, in bytes.
    length: usize,
}

impl LineSplitter {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            buffer: Vec::new(),
            line_start: 0,
            searched: 0,
            dropping: None,
        }
    }

    /// Maximum length of a line, in bytes.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// The bytes of a line that [`Self::next`] returned. Valid until the next `push`.
    pub(super) fn bytes(&self, range: &Range<usize>) -> &[u8] {
        self.buffer.get(range.clone()).unwrap_or_default()
    }

    /// Adds bytes of the stream.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.line_start);
        self.searched -= self.line_start;
        self.line_start = 0;
        if self.buffer.is_empty() && self.buffer.capacity() > 1 << 20 {
            // Do not keep the memory of one long message.
            self.buffer = Vec::new();
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next line, if it is complete.
    pub(super) fn next(&mut self) -> Option<Line> {
        let unsearched = &self.buffer[self.searched..];
        let end = unsearched.iter().position(|byte| *byte == b'\n');
        let Some(end) = end.map(|at| at + self.searched) else {
            self.searched = self.buffer.len();
            if self.dropping.is_some() || self.searched - self.line_start > self.limit {
                self.drop_up_to(self.searched);
            }
            let limit = self.limit;
            let abandoned = self.dropping.take_if(|it| it.should_abandon(limit));
            return abandoned.map(|_| Line::TooLong(None));
        };
        let line = self.line_start..end;
        if self.dropping.is_some() || line.len() > self.limit {
            self.drop_up_to(end);
        }
        self.line_start = end + 1;
        self.searched = self.line_start;
        Some(match self.dropping.take() {
            Some(dropped) => Line::TooLong(dropped.id()),
            None => Line::Complete(line),
        })
    }

    /// Drops the current line up to `end` and keeps its ends.
    fn drop_up_to(&mut self, end: usize) {
        let bytes = &self.buffer[self.line_start..end];
        let dropped = self.dropping.get_or_insert_with(|| OversizedLine {
            head: bytes[..bytes.len().min(KEPT_BYTES)].to_vec(),
            tail: Vec::new(),
            length: 0,
        });
        dropped.length += bytes.len();
        let last = &bytes[bytes.len().saturating_sub(KEPT_BYTES)..];
        dropped.tail.extend_from_slice(last);
        let excess = dropped.tail.len().saturating_sub(KEPT_BYTES);
        dropped.tail.drain(..excess);
        self.line_start = end;
        if end == self.buffer.len() {
            self.buffer = Vec::new();
            self.line_start = 0;
            self.searched = 0;
        }
    }
}

impl OversizedLine {
    /// Whether to give up before the end of the line: it is not a message, or it is far beyond
    /// the limit and its id is unknown.
    fn should_abandon(&self, limit: usize) -> bool {
        let is_message = self.head.trim_ascii_start().starts_with(b"{");
        let is_endless = self.length > limit.saturating_mul(ABANDON_FACTOR);
        !is_message || (is_endless && self.id().is_none())
    }

    /// Id of the message, which is before or after the `result`.
    fn id(&self) -> Option<i64> {
        let head = String::from_utf8_lossy(&self.head);
        let before = head.split("\"result\"").next().unwrap_or_default();
        let tail = String::from_utf8_lossy(&self.tail);
        let first = before.find(ID_KEY).and_then(|at| id_at(before, at));
        first.or_else(|| id_at(&tail, tail.rfind(ID_KEY)?))
    }
}

/// The number after the `"id"` at this position.
fn id_at(text: &str, at: usize) -> Option<i64> {
    let rest = text.get(at + ID_KEY.len()..)?.trim_start();
    let rest = rest.strip_prefix(':')?.trim_start();
    let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
    match values.next()?.ok()? {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The lines of a stream that arrives in chunks.
    fn split(limit: usize, chunks: &[&[u8]]) -> Vec<Result<String, Option<i64>>> {
        let mut lines = LineSplitter::new(limit);
        let mut all = Vec::new();
        for chunk in chunks {
            lines.push(chunk);
            while let Some(line) = lines.next() {
                all.push(match line {
                    Line::Complete(range) => {
                        Ok(String::from_utf8(lines.bytes(&range).to_vec()).unwrap())
                    }
                    Line::TooLong(id) => Err(id),
                });
            }
        }
        all
    }

    #[test]
    fn oversized_line_is_dropped_and_the_next_is_kept() {
        let long = "x".repeat(100);
        for (message, id) in [
            (
                format!(r#"{{"jsonrpc":"2.0","id":7,"result":"{long}"}}"#),
                Some(7),
            ),
            (
                format!(r#"{{"result":{{"id":3,"x":"{long}"}},"id" : 8}}"#),
                Some(8),
            ),
            (format!(r#"{{"id":"9","result":"{long}"}}"#), Some(9)),
            (format!(r#"{{"result":"{long}"}}"#), None),
        ] {
            for size in [1, 7, 64, 4096] {
                let stream = format!("{message}\nshort\n");
                let chunks: Vec<_> = stream.as_bytes().chunks(size).collect();
                let expected = [Err(id), Ok("short".to_owned())];
                assert_eq!(split(50, &chunks), expected, "{message} by {size}");
            }
        }
    }

    #[test]
    fn memory_is_bounded_by_the_limit() {
        let mut lines = LineSplitter::new(1000);
        lines.push(br#"{"id":7,"result":""#);
        for _ in 0..10_000 {
            lines.push(&[b'x'; 999]);
            assert_eq!(lines.next(), None);
            assert!(lines.buffer.capacity() < 10_000);
        }
        lines.push(b"\n");
        assert_eq!(lines.next(), Some(Line::TooLong(Some(7))));
    }

    #[test]
    fn endless_line_without_an_id_is_abandoned() {
        for (start, chunks) in [("x", 1), (" no message", 1), (r#"{"result":""#, 4)] {
            let mut lines = LineSplitter::new(1000);
            lines.push(start.as_bytes());
            for _ in 0..chunks {
                assert_eq!(lines.next(), None, "{start}");
                lines.push(&[b'x'; 1000]);
            }
            assert_eq!(lines.next(), Some(Line::TooLong(None)), "{start}");
        }
    }

    proptest! {
        #[test]
        fn chunking_does_not_change_the_lines(
            text in "[a-c\n]{0,60}",
            size in 1usize..20,
        ) {
            let expected: Vec<_> = text
                .split_inclusive('\n')
                .filter_map(|line| Some(Ok(line.strip_suffix('\n')?.to_owned())))
                .collect();
            let chunks: Vec<_> = text.as_bytes().chunks(size).collect();
            prop_assert_eq!(split(60, &chunks), expected);
        }
    }
}
