//! Decodes JavaScript strings and templates: quotes and escapes.

use crate::metadata::error::Problem;

/// Decodes a string literal with its quotes. Offsets in errors are relative to the opening quote.
pub(super) fn decode(source: &str) -> Result<String, Problem> {
    let mut characters = source.chars();
    characters.next();
    characters.next_back();
    let content = characters.as_str();
    let mut decoded = String::with_capacity(content.len());
    let mut rest = content;
    while let Some(index) = rest.find(['\\', '\r']) {
        decoded.push_str(&rest[..index]);
        let at = 1 + content.len() - rest.len() + index;
        let special = &rest[index..];
        rest = if let Some(after) = special.strip_prefix('\r') {
            // Only templates contain line breaks, which JavaScript normalizes to `\n`.
            decoded.push('\n');
            after.strip_prefix('\n').unwrap_or(after)
        } else {
            let (character, length) = escape(special).map_err(|problem| problem.shifted(at))?;
            decoded.extend(character);
            &special[length..]
        };
    }
    decoded.push_str(rest);
    Ok(decoded)
}

/// Decodes the escape at the start of a text, and returns its length in bytes.
fn escape(text: &str) -> Result<(Option<char>, usize), Problem> {
    let Some(kind) = text[1..].chars().next() else {
        return Err(invalid_escape());
    };
    let length = 1 + kind.len_utf8();
    let simple = match kind {
        'b' => '\x08',
        'f' => '\x0c',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\x0b',
        '\n' | '\u{2028}' | '\u{2029}' => return Ok((None, length)),
        '\r' => {
            let both = text[2..].starts_with('\n');
            return Ok((None, length + usize::from(both)));
        }
        '0' if !text[2..].starts_with(|c: char| c.is_ascii_digit()) => '\0',
        '0'..='9' => {
            return Err(
                Problem::new(0, "an octal escape is not allowed in a module")
                    .hint(r"write the character's number as `\xXX`"),
            );
        }
        'x' => {
            let code = hexadecimal(text, 2, 2)?;
            return Ok((Some(single(code)?), 4));
        }
        'u' => return unicode(text),
        other => other,
    };
    Ok((Some(simple), length))
}

/// Decodes `\u{…}`, `\uXXXX`, or a surrogate pair of the latter.
fn unicode(text: &str) -> Result<(Option<char>, usize), Problem> {
    if let Some(braced) = text[2..].strip_prefix('{') {
        let digits = braced
            .find('}')
            .map(|end| &braced[..end])
            .ok_or_else(invalid_escape)?;
        let significant = digits.trim_start_matches('0');
        let valid = !digits.is_empty() && significant.len() <= 6;
        if !valid || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(invalid_escape());
        }
        let code = u32::from_str_radix(digits, 16).or_else(|_| {
            // Leading zeros may exceed the range of a number.
            u32::from_str_radix(&format!("0{significant}"), 16)
        });
        return Ok((
            Some(single(code.map_err(|_| invalid_escape())?)?),
            digits.len() + 4,
        ));
    }
    let first = hexadecimal(text, 2, 4)?;
    if (0xd800..0xdc00).contains(&first) && text[6..].starts_with("\\u") {
        let second = hexadecimal(text, 8, 4)?;
        if (0xdc00..0xe000).contains(&second) {
            let code = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
            return Ok((Some(single(code)?), 12));
        }
    }
    Ok((Some(single(first)?), 6))
}

fn hexadecimal(text: &str, from: usize, digits: usize) -> Result<u32, Problem> {
    let written = text.get(from..from + digits).unwrap_or_default();
    if written.is_empty() || !written.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(invalid_escape());
    }
    u32::from_str_radix(written, 16).map_err(|_| invalid_escape())
}

fn single(code: u32) -> Result<char, Problem> {
    match char::from_u32(code) {
        Some(character) => Ok(character),
        None if code <= 0x0010_ffff => Err(Problem::new(
            0,
            "half of a surrogate pair is not a character",
        )
        .hint("write the character itself")),
        None => Err(invalid_escape()),
    }
}

fn invalid_escape() -> Problem {
    Problem::new(0, "not valid JavaScript: invalid escape")
}
