//! Lines of a stream, none longer than a limit.

use std::ops::Range;

use serde_json::Value;

/// How much is kept of the beginning and of the end of a line that is too long:
/// enough to find out which call it answers.
const KEPT: usize = 1024;
/// How many times the limit a line may be that names its call only at its end.
const ENDLESS: usize = 4;
/// The key of a message's id.
const ID: &str = "\"id\"";

/// What stands in the stream next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A line: where it is in the buffer, without its end.
    Whole(Range<usize>),
    /// A line beyond the limit, dropped, and the id of the message if it can be told.
    TooLong(Option<i64>),
}

/// Cuts a stream into lines.
pub(super) struct Lines {
    limit: usize,
    buffer: Vec<u8>,
    /// Where the current line begins.
    from: usize,
    /// How far the buffer was searched for its end.
    searched: usize,
    dropping: Option<Dropped>,
}

/// The ends of a line that is being dropped.
struct Dropped {
    head: Vec<u8>,
    tail: Vec<u8>,
    /// How long it is so far.
    length: usize,
}

impl Lines {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            buffer: Vec::new(),
            from: 0,
            searched: 0,
            dropping: None,
        }
    }

    /// How long a line may be.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// The bytes of a line that was told, until more are pushed.
    pub(super) fn bytes(&self, range: &Range<usize>) -> &[u8] {
        self.buffer.get(range.clone()).unwrap_or_default()
    }

    /// Adds what was read.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.from);
        self.searched -= self.from;
        self.from = 0;
        if self.buffer.is_empty() && self.buffer.capacity() > 1 << 20 {
            // One long message must not cost its memory for ever.
            self.buffer = Vec::new();
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next line, once all of it is there.
    pub(super) fn next(&mut self) -> Option<Line> {
        let unsearched = &self.buffer[self.searched..];
        let end = unsearched.iter().position(|byte| *byte == b'\n');
        let Some(end) = end.map(|at| at + self.searched) else {
            self.searched = self.buffer.len();
            if self.dropping.is_some() || self.searched - self.from > self.limit {
                self.drop_up_to(self.searched);
            }
            let limit = self.limit;
            let hopeless = self.dropping.take_if(|it| it.is_hopeless(limit));
            return hopeless.map(|_| Line::TooLong(None));
        };
        let line = self.from..end;
        if self.dropping.is_some() || line.len() > self.limit {
            self.drop_up_to(end);
        }
        self.from = end + 1;
        self.searched = self.from;
        Some(match self.dropping.take() {
            Some(dropped) => Line::TooLong(dropped.id()),
            None => Line::Whole(line),
        })
    }

    /// Drops the current line as far as it is there, and keeps its ends.
    fn drop_up_to(&mut self, end: usize) {
        let bytes = &self.buffer[self.from..end];
        let dropped = self.dropping.get_or_insert_with(|| Dropped {
            head: bytes[..bytes.len().min(KEPT)].to_vec(),
            tail: Vec::new(),
            length: 0,
        });
        dropped.length += bytes.len();
        let last = &bytes[bytes.len().saturating_sub(KEPT)..];
        dropped.tail.extend_from_slice(last);
        let excess = dropped.tail.len().saturating_sub(KEPT);
        dropped.tail.drain(..excess);
        self.from = end;
        if end == self.buffer.len() {
            self.buffer = Vec::new();
            self.from = 0;
            self.searched = 0;
        }
    }
}

impl Dropped {
    /// Whether it is not worth waiting for its end: it is no message, or so long that it may
    /// never end, and nobody knows whom it answers.
    fn is_hopeless(&self, limit: usize) -> bool {
        let is_message = self.head.trim_ascii_start().starts_with(b"{");
        let is_endless = self.length > limit.saturating_mul(ENDLESS);
        !is_message || (is_endless && self.id().is_none())
    }

    /// The id of the message, which stands before its result or after it.
    fn id(&self) -> Option<i64> {
        let head = String::from_utf8_lossy(&self.head);
        let before = head.split("\"result\"").next().unwrap_or_default();
        let tail = String::from_utf8_lossy(&self.tail);
        let first = before.find(ID).and_then(|at| id_at(before, at));
        first.or_else(|| id_at(&tail, tail.rfind(ID)?))
    }
}

/// The number after `"id"` at this place.
fn id_at(text: &str, at: usize) -> Option<i64> {
    let rest = text.get(at + ID.len()..)?.trim_start();
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

    /// The lines of a stream that comes in pieces.
    fn cut(limit: usize, pieces: &[&[u8]]) -> Vec<Result<String, Option<i64>>> {
        let mut lines = Lines::new(limit);
        let mut all = Vec::new();
        for piece in pieces {
            lines.push(piece);
            while let Some(line) = lines.next() {
                all.push(match line {
                    Line::Whole(range) => {
                        Ok(String::from_utf8(lines.bytes(&range).to_vec()).unwrap())
                    }
                    Line::TooLong(id) => Err(id),
                });
            }
        }
        all
    }

    #[test]
    fn a_line_beyond_the_limit_is_dropped_and_the_next_is_not() {
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
                let pieces: Vec<_> = stream.as_bytes().chunks(size).collect();
                let expected = [Err(id), Ok("short".to_owned())];
                assert_eq!(cut(50, &pieces), expected, "{message} by {size}");
            }
        }
    }

    #[test]
    fn memory_is_bounded_by_the_limit() {
        let mut lines = Lines::new(1000);
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
    fn a_line_that_is_no_answer_and_does_not_end_is_told_at_once() {
        for (beginning, pieces) in [("x", 1), (" no message", 1), (r#"{"result":""#, 4)] {
            let mut lines = Lines::new(1000);
            lines.push(beginning.as_bytes());
            for _ in 0..pieces {
                assert_eq!(lines.next(), None, "{beginning}");
                lines.push(&[b'x'; 1000]);
            }
            assert_eq!(lines.next(), Some(Line::TooLong(None)), "{beginning}");
        }
    }

    proptest! {
        #[test]
        fn lines_are_the_same_however_the_stream_is_cut(
            text in "[a-c\n]{0,60}",
            size in 1usize..20,
        ) {
            let expected: Vec<_> = text
                .split_inclusive('\n')
                .filter_map(|line| Some(Ok(line.strip_suffix('\n')?.to_owned())))
                .collect();
            let pieces: Vec<_> = text.as_bytes().chunks(size).collect();
            prop_assert_eq!(cut(60, &pieces), expected);
        }
    }
}
