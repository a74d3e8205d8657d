//! Incremental parser for server-sent events.
//!
//! Lines may end in LF, CR or CRLF, and chunks may end anywhere, even inside a
//! character. Comments are ignored.

/// Maximum size of an event, in bytes.
const MAX_EVENT_LEN: usize = 16 * 1024 * 1024;

/// A complete event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event<'a> {
    /// The event type; defaults to `message`.
    pub(crate) name: &'a str,
    /// The data lines, joined.
    pub(crate) data: &'a str,
}

impl Event<'_> {
    /// Whether the event only keeps the connection open.
    pub(crate) fn is_keep_alive(&self) -> bool {
        let data = self.data.trim();
        let is_ping = || {
            let data: Option<serde_json::Value> = serde_json::from_str(data).ok();
            data.is_some_and(|data| data["type"] == "ping")
        };
        self.name == "ping" || data.is_empty() || data.len() < 64 && is_ping()
    }
}

/// An event exceeds the size limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event is longer than {MAX_EVENT_LEN} bytes")]
pub(crate) struct TooLong;

/// The parser state.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    /// An incomplete line.
    line: Vec<u8>,
    name: String,
    data: String,
    has_data: bool,
    /// The last byte was CR: an LF that follows belongs to it.
    after_cr: bool,
    /// The first line has been read; a byte order mark may precede it.
    begun: bool,
}

impl Reader {
    /// Processes a chunk and calls `each` for every event that it completes.
    pub(crate) fn push<E: From<TooLong>>(
        &mut self,
        mut bytes: &[u8],
        mut each: impl FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        while !bytes.is_empty() {
            if std::mem::take(&mut self.after_cr) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', bytes) else {
                self.line.extend_from_slice(bytes);
                if self.line.len() > MAX_EVENT_LEN {
                    return Err(TooLong.into());
                }
                return Ok(());
            };
            self.after_cr = bytes[end] == b'\r';
            let (rest_of_line, rest) = (&bytes[..end], &bytes[end + 1..]);
            bytes = rest;
            let ended;
            if self.line.is_empty() {
                ended = self.take_line(rest_of_line);
            } else {
                self.line.extend_from_slice(rest_of_line);
                let mut line = std::mem::take(&mut self.line);
                ended = self.take_line(&line);
                line.clear();
                // Reuses the allocation.
                self.line = line;
            }
            if self.data.len() > MAX_EVENT_LEN {
                return Err(TooLong.into());
            }
            if !ended {
                continue;
            }
            if self.has_data {
                let name = if self.name.is_empty() {
                    "message"
                } else {
                    &self.name
                };
                let data = self.data.strip_suffix('\n').unwrap_or(&self.data);
                each(Event { name, data })?;
            }
            self.name.clear();
            self.data.clear();
            self.has_data = false;
        }
        Ok(())
    }

    /// Processes a line and returns whether it ends an event.
    fn take_line(&mut self, line: &[u8]) -> bool {
        let mut line = line;
        if !std::mem::replace(&mut self.begun, true) {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.is_empty() {
            return true;
        }
        let colon = memchr::memchr(b':', line);
        let (field, value) = match colon {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line, &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let value = String::from_utf8_lossy(value);
        match field {
            b"data" => {
                self.has_data = true;
                self.data.push_str(&value);
                self.data.push('\n');
            }
            b"event" => {
                self.name.clear();
                self.name.push_str(&value);
            }
            // A comment, or a field for reconnecting clients.
            _ => {}
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<(String, String)> {
        let (mut reader, mut all) = (Reader::default(), Vec::new());
        for piece in pieces {
            let each = |event: Event<'_>| {
                all.push((event.name.to_owned(), event.data.to_owned()));
                Ok::<_, TooLong>(())
            };
            reader.push(piece, each).unwrap();
        }
        all
    }

    #[test]
    fn events_are_parsed_according_to_the_standard() {
        for (text, expected) in [
            ("data: a\n\n", vec![("message", "a")]),
            ("data:a\r\n\r\n", vec![("message", "a")]),
            (
                "data: a\r\rdata: b\r\r",
                vec![("message", "a"), ("message", "b")],
            ),
            ("event: x\ndata: a\ndata:  b\n\n", vec![("x", "a\n b")]),
            (": keep-alive\n\ndata: a\n\n", vec![("message", "a")]),
            ("event: x\n\ndata: a\n\n", vec![("message", "a")]),
            ("id: 7\nretry: 10\ndata: a\nodd\n\n", vec![("message", "a")]),
            ("data\n\n", vec![("message", "")]),
            ("\u{feff}data: a\n\n", vec![("message", "a")]),
            ("data: not whole\n", vec![]),
            ("data: a:b\n\n\n\n", vec![("message", "a:b")]),
        ] {
            let read = read([text.as_bytes()]);
            let read: Vec<_> = read.iter().map(|(n, d)| (n.as_str(), d.as_str())).collect();
            assert_eq!(read, expected, "{text:?}");
        }
    }

    #[test]
    fn unterminated_event_is_rejected() {
        let mut reader = Reader::default();
        let piece = vec![b'a'; MAX_EVENT_LEN / 4];
        let mut pieces = (0..6).map(|_| reader.push(&piece, |_| Ok::<_, TooLong>(())));
        assert!(pieces.any(|outcome| outcome == Err(TooLong)));
    }

    proptest! {
        #[test]
        fn events_do_not_depend_on_the_chunking(
            events in prop::collection::vec("[a-zäß🎉 :]{0,12}", 0..6),
            ending in prop_oneof![Just("\n"), Just("\r\n"), Just("\r")],
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let mut text = String::new();
            for data in &events {
                let lines = [": ping", "event: e", &format!("data: {data}"), ""];
                text.extend(lines.map(|line| format!("{line}{ending}")));
            }
            let bytes = text.as_bytes();
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]);
            let expected: Vec<_> = events.iter().map(|it| ("e".to_owned(), it.clone())).collect();
            prop_assert_eq!(read(pieces), expected);
        }
    }
}
