//! Signals that end this process. Before they do, the terminal is as it was, and it is said
//! how the session goes on.

use std::io::{self, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::terminal;

/// How long a terminal that takes nothing any more is waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long a signal may take to be heard: what was pressed while somebody else had the
/// terminal may be heard when they have given it back.
const HEARD: Duration = Duration::from_secs(2);

/// Whoever waits for them.
#[derive(Clone, Default)]
pub(crate) struct Watch(Arc<Mutex<State>>);

/// How things are when one comes.
#[derive(Default)]
pub(crate) struct State {
    /// Whether the terminal has to be given back.
    pub(crate) raw: bool,
    /// Whether somebody else has the terminal: what is pressed there is meant for them.
    away: bool,
    /// When it was given back.
    back: Option<Instant>,
    /// What to say.
    pub(crate) last_words: String,
    /// Whether to say it on standard error.
    aside: bool,
    /// Who does something else about Ctrl-C.
    interrupts: Option<UnboundedSender<()>>,
}

impl Watch {
    /// Begins to wait, on a thread of its own: whatever this process does, it can be ended.
    pub(crate) fn begin(aside: bool) -> io::Result<Self> {
        let watch = Self::default();
        watch.state().aside = aside;
        let ignored = ignored_signals();
        let all = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];
        // What whoever started it wants to be ignored still is.
        let heard = all.iter().filter(|it| ignored & (1 << (**it - 1)) == 0);
        let mut signals = Signals::new(heard)?;
        let own = watch.clone();
        std::thread::spawn(move || {
            for signal in signals.forever() {
                own.hear(signal);
            }
        });
        Ok(watch)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to be said if one comes now.
    pub(crate) fn last_words(&self, words: String) {
        self.state().last_words = words;
    }

    /// From now on Ctrl-C is told, and ends nothing.
    pub(crate) fn interrupts(&self) -> UnboundedReceiver<()> {
        let (send, receive) = unbounded_channel();
        self.state().interrupts = Some(send);
        receive
    }

    fn hear(&self, signal: i32) {
        let state = self.state();
        let lent = state.away || state.back.is_some_and(|back| back.elapsed() < HEARD);
        if lent && matches!(signal, SIGINT | SIGQUIT) {
            return;
        }
        let interrupts = state.interrupts.as_ref().filter(|_| signal == SIGINT);
        if interrupts.is_some_and(|it| it.send(()).is_ok()) {
            return;
        }
        // It is held to the end: nobody takes the terminal again.
        state.give_back();
        let _ = emulate_default_handler(signal);
    }
}

impl State {
    /// Somebody else has the terminal from now on, or has given it back.
    pub(crate) fn lend(&mut self, away: bool) {
        self.away = away;
        self.back = (!away).then(Instant::now);
    }

    /// Leaves the terminal as it was.
    fn give_back(&self) {
        if self.raw {
            terminal::cook();
        }
        let mut words = self.last_words.clone();
        if self.raw {
            words.insert_str(0, terminal::NO_PASTE);
        }
        let aside = self.aside;
        let (done, said) = mpsc::channel();
        // It may be that nobody reads what is written, and that somebody waits for that.
        std::thread::spawn(move || {
            let mut out = io::stdout().lock();
            let _ = if aside {
                io::stderr().write_all(words.as_bytes())
            } else {
                out.write_all(words.as_bytes()).and_then(|()| out.flush())
            };
            let _ = done.send(());
            // Nobody says anything after it.
            loop {
                std::thread::park();
            }
        });
        let _ = said.recv_timeout(PATIENCE);
    }
}

/// The signals that this process ignores, a bit each, the lowest for the first.
pub fn ignored_signals() -> u64 {
    ignored(&std::fs::read_to_string("/proc/self/status").unwrap_or_default())
}

fn ignored(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let bits = line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    bits.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored_is_read_off() {
        let status = "Name:\trye\nSigBlk:\t00000000000000ff\nSigIgn:\t0000000000001003\n";
        assert_eq!(ignored(status), 0x1003);
        assert_eq!(ignored(""), 0);
    }
}
