//! A page of Markdown with front matter.

use serde::Deserialize;

/// What stands before the text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Head {
    /// Its name, for people; what counts is that of the file.
    #[serde(default, rename = "name")]
    _name: Option<String>,
    #[serde(default)]
    pub(super) description: String,
    pub(super) model: Option<String>,
}

/// A page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) head: Head,
    pub(super) body: String,
}

impl Page {
    /// Reads a page, or says in words what is wrong with it.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let mut text = text.trim_start_matches('\u{feff}').trim_start();
        // A signature is nothing to a model.
        if text.starts_with("<!-- rye:signed:")
            && let Some((_, rest)) = text.split_once('\n')
        {
            text = rest.trim_start();
        }
        let fenced = text.strip_prefix("---").filter(|rest| {
            let first = rest.lines().next().unwrap_or_default();
            first.trim().is_empty()
        });
        let Some(rest) = fenced else {
            return Ok(Self {
                head: Head::default(),
                body: text.to_owned(),
            });
        };
        let Some(end) = rest.find("\n---") else {
            return Err("its front matter, which begins with `---`, has no end".to_owned());
        };
        let (head, body) = (&rest[..end], &rest[end + 4..]);
        let head: Result<Option<Head>, _> = serde_saphyr::from_str(head);
        let head = head.map_err(|error| format!("{}", error.without_snippet()))?;
        Ok(Self {
            head: head.unwrap_or_default(),
            body: body.trim_start_matches('-').trim_start().to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn front_matter_is_read_and_what_is_wrong_with_it_told() {
        let page =
            Page::read("---\nname: x\ndescription: Reviews.\nmodel: a/b\n---\n\nYou review.\n")
                .unwrap();
        assert_eq!(page.head.description, "Reviews.");
        assert_eq!(page.head.model.as_deref(), Some("a/b"));
        assert_eq!(page.body, "You review.\n");
        let plain = Page::read("You review.").unwrap();
        assert_eq!(
            (plain.head, plain.body.as_str()),
            (Head::default(), "You review.")
        );
        let signed = Page::read("<!-- rye:signed:x -->\n---\ndescription: D\n---\nBody").unwrap();
        assert_eq!(
            (signed.head.description.as_str(), signed.body.as_str()),
            ("D", "Body")
        );
        assert!(
            Page::read("---\nname: x\n")
                .unwrap_err()
                .contains("has no end")
        );
        let unknown = Page::read("---\ncolour: x\n---\nBody").unwrap_err();
        assert!(unknown.contains("colour"), "{unknown}");
    }
}
