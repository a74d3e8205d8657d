//! What is kept of an output stream: all of it if it is short, else its beginning and its
//! end. The beginning says what it is, and the end how it went.

use std::collections::VecDeque;

use rye_engine::sandbox::Watcher;

/// How much of a stream is kept where nobody says otherwise.
pub(crate) const STANDARD: usize = 1024 * 1024;

/// One stream, as far as it is kept, and told live as far.
#[derive(Debug)]
pub(crate) struct Kept {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
    limit: usize,
    /// How much is told.
    told: u64,
    /// The beginning of a character whose end has not come yet.
    partial: Vec<u8>,
}

impl Kept {
    pub(crate) fn new(limit: Option<usize>, told: Option<usize>) -> Self {
        let limit = limit.unwrap_or(STANDARD);
        Self {
            head: Vec::new(),
            tail: VecDeque::new(),
            total: 0,
            limit,
            told: told.unwrap_or(limit).min(limit) as u64,
            partial: Vec::new(),
        }
    }

    /// Takes the next bytes, and tells them unless enough was told: nobody watches a flood,
    /// and it must not fill the memory of whoever tries.
    pub(crate) fn take(&mut self, bytes: &[u8], watcher: &dyn Watcher) {
        let told = self.total < self.told;
        self.total = self.total.saturating_add(bytes.len() as u64);
        let room = (self.limit - self.limit / 2) - self.head.len();
        let (head, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(head);
        let most = self.limit / 2;
        let rest = &rest[rest.len().saturating_sub(most)..];
        let over = (self.tail.len() + rest.len()).saturating_sub(most);
        self.tail.drain(..over);
        self.tail.extend(rest);
        if told {
            self.tell(bytes, watcher);
        }
    }

    fn tell(&mut self, bytes: &[u8], watcher: &dyn Watcher) {
        self.partial.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&self.partial) {
            Ok(text) => text.len(),
            // Cut in mid-character: the rest comes.
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Err(_) => self.partial.len(),
        };
        if whole > 0 {
            watcher.printed(&String::from_utf8_lossy(&self.partial[..whole]));
            self.partial.drain(..whole);
        }
    }

    /// All that is kept, and whether that is less than there was.
    pub(crate) fn finish(self) -> (String, bool) {
        let kept = self.head.len() + self.tail.len();
        let left_out = self.total.saturating_sub(kept as u64);
        let mut bytes = self.head;
        if left_out == 0 {
            bytes.extend(self.tail);
            return (text(&bytes), false);
        }
        let tail: Vec<u8> = self.tail.into();
        let (head, tail) = (text(&bytes), text(&tail));
        (
            format!("{head}\n… {left_out} bytes are left out here …\n{tail}"),
            true,
        )
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
    struct Ear(Mutex<Vec<String>>);

    impl Watcher for Ear {
        fn started(&self, _: &str) {}
        fn printed(&self, text: &str) {
            self.0.lock().unwrap().push(text.to_owned());
        }
    }

    fn keep(limit: usize, pieces: &[&[u8]]) -> (String, bool, Vec<String>) {
        let ear = Ear::default();
        let mut kept = Kept::new(Some(limit), None);
        for piece in pieces {
            kept.take(piece, &ear);
        }
        let (text, truncated) = kept.finish();
        (text, truncated, ear.0.into_inner().unwrap())
    }

    #[test]
    fn what_fits_is_kept_whole() {
        for pieces in [&[b"abcdef".as_slice()][..], &[b"abc", b"d", b"ef"]] {
            let (text, truncated, _) = keep(6, pieces);
            assert_eq!((text.as_str(), truncated), ("abcdef", false));
        }
    }

    #[test]
    fn of_what_does_not_fit_the_middle_is_left_out() {
        for pieces in [&[b"abcdefghij".as_slice()][..], &[b"abcde", b"fgh", b"ij"]] {
            let (text, truncated, _) = keep(4, pieces);
            assert_eq!(text, "ab\n… 6 bytes are left out here …\nij");
            assert!(truncated);
        }
        let (text, truncated, heard) = keep(0, &[b"abc"]);
        assert_eq!(text, "\n… 3 bytes are left out here …\n");
        assert!(truncated && heard.is_empty());
    }

    #[test]
    fn a_character_that_comes_in_pieces_is_told_as_one() {
        let (_, _, heard) = keep(99, &[b"gr\xc3", b"\xbc\xc3\x9fe\xff!"]);
        assert_eq!(heard, ["gr", "üße\u{fffd}!"]);
    }

    #[test]
    fn a_flood_is_not_told() {
        let (_, _, heard) = keep(4, &[b"abc", b"def", b"ghi"]);
        assert_eq!(heard, ["abc", "def"]);
    }

    #[test]
    fn less_may_be_told_than_is_kept() {
        let ear = Ear::default();
        let mut kept = Kept::new(Some(100), Some(4));
        for piece in [b"abc", b"def", b"ghi"] {
            kept.take(piece, &ear);
        }
        assert_eq!(kept.finish(), ("abcdefghi".to_owned(), false));
        assert_eq!(ear.0.into_inner().unwrap(), ["abc", "def"]);
    }
}
