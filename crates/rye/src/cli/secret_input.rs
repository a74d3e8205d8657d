//! Reads a secret from standard input: all bytes of a pipe, or a line typed without echo.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};

use lillux::envelope::Secret;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use rye_items::vault::LARGEST_SECRET;
use zeroize::Zeroizing;

/// Maximum length of a typed line.
const MAX_LINE: usize = 64 * 1024;

/// Reads the secret, prompting on a terminal. Reads at most one byte more than allowed, so that
/// the caller can reject a longer secret.
pub(super) fn read(prompt: &str) -> io::Result<Secret> {
    let input = io::stdin();
    if input.is_terminal() {
        return ask(input.as_fd(), prompt);
    }
    // Bypass the buffer of the standard library, which would keep a copy.
    let file = File::from(input.as_fd().try_clone_to_owned()?);
    Secret::from_reader(file.take(LARGEST_SECRET as u64 + 1))
}

fn ask(terminal: BorrowedFd<'_>, prompt: &str) -> io::Result<Secret> {
    let line = {
        // Before the prompt, so that nothing typed after it is echoed.
        let _no_echo = NoEcho::enable(terminal)?;
        write!(io::stderr(), "{prompt}")?;
        let file = File::from(terminal.try_clone_to_owned()?);
        read_typed_line(file)
    };
    writeln!(io::stderr())?;
    line
}

/// Reads one line byte by byte and handles editing keys, because the terminal is in raw mode.
fn read_typed_line(mut keys: impl Read) -> io::Result<Secret> {
    let mut line = Zeroizing::new(Vec::with_capacity(MAX_LINE));
    let mut key = Zeroizing::new([0]);
    loop {
        if keys.read(key.as_mut_slice())? == 0 {
            break;
        }
        match key[0] {
            b'\r' | b'\n' | 0x04 => break,
            0x03 => return Err(io::ErrorKind::Interrupted.into()),
            0x08 | 0x7f => {
                // Remove all bytes of a UTF-8 character.
                while line.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
            }
            0x15 => line.clear(),
            _ if line.len() == MAX_LINE => return Err(io::ErrorKind::FileTooLarge.into()),
            byte => line.push(byte),
        }
    }
    Ok(Secret::from(line))
}

/// Disables echo, line editing and signal keys until dropped.
struct NoEcho<'a> {
    terminal: BorrowedFd<'a>,
    original: Termios,
}

impl<'a> NoEcho<'a> {
    fn enable(terminal: BorrowedFd<'a>) -> io::Result<Self> {
        let original = tcgetattr(terminal)?;
        let mut modes = original.clone();
        modes.local_modes -= LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
        tcsetattr(terminal, OptionalActions::Flush, &modes)?;
        Ok(Self { terminal, original })
    }
}

impl Drop for NoEcho<'_> {
    fn drop(&mut self) {
        let _ = tcsetattr(self.terminal, OptionalActions::Flush, &self.original);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_lines_support_editing_keys() {
        for (typed, expected) in [
            ("secret\nmore", "secret"),
            ("secret\r", "secret"),
            ("secret", "secret"),
            ("wrong\x15right\n", "right"),
            ("ab\x7f\x7f\x7fc\n", "c"),
            ("aä\x7fb\n", "ab"),
            ("\n", ""),
        ] {
            let line = read_typed_line(typed.as_bytes()).unwrap();
            assert_eq!(line.expose(), expected.as_bytes(), "{typed:?}");
        }
        let cancelled = read_typed_line(&b"sec\x03"[..]).unwrap_err();
        assert_eq!(cancelled.kind(), io::ErrorKind::Interrupted);
        let endless = read_typed_line(io::repeat(b'x')).unwrap_err();
        assert_eq!(endless.kind(), io::ErrorKind::FileTooLarge);
    }
}
