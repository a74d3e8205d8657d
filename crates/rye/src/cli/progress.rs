//! Progress bar and spinner on standard error, for operations that take more than a second.

use std::io::{self, IsTerminal as _};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::page::{DIM, paint};
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
    messages: Sender<SpinnerMessage>,
    thread: Option<JoinHandle<()>>,
}

enum SpinnerMessage {
    /// Text to show after the label.
    Show(String),
    Stop,
}

/// Shows text next to the label of a spinner.
pub(crate) struct SpinnerText(Sender<SpinnerMessage>);

impl SpinnerText {
    pub(crate) fn show(&self, text: String) {
        // The spinner may have stopped.
        let _ = self.0.send(SpinnerMessage::Show(text));
    }
}

impl Spinner {
    pub(crate) fn new(printer: Printer, label: &'static str) -> Self {
        Self::start(is_enabled(printer), move |messages| spin(label, messages))
    }

    /// A spinner for an operation that may take a minute: without a terminal, prints the label.
    pub(crate) fn announced(printer: Printer, label: &'static str) -> Self {
        let is_terminal = is_enabled(printer);
        Self::start(!printer.quiet, move |messages| {
            if is_terminal {
                spin(label, messages);
            } else if takes_long(messages) {
                printer.print_stderr(&format!("{}\n", paint(DIM, label)));
            }
        })
    }

    fn start(
        is_enabled: bool,
        work: impl FnOnce(&Receiver<SpinnerMessage>) + Send + 'static,
    ) -> Self {
        let (messages, receiver) = mpsc::channel();
        Self {
            messages,
            thread: is_enabled.then(|| thread::spawn(move || work(&receiver))),
        }
    }

    pub(crate) fn text(&self) -> SpinnerText {
        SpinnerText(self.messages.clone())
    }
}

/// Waits whether the operation takes long enough to show something. Text until then is dropped.
fn takes_long(messages: &Receiver<SpinnerMessage>) -> bool {
    let until = Instant::now() + DELAY;
    loop {
        match messages.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(SpinnerMessage::Show(_)) => {}
            Err(RecvTimeoutError::Timeout) => return true,
            Ok(SpinnerMessage::Stop) | Err(RecvTimeoutError::Disconnected) => return false,
        }
    }
}

fn spin(label: &str, messages: &Receiver<SpinnerMessage>) {
    if !takes_long(messages) {
        return;
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
        bar.set_style(style);
    }
    bar.set_message(label.to_owned());
    bar.enable_steady_tick(Duration::from_millis(100));
    while let Ok(SpinnerMessage::Show(text)) = messages.recv() {
        bar.set_message(format!("{label}: {text}"));
    }
    bar.finish_and_clear();
}

impl rye_host::Progress for Spinner {
    fn set(&self, _: usize) {}
}

impl Drop for Spinner {
    fn drop(&mut self) {
        let _ = self.messages.send(SpinnerMessage::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn is_enabled(printer: Printer) -> bool {
    !printer.quiet && io::stderr().is_terminal()
}
