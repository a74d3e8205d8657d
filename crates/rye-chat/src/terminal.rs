//! The terminal, taken over and given back.

use std::io::{self, IsTerminal as _, Write as _};

use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use crossterm::execute;
use crossterm::terminal::{disable_raw_mode, enable_raw_mode};

use crate::app::Size;

/// What a window has that does not say its size.
const USUAL: Size = Size {
    width: 80,
    height: 24,
};

/// A terminal whose keys come one by one. It is given back when this goes.
pub(crate) struct Terminal {
    raw: bool,
}

impl Terminal {
    /// Whether there is one that can be painted on.
    pub(crate) fn is_there() -> bool {
        let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb" || term.is_empty());
        io::stdin().is_terminal() && io::stdout().is_terminal() && !dumb
    }

    pub(crate) fn open() -> io::Result<Self> {
        enable_raw_mode()?;
        let terminal = Self { raw: true };
        execute!(io::stdout(), EnableBracketedPaste)?;
        Ok(terminal)
    }

    pub(crate) fn size() -> Size {
        match crossterm::terminal::size() {
            Ok((width, height)) if width > 0 && height > 0 => Size {
                width: width.into(),
                height: height.into(),
            },
            _ => USUAL,
        }
    }

    pub(crate) fn send(text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// Gives it back for a while, or for good.
    pub(crate) fn release(&mut self) {
        if std::mem::take(&mut self.raw) {
            // There is nobody to tell if it cannot be.
            let _ = execute!(io::stdout(), DisableBracketedPaste);
            let _ = disable_raw_mode();
        }
    }

    pub(crate) fn take(&mut self) -> io::Result<()> {
        enable_raw_mode()?;
        self.raw = true;
        execute!(io::stdout(), EnableBracketedPaste)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if self.raw {
            // Nobody has left it as it can be read: what is painted makes room for what is
            // said about that.
            let _ = Self::send("\r\x1b[J");
        }
        self.release();
    }
}
