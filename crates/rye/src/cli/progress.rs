//! A bar for what takes more than a second, on a terminal, on standard error.

use std::io::{self, IsTerminal as _};
use std::sync::Mutex;
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
            wanted: !printer.quiet && io::stderr().is_terminal(),
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
