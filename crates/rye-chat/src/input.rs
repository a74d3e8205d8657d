//! Standard input, a line each, with the time at which it came: what was there before
//! something was shown is no answer to it.

use std::io::{self, IsTerminal as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionread, read};
use rustix::termios::{QueueSelector, tcflush};
use tokio::sync::mpsc;

/// How much is read at once.
const CHUNK: usize = 16 * 1024;

/// A line that is no text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotText {
    /// Its number, from 1.
    pub line: usize,
    /// How many bytes of it are text.
    pub byte: usize,
}

/// A line that was read.
#[derive(Debug)]
pub(crate) struct Typed {
    /// When it began to be there.
    pub(crate) at: Instant,
    pub(crate) text: Result<String, NotText>,
}

/// Whoever reads.
pub(crate) struct Input {
    reading: Arc<Mutex<Reading>>,
    lines: mpsc::UnboundedReceiver<Typed>,
    is_terminal: bool,
    opened: Instant,
}

impl Input {
    pub(crate) fn open() -> Self {
        let opened = Instant::now();
        let (send, lines) = mpsc::unbounded_channel();
        let reading = Arc::new(Mutex::new(Reading {
            lines: Lines::default(),
            send: Some(send),
        }));
        let shared = Arc::clone(&reading);
        std::thread::spawn(move || {
            // Nobody is kept waiting while there is nothing.
            while is_there(None) && lock(&shared).take_in() {}
        });
        Self {
            reading,
            lines,
            is_terminal: io::stdin().is_terminal(),
            opened,
        }
    }

    /// A time that all is after.
    pub(crate) fn opened(&self) -> Instant {
        self.opened
    }

    pub(crate) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// The next line; none at the end. May be dropped and called again.
    pub(crate) async fn next(&mut self) -> Option<Typed> {
        self.lines.recv().await
    }

    /// Takes in all that is there already, and gives a time that only what comes later is
    /// after. A line that is half typed is forgotten: the place to write that is shown next
    /// is an empty one.
    pub(crate) fn mark(&self) -> Instant {
        let mut reading = lock(&self.reading);
        let mut left = ioctl_fionread(io::stdin()).unwrap_or(0);
        while left > 0 && is_there(Some(&Timespec::default())) {
            let most = usize::try_from(left).map_or(CHUNK, |left| left.min(CHUNK));
            let count = reading.read(most);
            if count == 0 {
                break;
            }
            left = left.saturating_sub(count as u64);
        }
        if self.is_terminal {
            // What cannot be forgotten is taken as it is.
            let _ = tcflush(io::stdin(), QueueSelector::IFlush);
        }
        Instant::now()
    }
}

fn lock(reading: &Mutex<Reading>) -> MutexGuard<'_, Reading> {
    reading.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until there is something to read, or that it has ended.
fn is_there(time: Option<&Timespec>) -> bool {
    let input = io::stdin();
    loop {
        match poll(&mut [PollFd::new(&input, PollFlags::IN)], time) {
            Err(Errno::INTR) => {}
            Ok(count) => return count > 0,
            // It cannot be waited for, but perhaps be read.
            Err(_) => return true,
        }
    }
}

/// What is read, and whom it is told to until it ends.
struct Reading {
    lines: Lines,
    send: Option<mpsc::UnboundedSender<Typed>>,
}

impl Reading {
    /// Takes in what is there now. Whether more may come.
    fn take_in(&mut self) -> bool {
        // Somebody else may have been quicker.
        if is_there(Some(&Timespec::default())) {
            self.read(CHUNK);
        }
        self.send.is_some()
    }

    /// Reads so many bytes at most. How many there were.
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
            // Who does not listen any more leaves.
            self.send = self.send.take().filter(|send| send.send(line).is_ok());
        }
        if count == 0 {
            self.send = None;
        }
        count
    }
}

/// Lines, put together from what comes.
#[derive(Default)]
struct Lines {
    /// What there is of the next, and since when.
    begun: Option<(Vec<u8>, Instant)>,
    count: usize,
}

impl Lines {
    fn add(&mut self, bytes: &[u8], now: Instant) -> Vec<Typed> {
        let mut lines = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (line, _) = self.begun.get_or_insert_with(|| (Vec::new(), now));
            line.extend(part);
            if part.ends_with(b"\n") {
                lines.extend(self.end());
            }
        }
        lines
    }

    /// What has begun is a line.
    fn end(&mut self) -> Option<Typed> {
        let (mut bytes, at) = self.begun.take()?;
        self.count += 1;
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
            bytes.pop_if(|last| *last == b'\r');
        }
        let text = String::from_utf8(bytes).map_err(|error| NotText {
            line: self.count,
            byte: error.utf8_error().valid_up_to(),
        });
        Some(Typed { at, text })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_line_is_as_old_as_its_first_byte_and_one_that_is_no_text_says_where() {
        let first = Instant::now();
        let second = first + Duration::from_secs(1);
        let mut lines = Lines::default();
        let mut all = lines.add(b"one\r\ntw", first);
        all.extend(lines.add(b"o\n\nthr\xffee\nlast", second));
        all.extend(lines.end());
        assert!(lines.end().is_none());
        let all: Vec<_> = all.into_iter().map(|line| (line.text, line.at)).collect();
        let text = |text: &str| Ok(text.to_owned());
        let wrong = NotText { line: 4, byte: 3 };
        let expected = [
            (text("one"), first),
            (text("two"), first),
            (text(""), second),
            (Err(wrong), second),
            (text("last"), second),
        ];
        assert_eq!(all, expected);
    }
}
