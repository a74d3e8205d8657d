//! What comes to `rye prompt` by a pipe or from a file.

use std::io::{self, IsTerminal as _, Read as _};
use std::sync::mpsc;
use std::time::Duration;

use crate::cli::failure::Failure;
use crate::cli::printer::Printer;

/// More than any model reads at once.
const MOST: u64 = 16 * 1024 * 1024;
/// When to say that something is waited for: a pipe that nobody closes is easily forgotten.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is asked: the words, and below them what standard input says.
pub(super) fn asked(words: &[String], printer: Printer) -> Result<String, Failure> {
    let words = words.join(" ");
    let input = if io::stdin().is_terminal() {
        String::new()
    } else {
        read(printer)?
    };
    together(words.trim(), &input).ok_or_else(|| {
        Failure::usage("nothing is asked: give words, or something on standard input")
            .hint("rye prompt 'say hello'")
    })
}

/// None where there is nothing at all.
fn together(words: &str, input: &str) -> Option<String> {
    match (words.is_empty(), input.trim().is_empty()) {
        (true, true) => None,
        (true, false) => Some(input.trim_end().to_owned()),
        (false, true) => Some(words.to_owned()),
        (false, false) => {
            let input = input.trim_end_matches('\n');
            Some(format!("{words}\n\n<stdin>\n{input}\n</stdin>"))
        }
    }
}

fn read(printer: Printer) -> Result<String, Failure> {
    let (done, waits) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        if waits.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
            let text = "standard input is read until it ends";
            printer.warn(text, Some("rye prompt … </dev/null, where there is none"));
        }
    });
    let mut bytes = Vec::new();
    let outcome = io::stdin().take(MOST + 1).read_to_end(&mut bytes);
    drop(done);
    outcome.map_err(|error| {
        Failure::failed("io", format!("standard input cannot be read: {error}"))
    })?;
    if bytes.len() as u64 > MOST {
        let message = format!("standard input has more than {} MiB", MOST / 1024 / 1024);
        return Err(Failure::usage(message).hint("head -c 1000000 FILE | rye prompt …"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::usage(format!("standard input is no UTF-8 text: byte {at}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_first_and_either_may_be_missing() {
        for (words, input, asked) in [
            ("", "", None),
            ("", " \n", None),
            ("why?", "", Some("why?")),
            ("why?", "\n", Some("why?")),
            ("", "  all of it\n", Some("  all of it")),
            (
                "why?",
                "  one\ntwo\n\n",
                Some("why?\n\n<stdin>\n  one\ntwo\n</stdin>"),
            ),
        ] {
            assert_eq!(
                together(words, input).as_deref(),
                asked,
                "{words:?} {input:?}"
            );
        }
    }
}
