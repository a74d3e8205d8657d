//! Patterns with `*`, `?` and `[…]`, for pathnames, `case` and `${…}`.

use regex::Regex;

use super::meter::{Halt, Meter};
use crate::files::Files;
use crate::path::{join, resolve};

/// Maximum number of matches, including intermediate ones.
pub(crate) const MAX_MATCHES: usize = 10_000;
/// Work of compiling a pattern, and of each of its characters.
const COMPILE_COST: (usize, usize) = (2000, 50);

/// Maximum length of `[:name:]`.
const MAX_CLASS_NAME: usize = 12;

/// An expanded text: each character, and whether it may be a wildcard because it is not quoted.
pub(crate) type Field = Vec<(char, bool)>;

/// The text of a field.
pub(crate) fn text(field: &[(char, bool)]) -> String {
    field.iter().map(|(ch, _)| ch).collect()
}

/// Whether a field contains wildcards.
pub(crate) fn is_pattern(field: &[(char, bool)]) -> bool {
    field
        .iter()
        .any(|(ch, active)| *active && "*?[".contains(*ch))
}

/// Compiles a pattern between two regular expressions.
pub(crate) fn compile(
    (before, after): (&str, &str),
    field: &[(char, bool)],
    is_lazy: bool,
    meter: &mut Meter,
) -> Result<Regex, Halt> {
    meter.charge(COMPILE_COST.0 + COMPILE_COST.1 * field.len())?;
    let mut source = format!("(?s){before}");
    let last_bracket = field.iter().rposition(|it| it.0 == ']');
    let after_classes = last_bracket.map_or(field.len(), |at| field.len() - 1 - at);
    let mut rest = field;
    while let [(ch, active), more @ ..] = rest {
        rest = more;
        match ch {
            '*' if *active => source.push_str(if is_lazy { ".*?" } else { ".*" }),
            '?' if *active => source.push('.'),
            '[' if *active && more.len() > after_classes => match class(more) {
                Some((class, end)) => {
                    source.push_str(&class);
                    rest = end;
                }
                None => source.push_str(r"\["),
            },
            ch => source.push_str(&regex::escape(&ch.to_string())),
        }
    }
    source.push_str(after);
    Regex::new(&source).map_err(|_| Halt::Fail(format!("invalid pattern `{}`", text(field))))
}

/// Whether a pattern matches a whole text.
pub(crate) fn matches(
    pattern: &[(char, bool)],
    subject: &str,
    meter: &mut Meter,
) -> Result<bool, Halt> {
    if !is_pattern(pattern) {
        return Ok(text(pattern) == subject);
    }
    Ok(compile((r"\A", r"\z"), pattern, false, meter)?.is_match(subject))
}

/// The class of characters after a `[`, and the rest after its `]`.
fn class(field: &[(char, bool)]) -> Option<(String, &[(char, bool)])> {
    let mut source = String::from("[");
    let mut at = 0;
    if matches!(field.first(), Some(('!' | '^', _))) {
        source.push('^');
        at = 1;
    }
    let first = at;
    loop {
        let (ch, _) = *field.get(at)?;
        match ch {
            ']' if at > first => {
                source.push(']');
                return Some((source, &field[at + 1..]));
            }
            // `[:alpha:]` and the like.
            '[' if field.get(at + 1).is_some_and(|it| it.0 == ':') => {
                let name = field[at..].iter().take(MAX_CLASS_NAME);
                let length = name.map(|it| it.0).position(|ch| ch == ']')?;
                source.push_str(&text(&field[at..=at + length]));
                at += length;
            }
            '-' => source.push('-'),
            ch => source.push_str(&regex::escape(&ch.to_string())),
        }
        at += 1;
    }
}

/// The paths that match a pattern, in order.
pub(crate) fn glob(
    pattern: &[(char, bool)],
    cwd: &str,
    files: &Files,
    meter: &mut Meter,
) -> Result<Vec<String>, Halt> {
    let mut found = vec![String::new()];
    let mut parts = pattern.split(|(ch, _)| *ch == '/').peekable();
    while let Some(part) = parts.next() {
        let end = if parts.peek().is_some() { "/" } else { "" };
        let mut next = Vec::new();
        if !is_pattern(part) {
            for before in found {
                meter.charge(before.len())?;
                next.push(format!("{before}{}{end}", text(part)));
            }
            found = next;
            continue;
        }
        let is_hidden = part.first().is_some_and(|it| it.0 == '.');
        let regex = compile((r"\A", r"\z"), part, false, meter)?;
        for before in found {
            let Ok(dir) = resolve(cwd, &before) else {
                continue;
            };
            let names = files.names(&dir);
            meter.charge(names.len() * 100)?;
            for name in names {
                let fits = (is_hidden || !name.starts_with('.')) && regex.is_match(&name);
                // Only directories have children.
                if fits && (end.is_empty() || files.is_dir(&join(&dir, &name))) {
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
