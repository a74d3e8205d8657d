//! Parser for `.env` files.
//!
//! ```text
//! # a comment
//! export NAME=value        # `export` and comments are allowed
//! QUOTED="two words\n"     # escapes: \n \t \r \" \\ \$
//! LITERAL='$(not run)'     # no escapes
//! ```
//!
//! Quoted values can span several lines. There is no substitution: `$(…)`, backticks and
//! `$NAME` are literal text. Invalid lines are skipped and reported.

use std::borrow::Cow;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// Content of a `.env` file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dotenv {
    /// Names and values in file order; the last value of a repeated name wins.
    pub variables: Vec<(String, String)>,
    /// Skipped lines: line number from 1, or 0 for the whole file, and the reason.
    pub problems: Vec<(usize, &'static str)>,
}

/// Size limit in bytes; no handwritten file is larger.
const MAX_BYTES: u64 = 1 << 20;

/// Reads a `.env` file. A missing file is empty. Anything but a regular file is an error,
/// because reading a pipe might never end.
pub fn read(path: &Path) -> Result<Dotenv, String> {
    let opened = fs::OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Dotenv::default()),
        Err(error) => return Err(error.to_string()),
    };
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    if !metadata.is_file() || metadata.len() > MAX_BYTES {
        return Err("not a regular file of at most 1 MiB".to_owned());
    }
    let mut bytes = Vec::new();
    let read = file.take(MAX_BYTES).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&bytes);
    let mut dotenv = parse(&text);
    if matches!(text, Cow::Owned(_)) {
        // Skip values that contain invalid UTF-8.
        let before = dotenv.variables.len();
        dotenv
            .variables
            .retain(|(_, value)| !value.contains('\u{fffd}'));
        if dotenv.variables.len() < before {
            dotenv
                .problems
                .push((0, "skipped a value that is not valid UTF-8"));
        }
    }
    Ok(dotenv)
}

/// Parses the text of a `.env` file.
pub fn parse(text: &str) -> Dotenv {
    let mut result = Dotenv::default();
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (mut rest, mut number) = (text, 1);
    while !rest.is_empty() {
        let line = rest.split('\n').next().unwrap_or_default();
        let used = match assignment(line.trim_end_matches('\r'), rest) {
            Ok(None) => line.len(),
            Ok(Some((name, value, used))) => {
                result.variables.push((name.to_owned(), value));
                used
            }
            Err(reason) => {
                result.problems.push((number, reason));
                line.len()
            }
        };
        number += rest[..used].matches('\n').count() + 1;
        rest = rest[used..].strip_prefix('\n').unwrap_or(&rest[used..]);
    }
    result
}

/// Parses the assignment at the start of `rest`, whose first line is `line`. Returns the name,
/// the value and the number of bytes consumed; `None` for an empty line or a comment.
fn assignment<'t>(
    line: &'t str,
    rest: &'t str,
) -> Result<Option<(&'t str, String, usize)>, &'static str> {
    let trimmed = line.trim_start();
    if trimmed.is_empty() || trimmed.starts_with('#') {
        return Ok(None);
    }
    let body = match trimmed.strip_prefix("export") {
        Some(after) if after.starts_with([' ', '\t']) => after.trim_start(),
        _ => trimmed,
    };
    let (name, value) = body.split_once('=').ok_or("missing `=`")?;
    let name = name.trim_end();
    let first = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !first || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Err("invalid variable name");
    }
    if line.contains('\0') {
        return Err("contains a NUL byte");
    }
    let start = line.len() - value.trim_start_matches([' ', '\t']).len();
    let (value, length) = match rest[start..].chars().next() {
        Some(quote @ ('"' | '\'')) => quoted(&rest[start..], quote)?,
        _ => (bare(&line[start..]).to_owned(), line.len() - start),
    };
    let after = rest[start + length..]
        .split('\n')
        .next()
        .unwrap_or_default();
    let tail = after.trim_start();
    if !(tail.trim_end().is_empty() || tail.starts_with('#')) {
        return Err("unexpected text after the closing quote");
    }
    Ok(Some((name, value, start + length + after.len())))
}

/// An unquoted value ends at the end of the line or at a comment preceded by a blank.
fn bare(text: &str) -> &str {
    let comment = text
        .char_indices()
        .find(|(at, c)| *c == '#' && (*at == 0 || text[..*at].ends_with([' ', '\t'])));
    text[..comment.map_or(text.len(), |(at, _)| at)].trim_end()
}

/// Parses a quoted value; returns it and its length including the quotes.
fn quoted(text: &str, quote: char) -> Result<(String, usize), &'static str> {
    let mut value = String::new();
    let mut characters = text.char_indices().skip(1);
    while let Some((at, c)) = characters.next() {
        match c {
            _ if c == quote => return Ok((value, at + 1)),
            '\0' => return Err("contains a NUL byte"),
            '\\' if quote == '"' => match characters.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, 't')) => value.push('\t'),
                Some((_, 'r')) => value.push('\r'),
                Some((_, escaped @ ('"' | '\\' | '$'))) => value.push(escaped),
                Some((_, other)) => value.extend(['\\', other]),
                None => return Err("unterminated quote"),
            },
            other => value.push(other),
        }
    }
    Err("unterminated quote")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn all_kinds_of_lines_are_parsed() {
        let text = "\u{feff}# comment\n\nA=1\nexport B = two words # why\r\nC=\"x\\ny \\\"q\\\" \\$H $(id) \\z\" # c\n\
                    D='a\n$(b) \\n'\nE=\nF=#none\nG=a#b\n  H=h\nexportI=1\nA=last\nJ=`id`\n";
        let expected = [
            ("A", "1"),
            ("B", "two words"),
            ("C", "x\ny \"q\" $H $(id) \\z"),
            ("D", "a\n$(b) \\n"),
            ("E", ""),
            ("F", ""),
            ("G", "a#b"),
            ("H", "h"),
            ("exportI", "1"),
            ("A", "last"),
            ("J", "`id`"),
        ];
        let read = parse(text);
        assert_eq!(read.problems, []);
        let found: Vec<_> = read
            .variables
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_str()))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn invalid_lines_are_reported_and_skipped() {
        let text = "no equals\n1A=x\nA B=x\n=x\nX=\"open\nOK=1\nY='a' b\nZ=\0\nLAST=2";
        let read = parse(text);
        let names: Vec<_> = read.variables.iter().map(|(k, _)| k.as_str()).collect();
        assert_eq!(names, ["OK", "LAST"]);
        let lines: Vec<_> = read.problems.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [1, 2, 3, 4, 5, 7, 8]);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_without_panic(text in "[A-Z=\"'\\\\#\n \r$a\u{e9}\0]{0,60}") {
            for (name, value) in parse(&text).variables {
                prop_assert!(!name.is_empty() && !value.contains('\0'));
            }
        }

        #[test]
        fn quoted_value_round_trips(value in "[^'\0]*") {
            let read = parse(&format!("X='{value}'\nY=1\n"));
            prop_assert_eq!(&read.variables[0].1, &value);
            prop_assert_eq!(&read.variables[1].1, "1");
        }
    }
}
