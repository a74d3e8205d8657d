//! Source encodings. Some languages let a file declare the encoding of its own bytes; in another
//! one than UTF-8, what a person and the parsers here read as a comment can be code.

use super::error::{Problem, brief};
use super::text::{Line, lines};

/// Where a declaration counts: the first two lines, one of which may be our signature.
const LINES: usize = 3;

/// Names of UTF-8, and of ASCII, which is the same bytes.
const UTF8: [&str; 8] = [
    "utf-8",
    "utf8",
    "u8",
    "utf-8-sig",
    "utf8-mac",
    "ascii",
    "us-ascii",
    "646",
];

/// Languages without such a declaration.
const WITHOUT: [&str; 17] = [
    ".sh", ".bash", ".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx", ".yaml", ".yml",
    ".json", ".toml", ".md", ".rs", ".go",
];

/// Refuses a file that declares another encoding than UTF-8.
pub(super) fn check(text: &str, extension: &str) -> Result<(), Problem> {
    if WITHOUT.contains(&extension) {
        return Ok(());
    }
    // Interpreters also end a line at a lone carriage return.
    let starts = lines(text, 0).flat_map(|line| {
        let mut at = line.at;
        line.text.split(['\r', '\x0c']).map(move |text| {
            let start = at;
            at += text.len() + 1;
            Line { at: start, text }
        })
    });
    let starts: Vec<_> = starts.take(LINES).collect();
    for line in &starts {
        if let Some((name, at)) = declared(line) {
            return Err(refused(name, at));
        }
    }
    for line in lines(text, 0) {
        if let Some(at) = pragma(line.text) {
            let name = line.text.trim();
            return Err(refused(name, line.at + at));
        }
    }
    Ok(())
}

/// The encoding that a comment line declares, unless it is UTF-8, and where: `coding: NAME` or
/// `coding=NAME`, whatever stands before it.
fn declared<'t>(line: &Line<'t>) -> Option<(&'t str, usize)> {
    const WORD: &str = "coding";
    let is_comment = line
        .text
        .trim_start()
        .starts_with(['#', '%', ';', '/', '*', '-', '"', '<', '(']);
    if !is_comment {
        return None;
    }
    let lower = line.text.to_ascii_lowercase();
    let found = lower.match_indices(WORD).find_map(|(at, _)| {
        let rest = &line.text[at + WORD.len()..];
        let rest = rest.trim_start_matches([' ', '\t']);
        let rest = rest.strip_prefix([':', '='])?;
        let rest = rest.trim_start_matches([' ', '\t', '"', '\'']);
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c)));
        let name = &rest[..end.unwrap_or(rest.len())];
        (!name.is_empty()).then_some((name, line.end() - rest.len()))
    })?;
    (!is_utf8(found.0)).then_some(found)
}

/// Whether a name is one of UTF-8. Editors append how lines end: `utf-8-unix`.
fn is_utf8(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('_', "-");
    let plain = ["-unix", "-dos", "-mac"]
        .iter()
        .find_map(|ending| name.strip_suffix(ending));
    UTF8.contains(&name.as_str()) || plain.is_some_and(|name| UTF8.contains(&name))
}

/// Where on a line a statement declares an encoding: `use encoding` of Perl, and
/// `declare(encoding=…)` of PHP.
fn pragma(line: &str) -> Option<usize> {
    let lower = line.to_ascii_lowercase();
    for (first, second) in [("use", "encoding"), ("declare", "encoding")] {
        for (at, _) in lower.match_indices(first) {
            let rest = lower[at + first.len()..].trim_start_matches([' ', '\t', '(']);
            let is_word = !lower[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            let separated = rest.len() < lower.len() - at - first.len();
            let follows = rest.strip_prefix(second);
            let ends = follows.is_some_and(|it| {
                let it = it.trim_start();
                match first {
                    "use" => it.is_empty() || it.starts_with(['"', '\'', ';', ':', 'q']),
                    _ => it.starts_with('='),
                }
            });
            if is_word && separated && ends {
                return Some(at);
            }
        }
    }
    None
}

fn refused(name: &str, at: usize) -> Problem {
    let message = format!(
        "the file declares the source encoding `{}`; only UTF-8 is read",
        brief(name)
    );
    Problem::new(at, message).hint("save the file as UTF-8 and remove the declaration")
}
