//! Decodes Python string literals: prefixes, quotes and escapes.

use crate::metadata::error::Problem;

/// The parts of a string literal.
pub(super) struct Parts<'t> {
    raw: bool,
    pub(super) bytes: bool,
    pub(super) formatted: bool,
    /// The byte offset of the content.
    at: usize,
    content: &'t str,
}

impl<'t> Parts<'t> {
    /// Splits a string literal, from its prefix to its closing quotes.
    pub(super) fn parse(source: &'t str) -> Option<Self> {
        let quote = source.find(['"', '\''])?;
        let prefix = source[..quote].to_ascii_lowercase();
        let rest = &source[quote..];
        let mark = ["\"\"\"", "'''", "\"", "'"]
            .into_iter()
            .find(|mark| rest.starts_with(mark))?;
        let content = rest.strip_prefix(mark)?.strip_suffix(mark)?;
        Some(Self {
            raw: prefix.contains('r'),
            bytes: prefix.contains('b'),
            formatted: prefix.contains(['f', 't']),
            at: quote + mark.len(),
            content,
        })
    }

    /// Decodes the string. Offsets in errors are relative to the prefix.
    pub(super) fn decode(&self) -> Result<String, Problem> {
        // Python normalizes all line breaks to `\n`.
        let mut decoded = String::with_capacity(self.content.len());
        let mut rest = self.content;
        while let Some(index) = rest.find(['\\', '\r']) {
            decoded.push_str(&rest[..index]);
            let at = self.at + self.content.len() - rest.len() + index;
            let special = &rest[index..];
            rest = if let Some(after) = special.strip_prefix('\r') {
                decoded.push('\n');
                after.strip_prefix('\n').unwrap_or(after)
            } else if self.raw {
                decoded.push('\\');
                &special[1..]
            } else {
                let (character, length) = escape(special).map_err(|problem| problem.shifted(at))?;
                match character {
                    Escape::Character(character) => decoded.push(character),
                    Escape::Nothing => {}
                    Escape::AsWritten => decoded.push_str(&special[..length]),
                }
                &special[length..]
            };
        }
        decoded.push_str(rest);
        Ok(decoded)
    }
}

enum Escape {
    Character(char),
    Nothing,
    AsWritten,
}

/// Decodes the escape at the start of a text, and returns its length in bytes.
fn escape(text: &str) -> Result<(Escape, usize), Problem> {
    let Some(kind) = text[1..].chars().next() else {
        return Ok((Escape::AsWritten, 1));
    };
    let simple = match kind {
        '\\' | '\'' | '"' => kind,
        'a' => '\x07',
        'b' => '\x08',
        'f' => '\x0c',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\x0b',
        '\n' => return Ok((Escape::Nothing, 2)),
        '\r' => {
            let length = if text[2..].starts_with('\n') { 3 } else { 2 };
            return Ok((Escape::Nothing, length));
        }
        'x' => return coded(text, 2, 2),
        'u' => return coded(text, 2, 4),
        'U' => return coded(text, 2, 8),
        '0'..='7' => {
            let digits = text[1..]
                .bytes()
                .take(3)
                .take_while(|b| (b'0'..=b'7').contains(b));
            let length = 1 + digits.count();
            let code = u32::from_str_radix(&text[1..length], 8).unwrap_or_default();
            return character(code, length);
        }
        'N' => {
            return Err(
                Problem::new(0, r"a character's name in `\N{…}` is not supported")
                    .hint(r"write the character itself, or its number as `\uXXXX`")
                    .unsupported(),
            );
        }
        // Python keeps unknown escapes unchanged.
        _ => return Ok((Escape::AsWritten, 1)),
    };
    Ok((Escape::Character(simple), 2))
}

/// Decodes an escape with a fixed number of hexadecimal digits.
fn coded(text: &str, from: usize, digits: usize) -> Result<(Escape, usize), Problem> {
    let written = text.get(from..from + digits).unwrap_or_default();
    if written.is_empty() || !written.bytes().all(|b| b.is_ascii_hexdigit()) {
        let message = format!("not valid Python: this escape needs {digits} hexadecimal digits");
        return Err(Problem::new(0, message));
    }
    let code = u32::from_str_radix(written, 16).unwrap_or(u32::MAX);
    character(code, from + digits)
}

fn character(code: u32, length: usize) -> Result<(Escape, usize), Problem> {
    match char::from_u32(code) {
        Some(character) => Ok((Escape::Character(character), length)),
        None if code <= 0x0010_ffff => Err(Problem::new(
            0,
            "half of a surrogate pair is not a character",
        )
        .hint(r"write the character itself, or its number as `\UXXXXXXXX`")),
        None => Err(Problem::new(
            0,
            "not valid Python: there is no such character",
        )),
    }
}
