//! Lines of standard input with their arrival times: a line that arrived before a gate was
//! shown must not answer it.

use std::io::{self, IsTerminal as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionread, read};
use rustix::termios::{QueueSelector, tcflush};
use tokio::sync::mpsc;

/// Bytes read at once.
const CHUNK: usize = 16 * 1024;

/// Position of a byte that is not valid UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidUtf8 {
    /// Line number, starting at 1.
    pub line: usize,
    /// Offset in the line, in bytes.
    pub byte: usize,
}

/// A line of standard input.
#[derive(Debug)]
pub(crate) struct InputLine {
    /// When its first byte arrived.
    pub(crate) at: Instant,
    pub(crate) text: Result<String, InvalidUtf8>,
}

/// Reads standard input on its own thread.
pub(crate) struct Input {
    reader: Arc<Mutex<Reader>>,
    lines: mpsc::UnboundedReceiver<InputLine>,
    is_terminal: bool,
    opened: Instant,
}

impl Input {
    pub(crate) fn open() -> Self {
        let opened = Instant::now();
        let (send, lines) = mpsc::unbounded_channel();
        let reader = Arc::new(Mutex::new(Reader {
            lines: LineSplitter::default(),
            send: Some(send),
        }));
        let shared = Arc::clone(&reader);
        std::thread::spawn(move || {
            // Wait without the lock, so that `drain` never blocks.
            while is_readable(None) && lock(&shared).read_available() {}
        });
        Self {
            reader,
            lines,
            is_terminal: io::stdin().is_terminal(),
            opened,
        }
    }

    /// A time before any line arrived.
    pub(crate) fn opened(&self) -> Instant {
        self.opened
    }

    pub(crate) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// The next line; `None` at the end of input. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<InputLine> {
        self.lines.recv().await
    }

    /// Reads everything that has arrived and returns a time that only later input is after.
    /// On a terminal, a partially typed line is discarded, because a new prompt follows.
    pub(crate) fn drain(&self) -> Instant {
        let mut reader = lock(&self.reader);
        let mut left = ioctl_fionread(io::stdin()).unwrap_or(0);
        while left > 0 && is_readable(Some(&Timespec::default())) {
            let most = usize::try_from(left).map_or(CHUNK, |left| left.min(CHUNK));
            let count = reader.read(most);
            if count == 0 {
                break;
            }
            left = left.saturating_sub(count as u64);
        }
        if self.is_terminal {
            // If this fails, the partial line is kept.
            let _ = tcflush(io::stdin(), QueueSelector::IFlush);
        }
        Instant::now()
    }
}

fn lock(reader: &Mutex<Reader>) -> MutexGuard<'_, Reader> {
    reader.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until there is input or the end of it, at most for `timeout`.
fn is_readable(timeout: Option<&Timespec>) -> bool {
    let input = io::stdin();
    loop {
        match poll(&mut [PollFd::new(&input, PollFlags::IN)], timeout) {
            Err(Errno::INTR) => {}
            Ok(count) => return count > 0,
            // Polling is not supported; reading may be.
            Err(_) => return true,
        }
    }
}

/// Reads lines and sends them until the input ends.
struct Reader {
    lines: LineSplitter,
    send: Option<mpsc::UnboundedSender<InputLine>>,
}

impl Reader {
    /// Reads what is available. Returns whether more input may follow.
    fn read_available(&mut self) -> bool {
        // `drain` may have read it since the poll.
        if is_readable(Some(&Timespec::default())) {
            self.read(CHUNK);
        }
        self.send.is_some()
    }

    /// Reads at most `most` bytes and returns their number.
    fn read(&mut self, most: usize) -> usize {
        let mut bytes = [0; CHUNK];
        let count = loop {
            match read(io::stdin(), &mut bytes[..most]) {
                Err(Errno::INTR) => {}
                outcome => break outcome.unwrap_or(0),
            }
        };
        let now = Instant::now();
        let lines = if count == 0 {
            self.lines.end().into_iter().collect()
        } else {
            self.lines.add(&bytes[..count], now)
        };
        for line in lines {
            // Stop sending once the receiver is gone.
            self.send = self.send.take().filter(|send| send.send(line).is_ok());
        }
        if count == 0 {
            self.send = None;
        }
        count
    }
}

/// Splits bytes into lines.
#[derive(Default)]
struct LineSplitter {
    /// The bytes of an incomplete line and the arrival of the first one.
    partial: Option<(Vec<u8>, Instant)>,
    count: usize,
}

impl LineSplitter {
    fn add(&mut self, bytes: &[u8], now: Instant) -> Vec<InputLine> {
        let mut lines = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (line, _) = self.partial.get_or_insert_with(|| (Vec::new(), now));
            line.extend(part);
            if part.ends_with(b"\n") {
                lines.extend(self.end());
            }
        }
        lines
    }

    /// Ends the incomplete line.
    fn end(&mut self) -> Option<InputLine> {
        let (mut bytes, at) = self.partial.take()?;
        self.count += 1;
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
            bytes.pop_if(|last| *last == b'\r');
        }
        let text = String::from_utf8(bytes).map_err(|error| InvalidUtf8 {
            line: self.count,
            byte: error.utf8_error().valid_up_to(),
        });
        Some(InputLine { at, text })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn line_has_the_time_of_its_first_byte_and_invalid_utf8_has_a_position() {
        let first = Instant::now();
        let second = first + Duration::from_secs(1);
        let mut lines = LineSplitter::default();
        let mut all = lines.add(b"one\r\ntw", first);
        all.extend(lines.add(b"o\n\nthr\xffee\nlast", second));
        all.extend(lines.end());
        assert!(lines.end().is_none());
        let all: Vec<_> = all.into_iter().map(|line| (line.text, line.at)).collect();
        let text = |text: &str| Ok(text.to_owned());
        let invalid = InvalidUtf8 { line: 4, byte: 3 };
        let expected = [
            (text("one"), first),
            (text("two"), first),
            (text(""), second),
            (Err(invalid), second),
            (text("last"), second),
        ];
        assert_eq!(all, expected);
    }
}
