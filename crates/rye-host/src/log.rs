//! The log: events and spans of all crates, to standard error or a file, with secrets redacted.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::sync::{Mutex, PoisonError};

use lillux::PathContext as _;
use lillux::redact::Redactor;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::fmt::{MakeWriter, Subscriber};

use crate::failure::Failure;
use crate::settings;

/// What to log if only a file or a format is given.
const DEFAULT_FILTER: &str = "info";

/// The secrets to redact in the log; `None` while there is no log.
static SECRETS: Mutex<Option<Vec<Redactor>>> = Mutex::new(None);

/// The format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// One line of text per event.
    Text,
    /// One JSON object per line.
    Json,
}

impl LogFormat {
    /// The names of all formats.
    pub const NAMES: [&str; 2] = ["text", "json"];
}

impl std::str::FromStr for LogFormat {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err("text or json"),
        }
    }
}

/// What to log, and where to.
#[derive(Debug, Clone, Default)]
pub struct LogOptions {
    /// Directives, such as `debug` or `rye_engine=debug,warn`.
    pub filter: Option<String>,
    /// The file to append to, instead of standard error.
    pub file: Option<PathBuf>,
    /// The format.
    pub format: Option<LogFormat>,
}

/// Starts the log, if the options or the environment (`RYE_LOG`, `RYE_LOG_FILE`, `RYE_LOG_FORMAT`)
/// ask for one. Returns whether it goes to standard error.
pub fn start_log(options: LogOptions) -> Result<bool, Failure> {
    let variable = |name| settings::variable(name).map(|it| it.to_string_lossy().into_owned());
    let (filter, filter_source) = match options.filter {
        Some(filter) => (Some(filter), "--log"),
        None => (variable("RYE_LOG"), "RYE_LOG"),
    };
    let file = options
        .file
        .or_else(|| settings::variable("RYE_LOG_FILE").map(PathBuf::from));
    let format = match (options.format, variable("RYE_LOG_FORMAT")) {
        (Some(format), _) => Some(format),
        (None, Some(name)) => Some(name.parse().map_err(|expected| {
            let message = format!("invalid RYE_LOG_FORMAT={name:?}: expected {expected}");
            Failure::usage(message).hint("unset RYE_LOG_FORMAT")
        })?),
        (None, None) => None,
    };
    if filter.is_none() && file.is_none() && format.is_none() {
        return Ok(false);
    }
    let directives = filter.as_deref().unwrap_or(DEFAULT_FILTER);
    let filter = parse_filter(directives).map_err(|why| {
        let message = format!("invalid {filter_source}={directives:?}: {why}");
        Failure::usage(message).hint("rye help configuration")
    })?;
    let is_stderr = file.is_none();
    let output = Output(match &file {
        Some(path) => Some(open(path)?),
        None => None,
    });
    // Spans have no events of their own, so their begin and end are logged.
    let log = Subscriber::builder()
        .with_env_filter(filter)
        .with_span_events(FmtSpan::NEW | FmtSpan::CLOSE)
        .with_writer(output);
    let started = match format.unwrap_or(LogFormat::Text) {
        LogFormat::Text => tracing::subscriber::set_global_default(log.finish()),
        LogFormat::Json => tracing::subscriber::set_global_default(log.json().finish()),
    };
    *SECRETS.lock().unwrap_or_else(PoisonError::into_inner) = Some(Vec::new());
    started.map_err(|error| Failure::failed("log", error))?;
    Ok(is_stderr)
}

/// Whether there is a log.
pub(crate) fn is_logging() -> bool {
    let secrets = SECRETS.lock().unwrap_or_else(PoisonError::into_inner);
    secrets.is_some()
}

/// Redacts these secrets, and those that are added later, in the log.
pub(crate) fn redact_in_log(secrets: &Redactor) {
    let mut all = SECRETS.lock().unwrap_or_else(PoisonError::into_inner);
    all.iter_mut().for_each(|all| all.push(secrets.clone()));
}

/// Parses directives. A word that is neither a level nor one of our crates is an error, because it
/// would log nothing.
fn parse_filter(directives: &str) -> Result<EnvFilter, String> {
    const LEVELS: &str = "a level is off, error, warn, info, debug or trace; \
                          for one crate write rye_engine=debug";
    for directive in directives.split(',').map(str::trim) {
        let is_crate = ["rye", "lillux"].iter().any(|it| directive.starts_with(it));
        let is_bare = !directive.contains(['=', '[']);
        let is_level = !directive.is_empty() && LevelFilter::from_str(directive).is_ok();
        if is_bare && !is_crate && !is_level {
            return Err(format!("`{directive}` is not a level ({LEVELS})"));
        }
    }
    let filter = EnvFilter::builder().parse(directives);
    filter.map_err(|error| format!("{error} ({LEVELS})"))
}

fn open(path: &Path) -> Result<File, Failure> {
    let mut options = OpenOptions::new();
    // Only the user may read what agents did.
    let options = options.append(true).create(true).mode(0o600);
    Ok(options.open(path).at("write the log to", path)?)
}

/// Where the log goes: a file, or standard error.
struct Output(Option<File>);

impl<'a> MakeWriter<'a> for Output {
    type Writer = RedactingWriter<'a>;

    fn make_writer(&'a self) -> Self::Writer {
        RedactingWriter(self.0.as_ref())
    }
}

/// Writes one event, which arrives in one piece.
struct RedactingWriter<'a>(Option<&'a File>);

impl Write for RedactingWriter<'_> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let mut line = event.to_vec();
        let secrets = SECRETS.lock().unwrap_or_else(PoisonError::into_inner);
        for secrets in secrets.iter().flatten() {
            line = secrets.redact_bytes(&line).into_owned();
        }
        match &mut self.0 {
            Some(file) => file.write_all(&line)?,
            None => io::stderr().write_all(&line)?,
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_that_log_nothing_are_rejected() {
        for good in [
            "debug",
            "rye_engine=debug,warn",
            "rye_host",
            "off",
            "rmcp=info",
        ] {
            assert!(parse_filter(good).is_ok(), "{good}");
        }
        for bad in ["loud", "", "rye_engine=loud", "info,,debug", "hyper"] {
            assert!(parse_filter(bad).is_err(), "{bad}");
        }
    }
}
