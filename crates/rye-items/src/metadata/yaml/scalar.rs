//! Resolves YAML scalars with the core schema of YAML 1.2.

use std::borrow::Cow;

use serde_json::Number;
use serde_saphyr::granit_parser::{ScalarStyle, Tag};

use crate::metadata::error::{Problem, truncate};
use crate::metadata::node::Data;

/// The value of a scalar, determined by its tag or otherwise by its form.
pub(super) fn resolve(
    text: Cow<'_, str>,
    style: ScalarStyle,
    tag: Option<&Tag>,
    at: usize,
) -> Result<Data, Problem> {
    let Some(tag) = tag else {
        return match style {
            ScalarStyle::Plain => Ok(plain(&text, at)?.unwrap_or_else(|| Data::Text(text.into()))),
            _ => Ok(Data::Text(text.into())),
        };
    };
    let name = match tag.core_suffix() {
        Some(name) => name,
        None if tag.original() == "!" => "str",
        None => return Err(unsupported(tag, at)),
    };
    if name == "str" {
        return Ok(Data::Text(text.into()));
    }
    let data = plain(&text, at)?;
    match (name, data) {
        ("null", Some(data @ Data::Null))
        | ("bool", Some(data @ Data::Bool(_)))
        | ("float", Some(data @ Data::Number(_))) => Ok(data),
        ("int", Some(Data::Number(number))) if !number.is_f64() => Ok(Data::Number(number)),
        _ => Err(Problem::new(
            at,
            format!("`{}` does not match its tag `!!{name}`", truncate(&text)),
        )),
    }
}

/// Checks that the tag of a list or mapping matches its type.
pub(super) fn expect_collection(tag: Option<&Tag>, name: &str, at: usize) -> Result<(), Problem> {
    match tag {
        Some(tag) if tag.core_suffix() != Some(name) && tag.original() != "!" => {
            Err(unsupported(tag, at))
        }
        _ => Ok(()),
    }
}

fn unsupported(tag: &Tag, at: usize) -> Problem {
    let message = format!("the tag `{}` is not supported", truncate(&tag.original()));
    Problem::new(at, message)
}

/// The value of a plain scalar; none if it is a string.
fn plain(text: &str, at: usize) -> Result<Option<Data>, Problem> {
    Ok(Some(match text {
        "" | "~" | "null" | "Null" | "NULL" => Data::Null,
        "true" | "True" | "TRUE" => Data::Bool(true),
        "false" | "False" | "FALSE" => Data::Bool(false),
        _ => match number(text) {
            Ok(Some(number)) => number,
            Ok(None) => return Ok(None),
            Err(reason) => {
                return Err(
                    Problem::new(at, format!("the number `{}` {reason}", truncate(text)))
                        .hint("write it in quotes if it is a string"),
                );
            }
        },
    }))
}

/// A number; none if the text is a string. A decimal integer that does not fit into 64 bits becomes
/// a string.
fn number(text: &str) -> Result<Option<Data>, &'static str> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if matches!(digits, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Err("is not finite");
    }
    for (prefix, radix) in [("0x", 16), ("0o", 8)] {
        if let Some(digits) = text.strip_prefix(prefix)
            && !digits.is_empty()
            && digits.chars().all(|c| c.is_digit(radix))
        {
            let number =
                u64::from_str_radix(digits, radix).map_err(|_| "does not fit into 64 bits")?;
            return Ok(Some(Data::Number(number.into())));
        }
    }
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        if digits.len() > 1 && digits.starts_with('0') {
            return Err("begins with a zero, which leaves open what base it has");
        }
        let number = text.parse().ok().and_then(Number::from_i128);
        let text = || Data::Text(text.trim_start_matches('+').to_owned());
        return Ok(Some(number.map_or_else(text, Data::Number)));
    }
    if !is_float(digits) {
        return Ok(None);
    }
    let number: f64 = text.parse().map_err(|_| "is not valid")?;
    let number = Number::from_f64(number).ok_or("is not finite")?;
    Ok(Some(Data::Number(number)))
}

/// Whether a text is a float without a sign: `1.5`, `.5`, `1.`, `1e9`.
fn is_float(digits: &str) -> bool {
    let (mantissa, exponent) = match digits.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (digits, None),
    };
    let all_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    let exponent_is_valid = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !digits.is_empty() && all_digits(digits)
    });
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let some_digits = !whole.is_empty() || !fraction.is_empty();
    exponent_is_valid && some_digits && all_digits(whole) && all_digits(fraction)
}
