//! Raw mode of the terminal, entered and left.

use std::io::{self, IsTerminal as _, Write as _};

use crossterm::event::{EnableBracketedPaste, EnableFocusChange};
use crossterm::execute;
use crossterm::terminal::{disable_raw_mode, enable_raw_mode};

use crate::app::Size;
use crate::signals::SignalHandler;

/// Size of a terminal that does not report one.
const DEFAULT_SIZE: Size = Size {
    width: 80,
    height: 24,
};

/// Ends bracketed paste and the reports of focus.
pub(crate) const DISABLE_REPORTS: &str = "\x1b[?1004l\x1b[?2004l";

/// A terminal in raw mode, which is restored on drop.
pub(crate) struct Terminal {
    signals: SignalHandler,
}

/// Leaves raw mode. Errors are ignored, because there is nowhere left to report them.
pub(crate) fn leave_raw_mode() {
    let _ = disable_raw_mode();
}

impl Terminal {
    /// Whether standard input and output are a terminal that can be painted on.
    pub(crate) fn is_available() -> bool {
        let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb" || term.is_empty());
        io::stdin().is_terminal() && io::stdout().is_terminal() && !dumb
    }

    pub(crate) fn open(signals: SignalHandler) -> io::Result<Self> {
        let mut terminal = Self { signals };
        terminal.enter_raw_mode()?;
        Ok(terminal)
    }

    pub(crate) fn size() -> Size {
        match crossterm::terminal::size() {
            Ok((width, height)) if width > 0 && height > 0 => Size {
                width: width.into(),
                height: height.into(),
            },
            _ => DEFAULT_SIZE,
        }
    }

    pub(crate) fn send(text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// Restores the terminal; [`Terminal::enter_raw_mode`] takes it over again.
    pub(crate) fn release(&mut self) {
        let mut state = self.signals.state();
        if std::mem::take(&mut state.raw) {
            let _ = Self::send(DISABLE_REPORTS);
            leave_raw_mode();
        }
        state.exit_message.clear();
    }

    pub(crate) fn enter_raw_mode(&mut self) -> io::Result<()> {
        let mut state = self.signals.state();
        enable_raw_mode()?;
        state.raw = true;
        execute!(io::stdout(), EnableBracketedPaste, EnableFocusChange)
    }

    /// Restores the terminal while `run` uses it, then takes it over again.
    pub(crate) fn suspend_while<T>(&mut self, run: impl FnOnce() -> T) -> io::Result<T> {
        self.signals.state().set_suspended(true);
        self.release();
        let outcome = run();
        let entered = self.enter_raw_mode();
        self.signals.state().set_suspended(false);
        entered.map(|()| outcome)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if self.signals.state().raw {
            // The chat failed: clear the live region to make room for the error message.
            let _ = Self::send("\r\x1b[J");
        }
        self.release();
    }
}
