//! The terminal, taken over and given back.

use std::io::{self, IsTerminal as _, Write as _};

use crossterm::event::EnableBracketedPaste;
use crossterm::execute;
use crossterm::terminal::{disable_raw_mode, enable_raw_mode};

use crate::app::Size;
use crate::watch::Watch;

/// What a window has that does not say its size.
const USUAL: Size = Size {
    width: 80,
    height: 24,
};

/// What ends that a paste is told apart from what is typed.
pub(crate) const NO_PASTE: &str = "\x1b[?2004l";

/// A terminal whose keys come one by one. It is given back when this goes.
pub(crate) struct Terminal {
    watch: Watch,
}

/// Lets the terminal edit lines again. There is nobody to tell if it cannot.
pub(crate) fn cook() {
    let _ = disable_raw_mode();
}

impl Terminal {
    /// Whether there is one that can be painted on.
    pub(crate) fn is_there() -> bool {
        let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb" || term.is_empty());
        io::stdin().is_terminal() && io::stdout().is_terminal() && !dumb
    }

    pub(crate) fn open(watch: Watch) -> io::Result<Self> {
        let mut terminal = Self { watch };
        terminal.take()?;
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
        let mut state = self.watch.state();
        if std::mem::take(&mut state.raw) {
            let _ = Self::send(NO_PASTE);
            cook();
        }
        state.last_words.clear();
    }

    pub(crate) fn take(&mut self) -> io::Result<()> {
        let mut state = self.watch.state();
        enable_raw_mode()?;
        state.raw = true;
        execute!(io::stdout(), EnableBracketedPaste)
    }

    /// Lets somebody else have it until they are through with it.
    pub(crate) fn lend<T>(&mut self, to: impl FnOnce() -> T) -> io::Result<T> {
        self.watch.state().away = true;
        self.release();
        let outcome = to();
        let taken = self.take();
        self.watch.state().away = false;
        taken.map(|()| outcome)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if self.watch.state().raw {
            // Nobody has left it as it can be read: what is painted makes room for what is
            // said about that.
            let _ = Self::send("\r\x1b[J");
        }
        self.release();
    }
}
