//! Pathname expansion with `*` and `?`.

use super::meter::{Halt, Meter};
use crate::files::Files;
use crate::path::resolve;

/// Maximum number of matches, including intermediate ones.
const MAX_MATCHES: usize = 10_000;

/// An element of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatternChar {
    Literal(char),
    /// `?`
    AnyChar,
    /// `*`
    AnyString,
}

/// The paths that match a pattern, in order.
pub(crate) fn glob(
    pattern: &[PatternChar],
    cwd: &str,
    files: &Files,
    meter: &mut Meter,
) -> Result<Vec<String>, Halt> {
    let mut found = vec![String::new()];
    let mut parts = pattern
        .split(|ch| *ch == PatternChar::Literal('/'))
        .peekable();
    while let Some(part) = parts.next() {
        let end = if parts.peek().is_some() { "/" } else { "" };
        let mut next = Vec::new();
        for before in found {
            if let Some(name) = literal(part) {
                meter.charge(before.len())?;
                next.push(format!("{before}{name}{end}"));
                continue;
            }
            let Ok(dir) = resolve(cwd, &before) else {
                continue;
            };
            let names = files.names(&dir);
            meter.charge(names.len() * 100)?;
            let hidden = part.first() == Some(&PatternChar::Literal('.'));
            for name in names {
                let fits = (hidden || !name.starts_with('.')) && matches(part, &name);
                // Only directories have children.
                if fits && (end.is_empty() || files.is_dir(&crate::path::join(&dir, &name))) {
                    next.push(format!("{before}{name}{end}"));
                }
            }
            if next.len() > MAX_MATCHES {
                return Err(Halt::LimitExceeded("a pattern matches too many names"));
            }
        }
        found = next;
    }
    found.retain(|path| resolve(cwd, path).is_ok_and(|path| files.exists(&path)));
    found.sort();
    Ok(found)
}

fn literal(part: &[PatternChar]) -> Option<String> {
    let plain = |ch: &PatternChar| match ch {
        PatternChar::Literal(ch) => Some(*ch),
        PatternChar::AnyChar | PatternChar::AnyString => None,
    };
    part.iter().map(plain).collect()
}

/// Matches a name against a pattern. Backtracks only to the last `*`, so the cost is at
/// most the product of both lengths.
fn matches(pattern: &[PatternChar], name: &str) -> bool {
    let name: Vec<char> = name.chars().collect();
    let (mut at, mut in_name) = (0, 0);
    let mut last_any = None;
    while in_name < name.len() {
        match pattern.get(at) {
            Some(PatternChar::AnyString) => {
                last_any = Some((at, in_name));
                at += 1;
                continue;
            }
            Some(PatternChar::AnyChar) => {
                at += 1;
                in_name += 1;
                continue;
            }
            Some(PatternChar::Literal(ch)) if *ch == name[in_name] => {
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
    pattern[at..].iter().all(|ch| *ch == PatternChar::AnyString)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_match() {
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
                .map(|ch| match ch {
                    '*' => PatternChar::AnyString,
                    '?' => PatternChar::AnyChar,
                    ch => PatternChar::Literal(ch),
                })
                .collect();
            assert_eq!(matches(&pattern, name), fits, "{pattern:?} {name}");
        }
    }
}
