//! The shell command `grep`.

use std::fmt::Write as _;

use regex::bytes::{Regex, RegexBuilder};

use super::CommandResult;
use super::options::{Options, fail};
use super::text::lines;
use crate::shell::io::Io;
use crate::shell::meter::Halt;

/// Limits of the compiled pattern and of a line, in bytes. Together they bound the cost
/// of one match.
const MAX_PATTERN_LEN: usize = 64 * 1024;
const MAX_LINE_LEN: usize = 64 * 1024;

/// Exits with 0 if a line matched, 1 if none did, 2 on errors.
pub(super) async fn grep(io: &mut Io<'_, '_>, args: &[String]) -> CommandResult {
    match search(io, args).await {
        Err(Halt::Fail(what)) => {
            io.report_error(&what);
            Ok(2)
        }
        outcome => outcome,
    }
}

async fn search(io: &mut Io<'_, '_>, args: &[String]) -> CommandResult {
    let options = Options::parse(args, "ivnclqrREFowxhH", "e")?;
    let mut rest = options.operands.iter().copied();
    let pattern = options.value('e').or_else(|| rest.next());
    let pattern = pattern.ok_or_else(|| fail("expected a pattern"))?;
    let regex = regex(pattern, &options)?;
    let named: Vec<&str> = rest.collect();
    let recursive = options.has('r') || options.has('R');
    let (paths, mut wrong) = inputs(io, &named, recursive);
    let with_names = !options.has('h') && (options.has('H') || recursive || named.len() > 1);
    let mut found = false;
    for path in paths {
        let bytes = match io.read(&path).await {
            Ok(bytes) => bytes,
            Err(halt) => {
                wrong |= io.report_failure(Err(halt))? != 0;
                continue;
            }
        };
        let name = if with_names {
            format!("{path}:")
        } else {
            String::new()
        };
        let mut count = 0_usize;
        for (index, line) in lines(&bytes).enumerate() {
            if line.len() > MAX_LINE_LEN {
                return Err(fail(format!(
                    "{path}: a line is longer than {MAX_LINE_LEN} bytes"
                )));
            }
            io.spend(line.len() * 8 + 8).await?;
            if regex.is_match(line) == options.has('v') {
                continue;
            }
            found = true;
            count += 1;
            if options.has('q') {
                return Ok(0);
            }
            if options.has('l') {
                break;
            }
            if options.has('c') {
                continue;
            }
            let mut start = name.clone();
            if options.has('n') {
                let _ = write!(start, "{}:", index + 1);
            }
            if options.has('o') && !options.has('v') {
                for part in regex.find_iter(line).filter(|part| !part.is_empty()) {
                    let part = [start.as_bytes(), part.as_bytes(), b"\n"].concat();
                    io.print(&part).await?;
                }
            } else {
                io.print(&[start.as_bytes(), line, b"\n"].concat()).await?;
            }
        }
        if options.has('l') && count > 0 {
            io.line(&path).await?;
        } else if options.has('c') && !options.has('l') {
            io.line(&format!("{name}{count}")).await?;
        }
    }
    Ok(match (wrong, found) {
        (true, _) => 2,
        (false, true) => 0,
        (false, false) => 1,
    })
}

/// The files to search, and whether an operand was rejected.
fn inputs(io: &mut Io<'_, '_>, named: &[&str], recursive: bool) -> (Vec<String>, bool) {
    if named.is_empty() && !recursive {
        return (vec!["-".to_owned()], false);
    }
    let named = if named.is_empty() { &["."] } else { named };
    let mut paths = Vec::new();
    let mut wrong = false;
    for path in named {
        let is_dir = match io.resolve(path) {
            Ok(resolved) if *path != "-" => io.files().is_dir(&resolved).then_some(resolved),
            _ => None,
        };
        match is_dir {
            None => paths.push((*path).to_owned()),
            Some(_) if !recursive => {
                io.report_error(&format!("{path}: is a directory"));
                wrong = true;
            }
            Some(dir) => {
                let files = io.files();
                let below = files.below(&dir).into_iter();
                let skip = if dir.is_empty() { 0 } else { dir.len() + 1 };
                let path = path.trim_end_matches('/');
                for file in below.filter(|file| files.is_file(file)) {
                    let file = &file[skip..];
                    paths.push(if path == "." {
                        file.to_owned()
                    } else {
                        format!("{path}/{file}")
                    });
                }
            }
        }
    }
    (paths, wrong)
}

fn regex(pattern: &str, options: &Options<'_>) -> Result<Regex, Halt> {
    let mut pattern = if options.has('F') {
        regex::escape(pattern)
    } else if options.has('E') {
        pattern.to_owned()
    } else {
        basic(pattern)
    };
    if options.has('x') {
        pattern = format!("^(?:{pattern})$");
    }
    if options.has('w') {
        pattern = format!(r"\b(?:{pattern})\b");
    }
    let regex = RegexBuilder::new(&pattern)
        .case_insensitive(options.has('i'))
        // Unicode classes would exceed the size limit.
        .unicode(false)
        .size_limit(MAX_PATTERN_LEN)
        .dfa_size_limit(MAX_PATTERN_LEN * 16)
        .nest_limit(50)
        .build();
    regex.map_err(|error| fail(format!("invalid pattern: {}", last_line(&error))))
}

fn last_line(error: &regex::Error) -> String {
    let text = error.to_string();
    text.lines().last().unwrap_or_default().to_owned()
}

/// Converts a basic regular expression to an extended one by swapping the escaping of
/// the special characters.
fn basic(pattern: &str) -> String {
    const SPECIAL: &str = "+?|(){}";
    let mut extended = String::new();
    let mut chars = pattern.chars();
    while let Some(ch) = chars.next() {
        match ch {
            '\\' => match chars.next() {
                Some(next) if SPECIAL.contains(next) => extended.push(next),
                Some(next) => extended.extend(['\\', next]),
                None => extended.push_str(r"\\"),
            },
            ch if SPECIAL.contains(ch) => extended.extend(['\\', ch]),
            ch => extended.push(ch),
        }
    }
    extended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn basic_patterns_are_converted() {
        for (basic_pattern, extended) in [
            ("a+b", r"a\+b"),
            (r"a\+b", "a+b"),
            (r"\(a\|b\)", "(a|b)"),
            ("f(x)", r"f\(x\)"),
            (r"a\.b*", r"a\.b*"),
            ("\\", r"\\"),
        ] {
            assert_eq!(basic(basic_pattern), extended);
        }
    }
}
