//! Messages of YAML errors without their location, which is reported separately.

use std::borrow::Cow;

use serde_saphyr::{DefaultMessageFormatter, Error, Localizer, Location};

/// Omits all locations.
struct WithoutLocation;

impl Localizer for WithoutLocation {
    fn attach_location<'a>(&self, base: Cow<'a, str>, _: Location) -> Cow<'a, str> {
        base
    }

    fn alias_used_at(&self, _: Location) -> String {
        String::new()
    }

    fn alias_defined_at(&self, _: Location) -> String {
        String::new()
    }
}

/// The message of an error without location and snippet.
pub fn message(error: &Error) -> String {
    let formatter = DefaultMessageFormatter.with_localizer(&WithoutLocation);
    error.without_snippet().render_with_formatter(&formatter)
}

/// Line and column of an error, from 1.
pub fn position(error: &Error) -> Option<(u64, u64)> {
    let location = error.location()?;
    Some((location.line().max(1), location.column().max(1)))
}

/// The source line of an error and a caret below it, each after a newline; empty if the text has
/// no such line.
pub fn excerpt(text: &str, line: u64, column: u64) -> String {
    let index = usize::try_from(line).unwrap_or(usize::MAX);
    let Some(source) = text.lines().nth(index.saturating_sub(1)) else {
        return String::new();
    };
    let number = line.to_string();
    let indent = " ".repeat(number.len());
    let before = usize::try_from(column).unwrap_or(1).saturating_sub(1);
    let before = " ".repeat(before.min(source.chars().count()));
    format!("\n{number} | {source}\n{indent} | {before}^")
}
