//! A bar, or a spinner, for what takes more than a second, on a terminal, on
//! standard error.

use std::io::{self, IsTerminal as _};
use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::printer::Printer;

/// Before this nobody has begun to wait.
const PATIENCE: Duration = Duration::from_secs(1);

/// How far a command has come.
pub(crate) struct Progress {
    wanted: bool,
    total: u64,
    doing: &'static str,
    start: Instant,
    bar: Mutex<Option<ProgressBar>>,
}

impl Progress {
    pub(crate) fn new(printer: Printer, doing: &'static str, total: usize) -> Self {
        Self {
            wanted: is_wanted(printer),
            total: total as u64,
            doing,
            start: Instant::now(),
            bar: Mutex::default(),
        }
    }

    /// So many are done.
    pub(crate) fn reach(&self, done: usize) {
        if !self.wanted || self.start.elapsed() < PATIENCE {
            return;
        }
        let Ok(mut bar) = self.bar.lock() else {
            return;
        };
        let bar = bar.get_or_insert_with(|| self.begin());
        bar.set_position(done as u64);
    }

    fn begin(&self) -> ProgressBar {
        let bar = ProgressBar::with_draw_target(Some(self.total), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{msg} {bar:30} {pos}/{len}") {
            bar.set_style(style);
        }
        bar.set_message(self.doing);
        bar
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Ok(Some(bar)) = self.bar.get_mut().map(Option::take) {
            bar.finish_and_clear();
        }
    }
}

/// That a command is at work, where nobody knows how much is left.
pub(crate) struct Waiting {
    /// Hung up when the work is done.
    work: Option<Sender<()>>,
    spinner: Option<JoinHandle<()>>,
}

impl Waiting {
    pub(crate) fn new(printer: Printer, doing: &'static str) -> Self {
        let (work, done) = mpsc::channel::<()>();
        let spin = move || {
            if done.recv_timeout(PATIENCE) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
                bar.set_style(style);
            }
            bar.set_message(doing);
            bar.enable_steady_tick(Duration::from_millis(100));
            let _ = done.recv();
            bar.finish_and_clear();
        };
        Self {
            work: Some(work),
            spinner: is_wanted(printer).then(|| thread::spawn(spin)),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.work.take());
        if let Some(spinner) = self.spinner.take() {
            let _ = spinner.join();
        }
    }
}

fn is_wanted(printer: Printer) -> bool {
    !printer.quiet && io::stderr().is_terminal()
}
