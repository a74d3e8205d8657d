//! Names with `*` and `?`.

use super::meter::{Halt, Meter};
use crate::files::Files;
use crate::path::resolve;

/// How many names a pattern may stand for, on the way too.
const MOST: usize = 10_000;

/// A sign of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sign {
    Is(char),
    /// `?`
    One,
    /// `*`
    Any,
}

/// The paths that a pattern stands for, in order; none if there is no such file.
pub(crate) fn glob(
    pattern: &[Sign],
    cwd: &str,
    files: &Files,
    meter: &mut Meter,
) -> Result<Vec<String>, Halt> {
    let mut found = vec![String::new()];
    let mut parts = pattern.split(|sign| *sign == Sign::Is('/')).peekable();
    while let Some(part) = parts.next() {
        let end = if parts.peek().is_some() { "/" } else { "" };
        let mut next = Vec::new();
        for before in found {
            if let Some(name) = plain(part) {
                meter.charge(before.len())?;
                next.push(format!("{before}{name}{end}"));
                continue;
            }
            let Ok(folder) = resolve(cwd, &before) else {
                continue;
            };
            let names = files.names(&folder);
            meter.charge(names.len() * 100)?;
            let hidden = part.first() == Some(&Sign::Is('.'));
            for name in names {
                let fits = (hidden || !name.starts_with('.')) && matches(part, &name);
                // Only a folder has something below it.
                if fits && (end.is_empty() || files.is_folder(&crate::path::join(&folder, &name))) {
                    next.push(format!("{before}{name}{end}"));
                }
            }
            if next.len() > MOST {
                return Err(Halt::TooMuch("a pattern stands for too many names"));
            }
        }
        found = next;
    }
    found.retain(|path| resolve(cwd, path).is_ok_and(|path| files.exists(&path)));
    found.sort();
    Ok(found)
}

fn plain(part: &[Sign]) -> Option<String> {
    let plain = |sign: &Sign| match sign {
        Sign::Is(sign) => Some(*sign),
        Sign::One | Sign::Any => None,
    };
    part.iter().map(plain).collect()
}

/// Whether a name fits. Goes back to the last `*` alone, so it takes at most the product
/// of both lengths.
fn matches(pattern: &[Sign], name: &str) -> bool {
    let name: Vec<char> = name.chars().collect();
    let (mut at, mut in_name) = (0, 0);
    let mut last_any = None;
    while in_name < name.len() {
        match pattern.get(at) {
            Some(Sign::Any) => {
                last_any = Some((at, in_name));
                at += 1;
                continue;
            }
            Some(Sign::One) => {
                at += 1;
                in_name += 1;
                continue;
            }
            Some(Sign::Is(sign)) if *sign == name[in_name] => {
                at += 1;
                in_name += 1;
                continue;
            }
            _ => {}
        }
        let Some((any, from)) = last_any else {
            return false;
        };
        last_any = Some((any, from + 1));
        at = any + 1;
        in_name = from + 1;
    }
    pattern[at..].iter().all(|sign| *sign == Sign::Any)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks_fit_what_they_should() {
        for (pattern, name, fits) in [
            ("*", "", true),
            ("*.txt", "a.txt", true),
            ("*.txt", "a.txt.gz", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b*", "xxbxxaxx", false),
            ("a", "ab", false),
        ] {
            let pattern: Vec<_> = pattern
                .chars()
                .map(|sign| match sign {
                    '*' => Sign::Any,
                    '?' => Sign::One,
                    sign => Sign::Is(sign),
                })
                .collect();
            assert_eq!(matches(&pattern, name), fits, "{pattern:?} {name}");
        }
    }
}
