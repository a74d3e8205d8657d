//! Termination signals: restores the terminal and prints how to resume before the process ends.

use std::io::{self, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::terminal;

/// How long to wait for a terminal that does not accept output.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);

/// How late a signal may be delivered: Ctrl-C pressed in an editor can arrive after the
/// editor has returned the terminal.
const DELIVERY_DELAY: Duration = Duration::from_secs(2);

/// Handles `SIGHUP`, `SIGINT`, `SIGQUIT` and `SIGTERM` on its own thread.
#[derive(Clone, Default)]
pub(crate) struct SignalHandler(Arc<Mutex<State>>);

/// What to do when a signal arrives.
#[derive(Default)]
pub(crate) struct State {
    /// The terminal is in raw mode and has to be restored.
    pub(crate) raw: bool,
    /// Another program has the terminal, so keys pressed there are meant for it.
    suspended: bool,
    /// When that program returned the terminal.
    resumed_at: Option<Instant>,
    /// Text to print before the process ends.
    pub(crate) exit_message: String,
    /// Print it to standard error.
    stderr: bool,
    /// Receives Ctrl-C instead of ending the process.
    interrupts: Option<UnboundedSender<()>>,
}

impl SignalHandler {
    /// Starts the thread, so that the process can be ended whatever else it is doing.
    pub(crate) fn install(stderr: bool) -> io::Result<Self> {
        let handler = Self::default();
        handler.state().stderr = stderr;
        let ignored = ignored_signals();
        let all = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];
        // Signals that the parent process set to be ignored stay ignored.
        let handled = all.iter().filter(|it| ignored & (1 << (**it - 1)) == 0);
        let mut signals = Signals::new(handled)?;
        let own = handler.clone();
        std::thread::spawn(move || {
            for signal in signals.forever() {
                own.handle(signal);
            }
        });
        Ok(handler)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_exit_message(&self, text: String) {
        self.state().exit_message = text;
    }

    /// Delivers Ctrl-C to the returned channel from now on, instead of ending the process.
    pub(crate) fn subscribe_interrupts(&self) -> UnboundedReceiver<()> {
        let (send, receive) = unbounded_channel();
        self.state().interrupts = Some(send);
        receive
    }

    fn handle(&self, signal: i32) {
        let state = self.state();
        let just_resumed = state
            .resumed_at
            .is_some_and(|at| at.elapsed() < DELIVERY_DELAY);
        if (state.suspended || just_resumed) && matches!(signal, SIGINT | SIGQUIT) {
            return;
        }
        let interrupts = state.interrupts.as_ref().filter(|_| signal == SIGINT);
        if interrupts.is_some_and(|it| it.send(()).is_ok()) {
            return;
        }
        // The lock is held to the end, so that no thread enters raw mode again.
        state.restore_terminal();
        let _ = emulate_default_handler(signal);
    }
}

impl State {
    /// Records that another program has the terminal, or has returned it.
    pub(crate) fn set_suspended(&mut self, suspended: bool) {
        self.suspended = suspended;
        self.resumed_at = (!suspended).then(Instant::now);
    }

    /// Leaves raw mode and prints the exit message.
    fn restore_terminal(&self) {
        if self.raw {
            terminal::leave_raw_mode();
        }
        let mut message = self.exit_message.clone();
        if self.raw {
            message.insert_str(0, terminal::DISABLE_REPORTS);
        }
        let stderr = self.stderr;
        let (done, written) = mpsc::channel();
        // On its own thread: writing blocks if the other end of the terminal does not read.
        std::thread::spawn(move || {
            let mut out = io::stdout().lock();
            let _ = if stderr {
                io::stderr().write_all(message.as_bytes())
            } else {
                out.write_all(message.as_bytes()).and_then(|()| out.flush())
            };
            let _ = done.send(());
            // Keep standard output locked, so that nothing is printed after the message.
            loop {
                std::thread::park();
            }
        });
        let _ = written.recv_timeout(WRITE_TIMEOUT);
    }
}

/// Bit mask of the signals that this process ignores; bit 0 is signal 1.
pub fn ignored_signals() -> u64 {
    parse_ignored(&std::fs::read_to_string("/proc/self/status").unwrap_or_default())
}

fn parse_ignored(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let bits = line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    bits.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_parsed_from_the_process_status() {
        let status = "Name:\trye\nSigBlk:\t00000000000000ff\nSigIgn:\t0000000000001003\n";
        assert_eq!(parse_ignored(status), 0x1003);
        assert_eq!(parse_ignored(""), 0);
    }
}
