//! `grep`.

use std::fmt::Write as _;

use regex::bytes::{Regex, RegexBuilder};

use super::Ran;
use super::options::{Options, fail};
use super::text::lines;
use crate::shell::io::Io;
use crate::shell::meter::Halt;

/// How large a pattern may become, and the longest line that is looked at: together they
/// bound how long one look takes.
const PATTERN: usize = 64 * 1024;
const LINE: usize = 64 * 1024;

/// 0 if something was found, 1 if not, 2 if something was wrong.
pub(super) async fn grep(io: &mut Io<'_, '_>, args: &[String]) -> Ran {
    match search(io, args).await {
        Err(Halt::Fail(what)) => {
            io.complain(&what);
            Ok(2)
        }
        outcome => outcome,
    }
}

async fn search(io: &mut Io<'_, '_>, args: &[String]) -> Ran {
    let options = Options::read(args, "ivnclqrREFowxhH", "e")?;
    let mut rest = options.rest.iter().copied();
    let pattern = options.value('e').or_else(|| rest.next());
    let pattern = pattern.ok_or_else(|| fail("it takes a pattern"))?;
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
                wrong |= io.or_complain(Err(halt))? != 0;
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
            if line.len() > LINE {
                return Err(fail(format!("{path}: a line is longer than {LINE} bytes")));
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

/// The files to look at, and whether something is wrong with one.
fn inputs(io: &mut Io<'_, '_>, named: &[&str], recursive: bool) -> (Vec<String>, bool) {
    if named.is_empty() && !recursive {
        return (vec!["-".to_owned()], false);
    }
    let named = if named.is_empty() { &["."] } else { named };
    let mut paths = Vec::new();
    let mut wrong = false;
    for path in named {
        let is_folder = match io.resolve(path) {
            Ok(resolved) if *path != "-" => io.files().is_folder(&resolved).then_some(resolved),
            _ => None,
        };
        match is_folder {
            None => paths.push((*path).to_owned()),
            Some(_) if !recursive => {
                io.complain(&format!("{path}: it is a folder"));
                wrong = true;
            }
            Some(folder) => {
                let files = io.files();
                let below = files.below(&folder).into_iter();
                let skip = if folder.is_empty() {
                    0
                } else {
                    folder.len() + 1
                };
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
        // Classes of all letters there are would not fit the bound.
        .unicode(false)
        .size_limit(PATTERN)
        .dfa_size_limit(PATTERN * 16)
        .nest_limit(50)
        .build();
    regex.map_err(|error| fail(format!("the pattern is no good: {}", last_line(&error))))
}

fn last_line(error: &regex::Error) -> String {
    let text = error.to_string();
    text.lines().last().unwrap_or_default().to_owned()
}

/// A basic pattern as an extended one: there, these signs mean more with a backslash, and
/// here without.
fn basic(pattern: &str) -> String {
    const SIGNS: &str = "+?|(){}";
    let mut extended = String::new();
    let mut signs = pattern.chars();
    while let Some(sign) = signs.next() {
        match sign {
            '\\' => match signs.next() {
                Some(next) if SIGNS.contains(next) => extended.push(next),
                Some(next) => extended.extend(['\\', next]),
                None => extended.push_str(r"\\"),
            },
            sign if SIGNS.contains(sign) => extended.extend(['\\', sign]),
            sign => extended.push(sign),
        }
    }
    extended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_basic_pattern_means_what_it_does_elsewhere() {
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
