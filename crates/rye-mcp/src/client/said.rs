//! What a server said beside the protocol, for those who have to find out what is
//! wrong with it: the end of its standard error, and what was no message. What is
//! secret in its configuration is redacted.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rye_executor::redact::Redactor;

/// How much of the end of standard error is kept.
const KEPT: usize = 8 * 1024;
/// How much is shown of a line that is no message.
const SHOWN: usize = 200;

/// What a server said so far. Shared by those who hear and those who tell.
#[derive(Debug, Clone, Default)]
pub(super) struct Heard {
    all: Arc<Mutex<All>>,
    redactor: Redactor,
}

#[derive(Debug, Default)]
struct All {
    stderr: VecDeque<u8>,
    no_messages: usize,
    last: String,
}

impl Heard {
    pub(super) fn new(redactor: Redactor) -> Self {
        Self {
            all: Arc::default(),
            redactor,
        }
    }

    pub(super) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// A piece of standard error.
    pub(super) fn stderr(&self, bytes: &[u8]) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let last = &bytes[bytes.len().saturating_sub(KEPT)..];
        let excess = (all.stderr.len() + last.len()).saturating_sub(KEPT);
        all.stderr.drain(..excess);
        all.stderr.extend(last);
    }

    /// A line of standard output that is no message.
    pub(super) fn no_message(&self, line: &[u8]) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.no_messages += 1;
        // Redacted first: of what is cut nobody knows what it was.
        let line = String::from_utf8_lossy(line);
        all.last = excerpt(self.redactor.redact(&line).as_bytes());
    }

    /// All of it, to be shown.
    pub(super) fn said(&self) -> Diagnostics {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes: Vec<u8> = all.stderr.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let stderr = self
            .redactor
            .redact(&without_controls(text.trim()))
            .into_owned();
        let no_message = match all.no_messages {
            0 => None,
            count => Some((count, all.last.clone())),
        };
        Diagnostics { stderr, no_message }
    }
}

/// What a server said beside the protocol.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diagnostics {
    /// The end of its standard error.
    pub stderr: String,
    /// How many lines of its standard output were no messages, and the last of them.
    pub no_message: Option<(usize, String)>,
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((count, last)) = &self.no_message {
            let lines = if *count == 1 { "line" } else { "lines" };
            write!(
                f,
                "; {count} {lines} of its output were no messages, the last: {last}"
            )?;
        }
        match self.stderr.lines().next_back() {
            None => Ok(()),
            Some(line) => write!(
                f,
                "; its standard error ends with: {}",
                excerpt(line.as_bytes())
            ),
        }
    }
}

/// The beginning of a line, in one line.
pub(super) fn excerpt(line: &[u8]) -> String {
    let shown = String::from_utf8_lossy(&line[..line.len().min(SHOWN)]);
    let shown = without_controls(&shown).replace('\n', " ");
    if line.len() > SHOWN {
        format!("{shown}…")
    } else {
        shown
    }
}

/// A text that cannot move a terminal's cursor.
pub(super) fn without_controls(text: &str) -> String {
    let visible = |c: &char| *c == '\n' || *c == '\t' || !c.is_control();
    text.chars().filter(visible).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_flood_is_kept_and_its_secrets_are_not() {
        let heard = Heard::new(Redactor::new(["sesame", "a"]));
        for _ in 0..10_000 {
            heard.stderr(b"noise and more noise\n");
        }
        heard.stderr(b"the token \x1b[31msesame was refused\n");
        heard.no_message(b"ServerSpec sesame started");
        let said = heard.said();
        assert!(said.stderr.len() <= KEPT);
        assert!(
            said.stderr
                .ends_with("the token [31m[redacted] was refused"),
            "{said}"
        );
        let shown = said.to_string();
        assert!(shown.contains(
            "1 line of its output were no messages, the last: ServerSpec [redacted] started"
        ));
        assert!(!shown.contains("sesame"));
    }
}
