//! Decodes string literals of Python, JavaScript and TypeScript: prefixes, quotes and escapes.

use super::error::Problem;
use super::syntax::Grammar;

/// The parts of a string literal.
pub(super) struct Literal<'t> {
    grammar: Grammar,
    raw: bool,
    pub(super) bytes: bool,
    pub(super) formatted: bool,
    /// The byte offset of the content.
    at: usize,
    content: &'t str,
}

impl<'t> Literal<'t> {
    /// Splits a string literal, from its prefix to its closing quotes.
    pub(super) fn parse(source: &'t str, grammar: Grammar) -> Option<Self> {
        let quote = source.find(['"', '\'', '`'])?;
        let prefix = source[..quote].to_ascii_lowercase();
        let rest = &source[quote..];
        let long = ["\"\"\"", "'''"].into_iter();
        let long = long.filter(|_| grammar == Grammar::Python);
        let mark = long
            .chain(["\"", "'", "`"])
            .find(|mark| rest.starts_with(mark))?;
        let content = rest.strip_prefix(mark)?.strip_suffix(mark)?;
        Some(Self {
            grammar,
            raw: prefix.contains('r'),
            bytes: prefix.contains('b'),
            formatted: prefix.contains(['f', 't']),
            at: quote + mark.len(),
            content,
        })
    }

    /// Decodes the string. Offsets in errors are relative to the prefix.
    pub(super) fn decode(&self) -> Result<String, Problem> {
        let mut decoded = String::with_capacity(self.content.len());
        let mut rest = self.content;
        while let Some(index) = rest.find(['\\', '\r']) {
            decoded.push_str(&rest[..index]);
            let at = self.at + self.content.len() - rest.len() + index;
            let special = &rest[index..];
            rest = if let Some(after) = special.strip_prefix('\r') {
                // Both languages normalize line breaks to `\n`.
                decoded.push('\n');
                after.strip_prefix('\n').unwrap_or(after)
            } else if self.raw {
                decoded.push('\\');
                &special[1..]
            } else {
                let escape = escape(special, self.grammar);
                let (character, length) = escape.map_err(|problem| problem.shifted(at))?;
                decoded.extend(character);
                &special[length..]
            };
        }
        decoded.push_str(rest);
        Ok(decoded)
    }
}

/// The character of an escape, if it stands for one, and its length in bytes.
type Escape = (Option<char>, usize);

/// Decodes the escape at the start of a text.
fn escape(text: &str, grammar: Grammar) -> Result<Escape, Problem> {
    let is_python = grammar == Grammar::Python;
    let Some(kind) = text[1..].chars().next() else {
        return if is_python {
            Ok((Some('\\'), 1))
        } else {
            Err(invalid_escape())
        };
    };
    let length = 1 + kind.len_utf8();
    let simple = match kind {
        '\\' | '\'' | '"' => kind,
        'b' => '\x08',
        'f' => '\x0c',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\x0b',
        '\n' => return Ok((None, length)),
        '\r' => {
            let both = text[2..].starts_with('\n');
            return Ok((None, length + usize::from(both)));
        }
        'x' => return Ok((Some(coded(text, 2, grammar)?), 4)),
        'u' if is_python => return Ok((Some(coded(text, 4, grammar)?), 6)),
        'u' => return javascript_unicode(text),
        'a' if is_python => '\x07',
        'U' if is_python => return Ok((Some(coded(text, 8, grammar)?), 10)),
        '0'..='7' if is_python => {
            let digits = text[1..].bytes().take(3);
            let digits = digits.take_while(|digit| (b'0'..=b'7').contains(digit));
            let length = 1 + digits.count();
            let code = u32::from_str_radix(&text[1..length], 8).unwrap_or_default();
            return Ok((Some(character(code, grammar)?), length));
        }
        'N' if is_python => {
            return Err(
                Problem::new(0, r"a character's name in `\N{…}` is not supported")
                    .hint(r"write the character itself, or its number as `\uXXXX`")
                    .unsupported(),
            );
        }
        // Python keeps unknown escapes unchanged.
        _ if is_python => return Ok((Some('\\'), 1)),
        '\u{2028}' | '\u{2029}' => return Ok((None, length)),
        '0' if !text[2..].starts_with(|c: char| c.is_ascii_digit()) => '\0',
        '0'..='9' => {
            return Err(
                Problem::new(0, "an octal escape is not allowed in a module")
                    .hint(r"write the character's number as `\xXX`"),
            );
        }
        other => other,
    };
    Ok((Some(simple), length))
}

/// Decodes `\u{…}`, `\uXXXX`, or a surrogate pair of the latter.
fn javascript_unicode(text: &str) -> Result<Escape, Problem> {
    let grammar = Grammar::JavaScript;
    if let Some(braced) = text[2..].strip_prefix('{') {
        let end = braced.find('}').ok_or_else(invalid_escape)?;
        let significant = braced[..end].trim_start_matches('0');
        if end == 0 || significant.len() > 6 {
            return Err(invalid_escape());
        }
        let code = hexadecimal(&format!("0{significant}")).ok_or_else(invalid_escape)?;
        return Ok((Some(character(code, grammar)?), end + 4));
    }
    let digits = |from: usize| text.get(from..from + 4).and_then(hexadecimal);
    let first = digits(2).ok_or_else(invalid_escape)?;
    if (0xd800..0xdc00).contains(&first) && text[6..].starts_with("\\u") {
        let second = digits(8).ok_or_else(invalid_escape)?;
        if (0xdc00..0xe000).contains(&second) {
            let code = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
            return Ok((Some(character(code, grammar)?), 12));
        }
    }
    Ok((Some(character(first, grammar)?), 6))
}

/// Decodes the digits of an escape such as `\xXX`.
fn coded(text: &str, digits: usize, grammar: Grammar) -> Result<char, Problem> {
    let code = text.get(2..2 + digits).and_then(hexadecimal);
    let code = code.ok_or_else(|| match grammar {
        Grammar::Python => {
            let what = format!("this escape needs {digits} hexadecimal digits");
            Problem::new(0, format!("not valid Python: {what}"))
        }
        Grammar::JavaScript | Grammar::TypeScript => invalid_escape(),
    })?;
    character(code, grammar)
}

fn hexadecimal(digits: &str) -> Option<u32> {
    let are_digits = digits.bytes().all(|b| b.is_ascii_hexdigit());
    are_digits.then(|| u32::from_str_radix(digits, 16).ok())?
}

fn character(code: u32, grammar: Grammar) -> Result<char, Problem> {
    let is_python = grammar == Grammar::Python;
    char::from_u32(code).ok_or_else(|| match code {
        0..=0x0010_ffff => {
            let hint = if is_python {
                r"write the character itself, or its number as `\UXXXXXXXX`"
            } else {
                "write the character itself"
            };
            Problem::new(0, "half of a surrogate pair is not a character").hint(hint)
        }
        _ if is_python => Problem::new(0, "not valid Python: there is no such character"),
        _ => invalid_escape(),
    })
}

fn invalid_escape() -> Problem {
    Problem::new(0, "not valid JavaScript: invalid escape")
}
