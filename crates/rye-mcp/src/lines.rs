//! Reads lines of limited length from a byte stream.

use std::borrow::Cow;

use rye_protocol::json::quote_large_integers;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

/// Read size: the capacity of a pipe.
const CHUNK_SIZE: usize = 64 * 1024;
/// How many bytes to keep of both ends of an oversized line: enough to find the id of the
/// request that it answers.
const KEPT_BYTES: usize = 1024;
/// An oversized line without an id at its start is abandoned at this multiple of the limit.
const ABANDON_FACTOR: usize = 4;
/// JSON key of a message's id.
const ID_KEY: &str = "\"id\"";

/// A line of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// The line without its line break.
    Complete(Vec<u8>),
    /// The line exceeded the limit and was dropped. Contains the id of the message if known.
    TooLong(Option<i64>),
}

/// Reads lines and drops oversized ones.
pub(crate) struct LineReader<R> {
    input: BufReader<R>,
    limit: usize,
    /// The line so far. Kept here because the future that reads it may be dropped.
    line: Vec<u8>,
    dropping: Option<OversizedLine>,
}

/// Both ends of a line that is being dropped.
#[derive(Default)]
struct OversizedLine {
    head: Vec<u8>,
    tail: Vec<u8>,
    /// Length so far, in bytes.
    length: usize,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(crate) fn new(input: R, limit: usize) -> Self {
        Self {
            input: BufReader::with_capacity(CHUNK_SIZE, input),
            limit,
            line: Vec::new(),
            dropping: None,
        }
    }

    /// Maximum length of a line, in bytes.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// The next line; `None` at the end of the stream, even after an incomplete line.
    pub(crate) async fn next(&mut self) -> Option<Line> {
        loop {
            let bytes = self.input.fill_buf().await.ok()?;
            if bytes.is_empty() {
                return None;
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let part = &bytes[..end.unwrap_or(bytes.len())];
            if let Some(dropped) = &mut self.dropping {
                dropped.push(part);
            } else {
                self.line.extend_from_slice(part);
            }
            let consumed = part.len() + usize::from(end.is_some());
            self.input.consume(consumed);
            if self.line.len() > self.limit {
                let dropped = self.dropping.insert(OversizedLine::default());
                dropped.push(&std::mem::take(&mut self.line));
            }
            match (&mut self.dropping, end) {
                (None, None) => {}
                (None, Some(_)) => return Some(Line::Complete(std::mem::take(&mut self.line))),
                (Some(dropped), end) => {
                    let id = end.map(|_| dropped.id());
                    if id.is_some() || dropped.should_abandon(self.limit) {
                        self.dropping = None;
                        return Some(Line::TooLong(id.flatten()));
                    }
                }
            }
        }
    }
}

impl OversizedLine {
    fn push(&mut self, bytes: &[u8]) {
        let missing = KEPT_BYTES.saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend_from_slice(&bytes[..missing]);
        self.length += bytes.len();
        let last = &bytes[bytes.len().saturating_sub(KEPT_BYTES)..];
        self.tail.extend_from_slice(last);
        let excess = self.tail.len().saturating_sub(KEPT_BYTES);
        self.tail.drain(..excess);
    }

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

/// Keeps the digits of integers of more than 64 bits in a message, as strings.
pub(crate) fn exact_integers(message: &[u8]) -> Cow<'_, [u8]> {
    match std::str::from_utf8(message).map(quote_large_integers) {
        Ok(Cow::Owned(quoted)) => Cow::Owned(quoted.into_bytes()),
        _ => Cow::Borrowed(message),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    /// The lines of a stream that arrives in chunks.
    fn split(limit: usize, chunks: &[&[u8]]) -> Vec<Result<String, Option<i64>>> {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(async {
            let (mut sender, receiver) = tokio::io::duplex(1 << 20);
            let mut lines = LineReader::new(receiver, limit);
            let mut all = Vec::new();
            for chunk in chunks {
                sender.write_all(chunk).await.unwrap();
                while let Some(line) = ready(&mut lines).await {
                    all.push(line);
                }
            }
            all
        })
    }

    /// The next line, if it has arrived.
    async fn ready<R: AsyncRead + Unpin>(
        lines: &mut LineReader<R>,
    ) -> Option<Result<String, Option<i64>>> {
        let next = std::pin::pin!(lines.next());
        let line = futures_util::future::select(next, std::future::ready(())).await;
        match line {
            futures_util::future::Either::Left((line, _)) => Some(match line? {
                Line::Complete(line) => Ok(String::from_utf8(line).unwrap()),
                Line::TooLong(id) => Err(id),
            }),
            futures_util::future::Either::Right(_) => None,
        }
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

    #[tokio::test]
    async fn memory_is_bounded_by_the_limit() {
        let (mut sender, receiver) = tokio::io::duplex(1 << 20);
        let mut lines = LineReader::new(receiver, 1000);
        sender.write_all(br#"{"id":7,"result":""#).await.unwrap();
        for _ in 0..10_000 {
            sender.write_all(&[b'x'; 999]).await.unwrap();
            assert_eq!(ready(&mut lines).await, None);
            let dropped = lines.dropping.as_ref();
            let kept = dropped.map_or(0, |it| it.head.capacity() + it.tail.capacity());
            assert!(lines.line.capacity() + kept < 10_000);
        }
        sender.write_all(b"\n").await.unwrap();
        assert_eq!(ready(&mut lines).await, Some(Err(Some(7))));
    }

    #[test]
    fn endless_line_without_an_id_is_abandoned() {
        for (start, chunks) in [("x", 1), (" no message", 1), (r#"{"result":""#, 4)] {
            let mut stream = vec![start.as_bytes()];
            stream.extend(std::iter::repeat_n([b'x'; 1000].as_slice(), chunks));
            let last = stream.len() - 1;
            assert_eq!(split(1000, &stream[..last]), [], "{start}");
            assert_eq!(split(1000, &stream), [Err(None)], "{start}");
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
