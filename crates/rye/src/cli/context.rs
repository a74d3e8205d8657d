//! Context of a command: what the host opened, and the printer.

use std::ops::Deref;
use std::sync::Arc;

use rye_host::settings::Options;
use rye_host::{Failure, Reporter};

use super::color_choice;
use super::page::{DIM, paint};
use super::printer::Printer;
use super::progress::{Progress, Spinner};

/// What every command needs.
pub(crate) struct Context {
    host: rye_host::Context,
    pub(crate) printer: Printer,
}

impl Context {
    /// Loads the settings, warns about ignored configuration files and sets the printer's colour.
    pub(crate) fn open(options: &Options, printer: &mut Printer) -> Result<Self, Failure> {
        let host = rye_host::Context::open(options)?;
        printer.color = color_choice(host.settings.color.value);
        let mut context = Self {
            host,
            printer: *printer,
        };
        context.set_printer(*printer);
        context.warn_ignored_settings();
        Ok(context)
    }

    pub(crate) fn set_printer(&mut self, printer: Printer) {
        self.printer = printer;
        self.host.set_reporter(Arc::new(printer));
    }
}

impl Deref for Context {
    type Target = rye_host::Context;

    fn deref(&self) -> &Self::Target {
        &self.host
    }
}

impl Reporter for Printer {
    fn warn(&self, text: &str, hint: Option<&str>) {
        (*self).warn(text, hint);
    }

    fn info(&self, text: &str) {
        if !self.quiet {
            self.print_stderr(&format!("{}\n", paint(DIM, text)));
        }
    }

    fn progress(&self, label: &'static str, total: Option<usize>) -> Box<dyn rye_host::Progress> {
        match total {
            Some(total) => Box::new(Progress::new(*self, label, total)),
            None => Box::new(Spinner::new(*self, label)),
        }
    }
}
