//! Tells the user how to resume the session when a signal ends the command that follows it. The
//! session is durable, so nothing is lost and the signal then has its default effect.

use std::io;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rye_engine::protocol::SessionId;
use rye_host::engine::start_failure;
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::{emulate_default_handler, signal_name};

use super::failure::{Exit, Failure};
use super::printer::{Printer, document};

/// How long a blocked reader of the output may delay the end of the process.
const PRINT_TIMEOUT: Duration = Duration::from_millis(500);

/// Prints the notice on a signal, until dropped.
pub(crate) struct SignalNotice(Arc<Mutex<Option<Notice>>>);

#[derive(Clone)]
struct Notice {
    printer: Printer,
    session: SessionId,
    /// Value of `type` in the JSON document, if the output is a stream of events.
    document_type: Option<&'static str>,
}

impl SignalNotice {
    /// Installs the signal handlers. Signals that the parent process ignores stay ignored.
    pub(crate) fn install(
        printer: Printer,
        session: &SessionId,
        document_type: Option<&'static str>,
    ) -> Result<Self, Failure> {
        let notice = Notice {
            printer,
            session: session.clone(),
            document_type,
        };
        let notice = Arc::new(Mutex::new(Some(notice)));
        let ignored = rye_chat::ignored_signals();
        let handled = [SIGHUP, SIGINT, SIGTERM];
        let handled = handled
            .iter()
            .filter(|signal| ignored & (1 << (**signal - 1)) == 0);
        let mut signals = Signals::new(handled).map_err(start_failure)?;
        let shared = Arc::clone(&notice);
        std::thread::spawn(move || {
            for signal in signals.forever() {
                let notice = shared.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(notice) = notice {
                    notice.print_with_timeout(signal);
                }
                let _ = emulate_default_handler(signal);
            }
        });
        Ok(Self(notice))
    }
}

impl Drop for SignalNotice {
    /// The command ended by itself and prints its own outcome.
    fn drop(&mut self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Notice {
    fn print_with_timeout(self, signal: i32) {
        let (done, printed) = mpsc::channel();
        std::thread::spawn(move || {
            let _ = self.print(signal);
            let _ = done.send(());
        });
        let _ = printed.recv_timeout(PRINT_TIMEOUT);
    }

    fn print(&self, signal: i32) -> io::Result<()> {
        let name = signal_name(signal).unwrap_or("a signal");
        let next = format!("rye session resume {}", self.session.short());
        let text = format!("ended by {name}; resume with: {next}\n");
        Printer::raw_error(text.as_bytes());
        if !self.printer.json {
            return Ok(());
        }
        let (exit, code) = match signal {
            SIGINT => (Exit::Interrupted, "interrupted"),
            _ => (Exit::Terminated, "terminated"),
        };
        let failure = Failure::new(exit, code, format!("ended by {name}")).hint(next);
        let mut fields = json!({ "session": self.session });
        if let Some(document_type) = self.document_type {
            fields["type"] = document_type.into();
        }
        Printer::raw_final(document(fields, Some(&failure)).as_bytes())
    }
}
