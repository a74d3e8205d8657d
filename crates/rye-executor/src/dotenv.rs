//! `.env` files: names and values, nothing that runs.
//!
//! ```text
//! # a comment
//! export NAME=value        # `export` is allowed, and so is a comment here
//! QUOTED="two words\n"     # escapes \n \t \r \" \\ \$ are read
//! LITERAL='$(not run)'     # nothing is read
//! ```
//!
//! Quoted values may go over several lines. Nothing is substituted: `$(…)`,
//! backticks and `$NAME` stay as they are. A line that is none of this is
//! left out and told.

use std::borrow::Cow;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// What a file says, and the lines that say nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dotenv {
    /// Names and values in the order of the file; of a name that comes twice the last counts.
    pub variables: Vec<(String, String)>,
    /// The numbers of lines that could not be read, from 1, and why; 0 is the file.
    pub problems: Vec<(usize, &'static str)>,
}

/// No file that was written by hand is larger.
const LARGEST: u64 = 1 << 20;

/// Reads a `.env` file; one that is not there says nothing. The error is a
/// sentence, also about what is no file: a pipe would never end.
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
    let about = file.metadata().map_err(|error| error.to_string())?;
    if !about.is_file() || about.len() > LARGEST {
        return Err("it is not a regular file of at most 1 MiB".to_owned());
    }
    let mut bytes = Vec::new();
    let read = file.take(LARGEST).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&bytes);
    let mut read = parse(&text);
    if matches!(text, Cow::Owned(_)) {
        // What stands for bytes that are no text is not what was meant.
        let before = read.variables.len();
        read.variables
            .retain(|(_, value)| !value.contains('\u{fffd}'));
        if read.variables.len() < before {
            read.problems
                .push((0, "a value that is not UTF-8 is left out"));
        }
    }
    Ok(read)
}

/// Reads the text of a `.env` file.
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
            Err(why) => {
                result.problems.push((number, why));
                line.len()
            }
        };
        number += rest[..used].matches('\n').count() + 1;
        rest = rest[used..].strip_prefix('\n').unwrap_or(&rest[used..]);
    }
    result
}

/// The name and the value of a line, and how much of `rest`, which begins with
/// the line, they take up.
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
    let (name, value) = body.split_once('=').ok_or("there is no `=` in it")?;
    let name = name.trim_end();
    let first = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !first || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Err("what stands before `=` is not a name");
    }
    if line.contains('\0') {
        return Err("it contains a NUL");
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
        return Err("there is something behind the closing quote");
    }
    Ok(Some((name, value, start + length + after.len())))
}

/// A value without quotes ends at its line, or at a comment that a blank precedes.
fn bare(text: &str) -> &str {
    let comment = text
        .char_indices()
        .find(|(at, c)| *c == '#' && (*at == 0 || text[..*at].ends_with([' ', '\t'])));
    text[..comment.map_or(text.len(), |(at, _)| at)].trim_end()
}

/// A quoted value and the length of its text, quotes included.
fn quoted(text: &str, quote: char) -> Result<(String, usize), &'static str> {
    let mut value = String::new();
    let mut characters = text.char_indices().skip(1);
    while let Some((at, c)) = characters.next() {
        match c {
            _ if c == quote => return Ok((value, at + 1)),
            '\0' => return Err("it contains a NUL"),
            '\\' if quote == '"' => match characters.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, 't')) => value.push('\t'),
                Some((_, 'r')) => value.push('\r'),
                Some((_, escaped @ ('"' | '\\' | '$'))) => value.push(escaped),
                Some((_, other)) => value.extend(['\\', other]),
                None => return Err("its quote is never closed"),
            },
            other => value.push(other),
        }
    }
    Err("its quote is never closed")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_of_every_kind_are_read() {
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
    fn what_says_nothing_is_told_and_the_rest_still_counts() {
        let text = "no equals\n1A=x\nA B=x\n=x\nX=\"open\nOK=1\nY='a' b\nZ=\0\nLAST=2";
        let read = parse(text);
        let names: Vec<_> = read.variables.iter().map(|(k, _)| k.as_str()).collect();
        assert_eq!(names, ["OK", "LAST"]);
        let lines: Vec<_> = read.problems.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [1, 2, 3, 4, 5, 7, 8]);
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "[A-Z=\"'\\\\#\n \r$a\u{e9}\0]{0,60}") {
            for (name, value) in parse(&text).variables {
                prop_assert!(!name.is_empty() && !value.contains('\0'));
            }
        }

        #[test]
        fn a_quoted_value_reads_back(value in "[^'\0]*") {
            let read = parse(&format!("X='{value}'\nY=1\n"));
            prop_assert_eq!(&read.variables[0].1, &value);
            prop_assert_eq!(&read.variables[1].1, "1");
        }
    }
}
