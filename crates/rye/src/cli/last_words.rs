//! What is said when a signal ends a command that follows a session: which one it is, and how
//! it goes on. Nothing is lost by that, so the signal does what it does.

use std::io;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rye_engine::protocol::SessionId;
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::{emulate_default_handler, signal_name};

use super::engine::unable;
use super::failure::{Exit, Failure};
use super::printer::{Printer, document};

/// How long whoever reads may take.
const PATIENCE: Duration = Duration::from_millis(500);

/// What to say, as long as this is there.
pub(crate) struct LastWords(Arc<Mutex<Option<Words>>>);

#[derive(Clone)]
struct Words {
    printer: Printer,
    session: SessionId,
    /// How the last line is told apart from events.
    outcome: Option<&'static str>,
}

impl LastWords {
    /// Says it from now on, whatever this process is doing.
    pub(crate) fn prepare(
        printer: Printer,
        session: &SessionId,
        outcome: Option<&'static str>,
    ) -> Result<Self, Failure> {
        let words = Words {
            printer,
            session: session.clone(),
            outcome,
        };
        let words = Arc::new(Mutex::new(Some(words)));
        let ignored = rye_chat::ignored_signals();
        // What whoever started it wants to be ignored still is.
        let heard = [SIGHUP, SIGINT, SIGTERM];
        let heard = heard.iter().filter(|it| ignored & (1 << (**it - 1)) == 0);
        let mut signals = Signals::new(heard).map_err(unable)?;
        let own = Arc::clone(&words);
        std::thread::spawn(move || {
            for signal in signals.forever() {
                let words = own.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(words) = words {
                    words.say(signal);
                }
                let _ = emulate_default_handler(signal);
            }
        });
        Ok(Self(words))
    }
}

impl Drop for LastWords {
    /// It has ended by itself, and how is about to be said.
    fn drop(&mut self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Words {
    fn say(self, signal: i32) {
        let (done, said) = mpsc::channel();
        // It may be that nobody reads what is written, and the signal must not wait for that.
        std::thread::spawn(move || {
            let _ = self.write(signal);
            let _ = done.send(());
        });
        let _ = said.recv_timeout(PATIENCE);
    }

    fn write(&self, signal: i32) -> io::Result<()> {
        let name = signal_name(signal).unwrap_or("a signal");
        let next = format!("rye session resume {}", self.session);
        let words = format!("ended by {name}, and nothing is lost; to go on: {next}\n");
        Printer::raw_error(words.as_bytes());
        if !self.printer.json {
            return Ok(());
        }
        let (exit, code) = match signal {
            SIGINT => (Exit::Interrupted, "interrupted"),
            _ => (Exit::Terminated, "terminated"),
        };
        let failure = Failure::new(exit, code, format!("{name} ended it")).hint(next);
        let mut fields = json!({ "session": self.session });
        if let Some(outcome) = self.outcome {
            fields["type"] = outcome.into();
        }
        Printer::last(document(fields, Some(&failure)).as_bytes())
    }
}
