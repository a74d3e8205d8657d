//! Diagnostic output of a server outside of the protocol: the end of its standard error, and
//! lines of standard output that are not messages. Secrets of its configuration are redacted.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use lillux::process::Stream;
use lillux::strip_control;
use parking_lot::Mutex;
use rye_executor::OutputListener;
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
    listener: Option<OutputListener>,
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

    /// Sets a listener for standard error.
    pub(super) fn set_listener(&self, listener: Option<OutputListener>) {
        self.output.lock().listener = listener;
    }

    /// Adds bytes of standard error.
    pub(super) fn push_stderr(&self, bytes: &[u8]) {
        let mut output = self.output.lock();
        if let Some(listener) = &output.listener {
            listener.on_output(Stream::Stderr, bytes);
        }
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
        let lines = meaningful_lines(&self.stderr);
        let lines: Vec<_> = lines.iter().map(|line| excerpt(line.as_bytes())).collect();
        if lines.is_empty() {
            return Ok(());
        }
        write!(f, "; standard error: {}", lines.join("; "))
    }
}

/// The last lines of standard error that say why a server failed, without the usual noise of package
/// managers and stack traces.
fn meaningful_lines(stderr: &str) -> Vec<&str> {
    const MAX_LINES: usize = 4;
    let lines = stderr.lines().filter(|line| !is_noise(line));
    let lines: Vec<_> = lines.map(str::trim).collect();
    let errors = lines.iter().copied().filter(|line| names_error(line));
    let mut chosen: Vec<_> = errors.collect();
    if chosen.is_empty() {
        chosen = lines;
    }
    chosen.dedup();
    chosen.split_off(chosen.len().saturating_sub(MAX_LINES))
}

/// The text of a line without npm's prefix, which every line of its output has.
fn without_prefix(line: &str) -> &str {
    let line = line.trim();
    let rest = ["npm error", "npm ERR!"];
    let rest = rest.iter().find_map(|prefix| line.strip_prefix(prefix));
    let rest = rest.map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' '));
    rest.unwrap_or(line)
}

fn is_noise(line: &str) -> bool {
    const PREFIXES: [&str; 8] = [
        "npm warn",
        "npm WARN",
        "npm notice",
        "npm http",
        "Node.js v",
        "node:",
        "Traceback",
        "code ",
    ];
    // Indented lines are frames of a stack trace or the continuation of a message.
    let is_indented = line.starts_with([' ', '\t']);
    let text = without_prefix(line);
    (is_indented && !is_cause(text))
        || !text.contains(char::is_alphabetic)
        || PREFIXES.iter().any(|prefix| text.starts_with(prefix))
        || text.contains("complete log of this run")
}

/// Whether a line is part of a chain of causes, as programs in Rust such as `uv` print it.
fn is_cause(text: &str) -> bool {
    const PREFIXES: [&str; 5] = ["cause:", "Caused by:", "×", "╰─▶", "├─▶"];
    PREFIXES.iter().any(|prefix| text.starts_with(prefix))
}

fn names_error(line: &str) -> bool {
    const WORDS: [&str; 16] = [
        "error",
        "fatal",
        "fail",
        "cannot",
        "can't",
        "could not",
        "unable",
        "not found",
        "no such",
        "denied",
        "refused",
        "exception",
        "invalid",
        "missing",
        "required",
        "panic",
    ];
    let text = without_prefix(line);
    let lower = text.to_lowercase();
    is_cause(text) || WORDS.iter().any(|word| lower.contains(word))
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
    fn meaningful_lines_of_standard_error_are_chosen() {
        let npm = "npm warn deprecated glob@7.2.3: no longer supported\n\
            npm error code E404\n\
            npm error 404 Not Found - GET https://registry.example/nope - Not found\n\
            npm error 404\n\
            npm error 404  'nope@*' could not be found or you do not have permission\n\
            npm error 404 Note that you can also install from a\n\
            npm error A complete log of this run can be found in: /srv/npm/_logs/x.log\n";
        assert_eq!(
            meaningful_lines(npm),
            [
                "npm error 404 Not Found - GET https://registry.example/nope - Not found",
                "npm error 404  'nope@*' could not be found or you do not have permission",
            ]
        );
        let python = "Traceback (most recent call last):\n  File \"s.py\", line 1\n    import nope\n\
            ModuleNotFoundError: No module named 'nope'\n";
        assert_eq!(
            meaningful_lines(python),
            ["ModuleNotFoundError: No module named 'nope'"]
        );
        let node = "node:internal/modules/cjs/loader:1080\n  throw err;\n  ^\n\n\
            Error: Cannot find module 'nope'\n    at Module._resolve (node:internal:1)\n\n\
            Node.js v20.1.0\n";
        assert_eq!(meaningful_lines(node), ["Error: Cannot find module 'nope'"]);
        let uv = "Using Python 3.12\nerror: Failed to fetch: https://pypi.example/simple/time/\n  \
            cause: error sending request\n  cause: client error (Connect)\n  \
            cause: invalid peer certificate: UnknownIssuer\n\nhint: Consider `--system-certs`\n";
        assert_eq!(
            meaningful_lines(uv),
            [
                "error: Failed to fetch: https://pypi.example/simple/time/",
                "cause: error sending request",
                "cause: client error (Connect)",
                "cause: invalid peer certificate: UnknownIssuer",
            ]
        );
        let older_uv = "  × No solution found when resolving tool dependencies:\n  \
            ╰─▶ Because nope was not found in the package registry and you\n      require nope, \
            your requirements are unsatisfiable.\n";
        assert_eq!(
            meaningful_lines(older_uv),
            [
                "× No solution found when resolving tool dependencies:",
                "╰─▶ Because nope was not found in the package registry and you",
            ]
        );
        assert_eq!(meaningful_lines("a\nb\nc\nd\ne"), ["b", "c", "d", "e"]);
        assert!(meaningful_lines(" \n---\n").is_empty());
    }

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
