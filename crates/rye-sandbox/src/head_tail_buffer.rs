//! Bounded capture of a command's output: the first and last bytes are kept, the middle is dropped.
//! Tools shorten it further for the model with [`rye_engine::text`].

use std::collections::VecDeque;

use rye_engine::sandbox::{ExecObserver, omission_note};

/// Default capacity in bytes.
pub(crate) const DEFAULT_CAPACITY: usize = 1024 * 1024;

/// Captures the head and tail of a stream, and forwards its beginning to an [`ExecObserver`].
#[derive(Debug)]
pub(crate) struct HeadTailBuffer {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
    limit: usize,
    /// Number of bytes to forward.
    forward_limit: u64,
    /// An incomplete UTF-8 sequence at the end of the forwarded bytes.
    partial: Vec<u8>,
}

impl HeadTailBuffer {
    pub(crate) fn new(limit: Option<usize>, forward_limit: Option<usize>) -> Self {
        let limit = limit.unwrap_or(DEFAULT_CAPACITY);
        Self {
            head: Vec::new(),
            tail: VecDeque::new(),
            total: 0,
            limit,
            forward_limit: forward_limit.unwrap_or(limit).min(limit) as u64,
            partial: Vec::new(),
        }
    }

    /// Adds bytes and forwards them, unless the forwarding limit is reached.
    pub(crate) fn push(&mut self, bytes: &[u8], observer: &dyn ExecObserver) {
        let is_forwarded = self.total < self.forward_limit;
        self.total = self.total.saturating_add(bytes.len() as u64);
        let room = (self.limit - self.limit / 2) - self.head.len();
        let (head, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(head);
        let tail_limit = self.limit / 2;
        let rest = &rest[rest.len().saturating_sub(tail_limit)..];
        let over = (self.tail.len() + rest.len()).saturating_sub(tail_limit);
        self.tail.drain(..over);
        self.tail.extend(rest);
        if is_forwarded {
            self.forward(bytes, observer);
        }
    }

    fn forward(&mut self, bytes: &[u8], observer: &dyn ExecObserver) {
        self.partial.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&self.partial) {
            Ok(text) => text.len(),
            // An incomplete character: the rest is still to come.
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Err(_) => self.partial.len(),
        };
        if whole > 0 {
            observer.on_output(&String::from_utf8_lossy(&self.partial[..whole]));
            self.partial.drain(..whole);
        }
    }

    /// The captured text, and whether anything was dropped.
    pub(crate) fn finish(self) -> (String, bool) {
        let captured = self.head.len() + self.tail.len();
        let dropped = self.total.saturating_sub(captured as u64);
        let mut bytes = self.head;
        if dropped == 0 {
            bytes.extend(self.tail);
            return (text(&bytes), false);
        }
        let tail: Vec<u8> = self.tail.into();
        let (head, tail) = (text(&bytes), text(&tail));
        (format!("{head}\n{}\n{tail}", omission_note(dropped)), true)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Default)]
    struct Recorder(Mutex<Vec<String>>);

    impl ExecObserver for Recorder {
        fn on_start(&self, _: &str) {}
        fn on_output(&self, text: &str) {
            self.0.lock().unwrap().push(text.to_owned());
        }
    }

    fn capture(limit: usize, chunks: &[&[u8]]) -> (String, bool, Vec<String>) {
        let recorder = Recorder::default();
        let mut buffer = HeadTailBuffer::new(Some(limit), None);
        for chunk in chunks {
            buffer.push(chunk, &recorder);
        }
        let (text, truncated) = buffer.finish();
        (text, truncated, recorder.0.into_inner().unwrap())
    }

    #[test]
    fn short_output_is_kept_completely() {
        for chunks in [&[b"abcdef".as_slice()][..], &[b"abc", b"d", b"ef"]] {
            let (text, truncated, _) = capture(6, chunks);
            assert_eq!((text.as_str(), truncated), ("abcdef", false));
        }
    }

    #[test]
    fn middle_of_long_output_is_dropped() {
        for chunks in [&[b"abcdefghij".as_slice()][..], &[b"abcde", b"fgh", b"ij"]] {
            let (text, truncated, _) = capture(4, chunks);
            assert_eq!(text, format!("ab\n{}\nij", omission_note(6)));
            assert!(truncated);
        }
        let (text, truncated, forwarded) = capture(0, &[b"abc"]);
        assert_eq!(text, format!("\n{}\n", omission_note(3)));
        assert!(truncated && forwarded.is_empty());
    }

    #[test]
    fn split_character_is_forwarded_as_one() {
        let (_, _, forwarded) = capture(99, &[b"gr\xc3", b"\xbc\xc3\x9fe\xff!"]);
        assert_eq!(forwarded, ["gr", "üße\u{fffd}!"]);
    }

    #[test]
    fn forwarding_stops_at_the_capacity() {
        let (_, _, forwarded) = capture(4, &[b"abc", b"def", b"ghi"]);
        assert_eq!(forwarded, ["abc", "def"]);
    }

    #[test]
    fn forwarding_limit_can_be_below_the_capacity() {
        let recorder = Recorder::default();
        let mut buffer = HeadTailBuffer::new(Some(100), Some(4));
        for chunk in [b"abc", b"def", b"ghi"] {
            buffer.push(chunk, &recorder);
        }
        assert_eq!(buffer.finish(), ("abcdefghi".to_owned(), false));
        assert_eq!(recorder.0.into_inner().unwrap(), ["abc", "def"]);
    }
}
