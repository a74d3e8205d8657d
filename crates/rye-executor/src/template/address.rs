//! The address of an HTTP call.
//!
//! A parameter fills a place in it, as `{id}` does in `/items/{id}`, and must not lead
//! elsewhere: neither to another path, by `..`, nor into the query or past it. So what the
//! call gives is encoded. A slash in the path stays one: `{repo}` may be `owner/name`.

use std::fmt::Write as _;

/// An address with a step up in its path, by a parameter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a parameter steps up in the path of {0}, which leads elsewhere")]
pub struct LeadsElsewhere(pub String);

/// An address under way.
#[derive(Debug, Default)]
pub(super) struct Address {
    text: String,
    /// Whether the call gives a part of the path.
    path_is_given: bool,
}

/// Where in an address something stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Scheme and host.
    Origin,
    Path,
    Query,
}

impl Address {
    /// Adds what the tool says.
    pub(super) fn written(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Adds what the call gives.
    pub(super) fn value(&mut self, value: &str) {
        let place = self.place();
        if place == Place::Origin {
            return self.text.push_str(value);
        }
        self.path_is_given |= place == Place::Path;
        for byte in value.bytes() {
            let plain = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
            if plain || (place == Place::Path && b"/:@,;=+$!*'()".contains(&byte)) {
                self.text.push(char::from(byte));
            } else {
                // Writing to a text cannot fail.
                let _ = write!(self.text, "%{byte:02X}");
            }
        }
    }

    fn place(&self) -> Place {
        let Some((_, after)) = self.text.split_once("://") else {
            return Place::Origin;
        };
        match after.find(['/', '?', '#']) {
            None => Place::Origin,
            Some(_) if after.contains(['?', '#']) => Place::Query,
            Some(_) => Place::Path,
        }
    }

    pub(super) fn finish(self) -> Result<String, LeadsElsewhere> {
        let path = self.text.split(['?', '#']).next().unwrap_or_default();
        // A backslash is a slash to those who read addresses.
        let mut steps = path.split(['/', '\\']);
        if self.path_is_given && steps.any(|step| matches!(step, "." | "..")) {
            return Err(LeadsElsewhere(self.text));
        }
        Ok(self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Names, Origin, Variables, render_address};

    fn address(template: &str, value: &str) -> Result<String, String> {
        let mut names = Names::default();
        names.set("id", value, Origin::Fact);
        let rendered = render_address(template, &Variables::new(), &names);
        let text = rendered.map_err(|error| error.to_string())?;
        Ok(text.as_str().unwrap_or_default().to_owned())
    }

    #[test]
    fn a_parameter_stays_in_its_place() {
        for (template, value, expected) in [
            ("https://h/items/{id}", "a b", "https://h/items/a%20b"),
            (
                "https://h/repos/{id}",
                "owner/name",
                "https://h/repos/owner/name",
            ),
            (
                "https://h/items/{id}",
                "x?y=1#z",
                "https://h/items/x%3Fy=1%23z",
            ),
            (
                "https://h/items/{id}",
                "%2e%2e/x",
                "https://h/items/%252e%252e/x",
            ),
            (
                "https://h/?q={id}",
                "a&b=c/..",
                "https://h/?q=a%26b%3Dc%2F..",
            ),
            ("https://h/ä/{id}", "ü", "https://h/ä/%C3%BC"),
            ("https://h/items/{id}", r"..\x", "https://h/items/..%5Cx"),
            ("{id}", "https://any/../x?y", "https://any/../x?y"),
            ("https://{id}/x", "host:80", "https://host:80/x"),
        ] {
            assert_eq!(
                address(template, value).as_deref(),
                Ok(expected),
                "{template} {value}"
            );
        }
    }

    #[test]
    fn a_parameter_that_steps_up_is_refused() {
        for (template, value) in [
            ("https://h/items/{id}", ".."),
            ("https://h/items/{id}", "../admin?x=1#f"),
            ("https://h/items/{id}", "a/../../b"),
            ("https://h/items/{id}/x", "."),
            ("https://h/items/.{id}/x", "."),
        ] {
            let error = address(template, value).unwrap_err();
            assert!(error.contains("leads elsewhere"), "{error}");
        }
    }
}
