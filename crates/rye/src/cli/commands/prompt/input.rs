//! Text of a prompt: arguments and standard input.

use std::io::{self, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use rye_engine::attachment;
use rye_engine::protocol::Part;

use crate::cli::failure::Failure;
use crate::cli::printer::Printer;

/// Maximum size of standard input.
const MAX_INPUT: u64 = 16 * 1024 * 1024;
/// Delay before a warning that standard input is still open.
const WARN_AFTER: Duration = Duration::from_secs(2);

/// The prompt: the arguments, followed by standard input if it is not a terminal.
pub(super) fn prompt_text(words: &[String], printer: Printer) -> Result<String, Failure> {
    let words = words.join(" ");
    let input = if io::stdin().is_terminal() {
        String::new()
    } else {
        read(printer)?
    };
    combine(words.trim(), &input).ok_or_else(|| {
        Failure::usage("the prompt is empty: pass text as an argument or on standard input")
            .hint("rye prompt 'say hello'")
    })
}

/// Adds files to a prompt: images as attachments, text files to the text.
pub(super) fn attach(text: String, files: &[PathBuf]) -> Result<(String, Vec<Part>), Failure> {
    let (mut text, mut images) = (text, Vec::new());
    for path in files {
        let name = path.display().to_string();
        let fail = |why: &dyn std::fmt::Display| {
            let message = format!("cannot attach {name}: {why}");
            Failure::usage(message).hint("rye prompt --help")
        };
        let bytes = read_file(path).map_err(|error| fail(&error))?;
        if attachment::image_type(&bytes).is_some() {
            images.push(attachment::image(&name, &bytes).map_err(|why| fail(&why))?);
            continue;
        }
        let content = String::from_utf8(bytes)
            .ok()
            .filter(|it| !it.contains('\0'));
        let content = content.ok_or_else(|| fail(&"it is neither an image nor UTF-8 text"))?;
        let (name, content) = (name.replace('"', "'"), content.trim_end_matches('\n'));
        text = format!("{text}\n\n<file path=\"{name}\">\n{content}\n</file>");
    }
    Ok((text, images))
}

/// Reads a regular file; a pipe or a device may be endless.
fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    if metadata.len() > MAX_INPUT {
        let most = MAX_INPUT / 1024 / 1024;
        return Err(io::Error::other(format!("it is larger than {most} MiB")));
    }
    std::fs::read(path)
}

/// Combines arguments and input; `None` if both are empty.
fn combine(words: &str, input: &str) -> Option<String> {
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
        if waits.recv_timeout(WARN_AFTER) == Err(mpsc::RecvTimeoutError::Timeout) {
            let text = "waiting for the end of standard input";
            printer.warn(text, Some("rye prompt 'say hello' </dev/null"));
        }
    });
    let mut bytes = Vec::new();
    let outcome = io::stdin().take(MAX_INPUT + 1).read_to_end(&mut bytes);
    drop(done);
    outcome
        .map_err(|error| Failure::failed("io", format!("cannot read standard input: {error}")))?;
    if bytes.len() as u64 > MAX_INPUT {
        let message = format!(
            "standard input is larger than {} MiB",
            MAX_INPUT / 1024 / 1024
        );
        return Err(Failure::usage(message).hint("head -c 1000000 FILE | rye prompt"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::usage(format!(
            "standard input is not UTF-8: invalid byte at offset {at}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_come_first_and_either_may_be_missing() {
        for (words, input, expected) in [
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
                combine(words, input).as_deref(),
                expected,
                "{words:?} {input:?}"
            );
        }
    }
}
