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
