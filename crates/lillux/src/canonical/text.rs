//! Writes the strings and numbers of canonical JSON.

use std::io::Write;

use super::Reason;

/// Writes a string in quotes, as ASCII.
pub(super) fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for c in text.chars() {
        match c {
            '"' => out.extend_from_slice(br#"\""#),
            '\\' => out.extend_from_slice(br"\\"),
            '\n' => out.extend_from_slice(br"\n"),
            '\r' => out.extend_from_slice(br"\r"),
            '\t' => out.extend_from_slice(br"\t"),
            '\u{8}' => out.extend_from_slice(br"\b"),
            '\u{c}' => out.extend_from_slice(br"\f"),
            ' '..='~' => out.push(c as u8),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write(out, format_args!("\\u{unit:04x}"));
                }
            }
        }
    }
    out.push(b'"');
}

/// Writes a number, given as its JSON token.
pub(super) fn write_number(token: &str, out: &mut Vec<u8>) -> Result<(), Reason> {
    if token == "-0" {
        out.push(b'0');
    } else if token.bytes().any(|b| matches!(b, b'.' | b'e' | b'E')) {
        // Every JSON number is valid for `f64::from_str`, which rounds correctly.
        let value: f64 = token.parse().unwrap_or(f64::INFINITY);
        if value.is_infinite() {
            return Err(Reason::FloatOverflow);
        }
        write_float(value, out);
    } else {
        out.extend_from_slice(token.as_bytes());
    }
    Ok(())
}

/// Writes a float like Python's `repr`: shortest digits, with an exponent of at least two digits
/// if it is below -4 or above 15.
fn write_float(value: f64, out: &mut Vec<u8>) {
    if value.is_sign_negative() {
        out.push(b'-');
    }
    let scientific = shortest(value.abs());
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return write(out, format_args!("{mantissa}e{sign}{:02}", exponent.abs()));
    }
    let digits = mantissa.replace('.', "");
    match usize::try_from(exponent) {
        Err(_) => {
            let width = digits.len() + exponent.unsigned_abs() as usize - 1;
            write(out, format_args!("0.{digits:0>width$}"));
        }
        Ok(point) if point + 1 < digits.len() => {
            let (whole, fraction) = digits.split_at(point + 1);
            write(out, format_args!("{whole}.{fraction}"));
        }
        Ok(point) => {
            let width = point + 1;
            write(out, format_args!("{digits:0<width$}.0"));
        }
    }
}

/// The fewest digits that parse to `value`, as `d.ddde-n`, and of those the nearest to it. If
/// two are equally near, Python chooses the even one and `{:e}` the upper. Rounding to a fixed
/// number of digits also chooses the even one, but near a power of two the result may not parse
/// to `value`.
fn shortest(value: f64) -> String {
    let upper = format!("{value:e}");
    let digits = upper
        .bytes()
        .take_while(|&b| b != b'e')
        .filter(u8::is_ascii_digit)
        .count();
    let even = format!("{value:.*e}", digits.saturating_sub(1));
    if even.parse() == Ok(value) {
        even
    } else {
        upper
    }
}

fn write(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to memory cannot fail.
    let _ = out.write_fmt(text);
}

/// The strings and keys of a canonical text, without quotes and with their escapes.
pub(crate) fn strings(canonical: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = canonical;
    std::iter::from_fn(move || {
        let start = rest.iter().position(|&b| b == b'"')? + 1;
        let string = &rest[start..];
        let mut length = 0;
        while *string.get(length)? != b'"' {
            length += if string[length] == b'\\' { 2 } else { 1 };
        }
        rest = &string[length + 1..];
        Some(&string[..length])
    })
}
