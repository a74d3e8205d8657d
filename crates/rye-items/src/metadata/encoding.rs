//! Rejects source files that declare an encoding other than UTF-8.
//!
//! In another encoding, bytes that a reviewer and our parsers read as a comment can be code.

use super::error::{Problem, truncate};
use super::text::{Line, lines};

/// Interpreters read a declaration in the first two lines; the signature line may precede them.
const DECLARATION_LINES: usize = 3;

/// Names of UTF-8 and of ASCII, which is a subset.
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

/// Extensions of languages without encoding declarations.
const WITHOUT_DECLARATION: [&str; 17] = [
    ".sh", ".bash", ".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx", ".yaml", ".yml",
    ".json", ".toml", ".md", ".rs", ".go",
];

/// Rejects a file that declares an encoding other than UTF-8.
pub(super) fn check(text: &str, extension: &str) -> Result<(), Problem> {
    if WITHOUT_DECLARATION.contains(&extension) {
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
    let starts: Vec<_> = starts.take(DECLARATION_LINES).collect();
    for line in &starts {
        if let Some((name, at)) = declared(line) {
            return Err(encoding_problem(name, at));
        }
    }
    for line in lines(text, 0) {
        if let Some(at) = pragma(line.text) {
            let name = line.text.trim();
            return Err(encoding_problem(name, line.at + at));
        }
    }
    Ok(())
}

/// The name and offset of the encoding that a comment line declares, unless it is UTF-8. Matches
/// `coding: NAME` and `coding=NAME` anywhere in the line.
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

/// Whether a name is a name of UTF-8. Editors append the line ending: `utf-8-unix`.
fn is_utf8(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('_', "-");
    let plain = ["-unix", "-dos", "-mac"]
        .iter()
        .find_map(|ending| name.strip_suffix(ending));
    UTF8.contains(&name.as_str()) || plain.is_some_and(|name| UTF8.contains(&name))
}

/// The offset of a statement that declares an encoding: `use encoding` in Perl, or
/// `declare(encoding=…)` in PHP.
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

fn encoding_problem(name: &str, at: usize) -> Problem {
    let message = format!(
        "the file declares the source encoding `{}`; only UTF-8 is read",
        truncate(name)
    );
    Problem::new(at, message).hint("save the file as UTF-8 and remove the declaration")
}
