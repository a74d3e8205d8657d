//! A secret from standard input: its bytes as they are, or a line typed unseen.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};

use lillux::envelope::Secret;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use rye_items::vault::LARGEST_SECRET;
use zeroize::Zeroizing;

/// Longer than anybody types; what is pasted beyond it is refused.
const LONGEST_LINE: usize = 64 * 1024;

/// Reads the secret, asking for it on a terminal. One byte more than there may
/// be is read of a longer one, so that it is refused.
pub(super) fn read(prompt: &str) -> io::Result<Secret> {
    let input = io::stdin();
    if input.is_terminal() {
        return ask(input.as_fd(), prompt);
    }
    // Without the standard library's buffer, which would keep a copy.
    let file = File::from(input.as_fd().try_clone_to_owned()?);
    Secret::from_reader(file.take(LARGEST_SECRET as u64 + 1))
}

fn ask(terminal: BorrowedFd<'_>, prompt: &str) -> io::Result<Secret> {
    let line = {
        // Before the question: what is typed from then on counts and is not shown.
        let _unseen = Unseen::begin(terminal)?;
        write!(io::stderr(), "{prompt}")?;
        let file = File::from(terminal.try_clone_to_owned()?);
        type_line(file)
    };
    writeln!(io::stderr())?;
    line
}

/// One line, byte by byte: the terminal neither shows nor edits it, nor turns keys
/// into signals that would leave it so.
fn type_line(mut keys: impl Read) -> io::Result<Secret> {
    let mut line = Zeroizing::new(Vec::with_capacity(LONGEST_LINE));
    let mut key = Zeroizing::new([0]);
    loop {
        if keys.read(key.as_mut_slice())? == 0 {
            break;
        }
        match key[0] {
            b'\r' | b'\n' | 0x04 => break,
            0x03 => return Err(io::ErrorKind::Interrupted.into()),
            0x08 | 0x7f => {
                // A character may be several bytes.
                while line.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
            }
            0x15 => line.clear(),
            _ if line.len() == LONGEST_LINE => return Err(io::ErrorKind::FileTooLarge.into()),
            byte => line.push(byte),
        }
    }
    Ok(Secret::from(line))
}

/// The terminal does not show what is typed, until this is dropped.
struct Unseen<'a> {
    terminal: BorrowedFd<'a>,
    before: Termios,
}

impl<'a> Unseen<'a> {
    fn begin(terminal: BorrowedFd<'a>) -> io::Result<Self> {
        let before = tcgetattr(terminal)?;
        let mut unseen = before.clone();
        unseen.local_modes -= LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
        tcsetattr(terminal, OptionalActions::Flush, &unseen)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Unseen<'_> {
    fn drop(&mut self) {
        let _ = tcsetattr(self.terminal, OptionalActions::Flush, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typed_line_is_edited_as_one_expects() {
        for (typed, expected) in [
            ("secret\nmore", "secret"),
            ("secret\r", "secret"),
            ("secret", "secret"),
            ("wrong\x15right\n", "right"),
            ("ab\x7f\x7f\x7fc\n", "c"),
            ("aä\x7fb\n", "ab"),
            ("\n", ""),
        ] {
            let line = type_line(typed.as_bytes()).unwrap();
            assert_eq!(line.expose(), expected.as_bytes(), "{typed:?}");
        }
        let cancelled = type_line(&b"sec\x03"[..]).unwrap_err();
        assert_eq!(cancelled.kind(), io::ErrorKind::Interrupted);
        let endless = type_line(io::repeat(b'x')).unwrap_err();
        assert_eq!(endless.kind(), io::ErrorKind::FileTooLarge);
    }
}
