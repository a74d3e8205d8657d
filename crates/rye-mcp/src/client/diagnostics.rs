//! Diagnostic output of a server outside of the protocol: the end of its standard error, and
//! lines of standard output that are not messages. Secrets of its configuration are redacted.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use lillux::strip_control;
use parking_lot::Mutex;
use rye_executor::redact::Redactor;

/// How many bytes of the end of standard error to keep.
const MAX_STDERR: usize = 8 * 1024;
/// How many bytes of a line to show.
const MAX_EXCERPT: usize = 200;

/// Collects the diagnostic output of a server. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct DiagnosticsLog {
    output: Arc<Mutex<Output>>,
    redactor: Redactor,
}

#[derive(Debug, Default)]
struct Output {
    stderr: VecDeque<u8>,
    invalid_lines: usize,
    last_invalid_line: String,
}

impl DiagnosticsLog {
    pub(super) fn new(redactor: Redactor) -> Self {
        Self {
            output: Arc::default(),
            redactor,
        }
    }

    pub(super) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// Adds bytes of standard error.
    pub(super) fn push_stderr(&self, bytes: &[u8]) {
        let mut output = self.output.lock();
        let tail = &bytes[bytes.len().saturating_sub(MAX_STDERR)..];
        let excess = (output.stderr.len() + tail.len()).saturating_sub(MAX_STDERR);
        output.stderr.drain(..excess);
        output.stderr.extend(tail);
    }

    /// Adds a line of standard output that is not a message.
    pub(super) fn push_invalid_line(&self, line: &[u8]) {
        let mut output = self.output.lock();
        output.invalid_lines += 1;
        // Redact before truncating: a truncated secret would not be recognised.
        let line = String::from_utf8_lossy(line);
        output.last_invalid_line = excerpt(self.redactor.redact(&line).as_bytes());
    }

    /// The output so far, redacted.
    pub(super) fn snapshot(&self) -> Diagnostics {
        let output = self.output.lock();
        let bytes: Vec<u8> = output.stderr.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let text = strip_control(text.trim());
        let text = self.redactor.redact(&text);
        // Redaction may lengthen the text.
        let start = text.ceil_char_boundary(text.len().saturating_sub(MAX_STDERR));
        let stderr = text[start..].to_owned();
        let invalid_lines = match output.invalid_lines {
            0 => None,
            count => Some((count, output.last_invalid_line.clone())),
        };
        Diagnostics {
            stderr,
            invalid_lines,
        }
    }
}

/// Diagnostic output of a server, redacted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diagnostics {
    /// End of standard error.
    pub stderr: String,
    /// Number of lines of standard output that are not messages, and the last of them.
    pub invalid_lines: Option<(usize, String)>,
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((count, last)) = &self.invalid_lines {
            let lines = if *count == 1 { "line" } else { "lines" };
            write!(f, "; {count} {lines} of invalid output, last: {last}")?;
        }
        match self.stderr.lines().next_back() {
            None => Ok(()),
            Some(line) => write!(
                f,
                "; last line of standard error: {}",
                excerpt(line.as_bytes())
            ),
        }
    }
}

/// The beginning of a line without control characters.
pub(super) fn excerpt(line: &[u8]) -> String {
    let shown = String::from_utf8_lossy(&line[..line.len().min(MAX_EXCERPT)]);
    let shown = strip_control(&shown).replace('\n', " ");
    if line.len() > MAX_EXCERPT {
        format!("{shown}…")
    } else {
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_stderr_is_kept_and_secrets_are_redacted() {
        let log = DiagnosticsLog::new(Redactor::new(["sesame", "a"]));
        for _ in 0..10_000 {
            log.push_stderr(b"noise and more noise\n");
        }
        log.push_stderr(b"the token \x1b[31msesame was refused\n");
        log.push_invalid_line(b"Server sesame started");
        let diagnostics = log.snapshot();
        assert!(diagnostics.stderr.len() <= MAX_STDERR);
        assert!(
            diagnostics
                .stderr
                .ends_with("the token [redacted] was refused"),
            "{diagnostics}"
        );
        let shown = diagnostics.to_string();
        assert!(shown.contains("1 line of invalid output, last: Server [redacted] started"));
        assert!(!shown.contains("sesame"));
    }
}
