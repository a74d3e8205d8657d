//! URLs of HTTP calls.
//!
//! A parameter such as `{id}` in `/items/{id}` must not lead to another path with `..`, nor add
//! to the query or the fragment. So values of the call are percent-encoded. A slash in the path
//! is kept: `{repo}` may be `owner/name`.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Bytes to encode in a query: all but the unreserved characters.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Bytes to encode in a path.
const PATH: &AsciiSet = &QUERY
    .remove(b'/')
    .remove(b':')
    .remove(b'@')
    .remove(b',')
    .remove(b';')
    .remove(b'=')
    .remove(b'+')
    .remove(b'$')
    .remove(b'!')
    .remove(b'*')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')');

/// A parameter added a `.` or `..` segment to the path of a URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a parameter adds a `.` or `..` segment to the path of {0}")]
pub struct PathTraversal(pub String);

/// Builds a URL from literal text and values.
#[derive(Debug, Default)]
pub(super) struct UrlBuilder {
    text: String,
    /// Whether the path contains a value.
    has_value_in_path: bool,
}

/// Component of a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Component {
    /// Scheme, host and port.
    Origin,
    Path,
    Query,
}

impl UrlBuilder {
    /// Appends literal text of the template.
    pub(super) fn push_literal(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Appends a value of the call, encoded for its component.
    pub(super) fn push_value(&mut self, value: &str) {
        let encoded = match self.component() {
            Component::Origin => return self.text.push_str(value),
            Component::Path => PATH,
            Component::Query => QUERY,
        };
        self.has_value_in_path |= self.component() == Component::Path;
        self.text.extend(utf8_percent_encode(value, encoded));
    }

    /// The component at the end of the text.
    fn component(&self) -> Component {
        let Some((_, after)) = self.text.split_once("://") else {
            return Component::Origin;
        };
        match after.find(['/', '?', '#']) {
            None => Component::Origin,
            Some(_) if after.contains(['?', '#']) => Component::Query,
            Some(_) => Component::Path,
        }
    }

    /// Returns the URL, unless a value changed its path.
    pub(super) fn finish(self) -> Result<String, PathTraversal> {
        let path = self.text.split(['?', '#']).next().unwrap_or_default();
        // URL parsers treat a backslash as a slash.
        let mut segments = path.split(['/', '\\']);
        if self.has_value_in_path && segments.any(|segment| matches!(segment, "." | "..")) {
            return Err(PathTraversal(self.text));
        }
        Ok(self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Origin, Placeholders, Variables, render_url};
    use super::PathTraversal;

    fn render(template: &str, value: &str) -> Result<String, PathTraversal> {
        let mut names = Placeholders::default();
        names.set("id", value, Origin::Fact);
        let text = render_url(template, &Variables::new(), &names)?;
        Ok(text.as_str().unwrap_or_default().to_owned())
    }

    #[test]
    fn values_are_encoded_for_their_component() {
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
                render(template, value).as_deref(),
                Ok(expected),
                "{template} {value}"
            );
        }
    }

    #[test]
    fn dot_segments_in_values_are_rejected() {
        for (template, value) in [
            ("https://h/items/{id}", ".."),
            ("https://h/items/{id}", "../admin?x=1#f"),
            ("https://h/items/{id}", "a/../../b"),
            ("https://h/items/{id}/x", "."),
            ("https://h/items/.{id}/x", "."),
        ] {
            assert!(render(template, value).is_err(), "{template} {value}");
        }
    }
}
