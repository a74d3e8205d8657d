//! Progress bar and spinner on standard error, for operations that take more than a second.

use std::io::{self, IsTerminal as _};
use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::printer::Printer;

/// Delay before anything is shown.
const DELAY: Duration = Duration::from_secs(1);

/// A progress bar for a known number of steps.
pub(crate) struct Progress {
    enabled: bool,
    total: u64,
    label: &'static str,
    start: Instant,
    bar: Mutex<Option<ProgressBar>>,
}

impl Progress {
    pub(crate) fn new(printer: Printer, label: &'static str, total: usize) -> Self {
        Self {
            enabled: is_enabled(printer),
            total: total as u64,
            label,
            start: Instant::now(),
            bar: Mutex::default(),
        }
    }

    fn new_bar(&self) -> ProgressBar {
        let bar = ProgressBar::with_draw_target(Some(self.total), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{msg} {bar:30} {pos}/{len}") {
            bar.set_style(style);
        }
        bar.set_message(self.label);
        bar
    }
}

impl rye_host::Progress for Progress {
    fn set(&self, done: usize) {
        if !self.enabled || self.start.elapsed() < DELAY {
            return;
        }
        let Ok(mut bar) = self.bar.lock() else {
            return;
        };
        let bar = bar.get_or_insert_with(|| self.new_bar());
        bar.set_position(done as u64);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Ok(Some(bar)) = self.bar.get_mut().map(Option::take) {
            bar.finish_and_clear();
        }
    }
}

/// A spinner for an operation of unknown length; stops when dropped.
pub(crate) struct Spinner {
    /// Dropped to stop the thread.
    work: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Spinner {
    pub(crate) fn new(printer: Printer, label: &'static str) -> Self {
        let (work, done) = mpsc::channel::<()>();
        let spin = move || {
            if done.recv_timeout(DELAY) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
                bar.set_style(style);
            }
            bar.set_message(label);
            bar.enable_steady_tick(Duration::from_millis(100));
            let _ = done.recv();
            bar.finish_and_clear();
        };
        Self {
            work: Some(work),
            thread: is_enabled(printer).then(|| thread::spawn(spin)),
        }
    }
}

impl rye_host::Progress for Spinner {
    fn set(&self, _: usize) {}
}

impl Drop for Spinner {
    fn drop(&mut self) {
        drop(self.work.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn is_enabled(printer: Printer) -> bool {
    !printer.quiet && io::stderr().is_terminal()
}
