//! Markdown with front matter.

use serde::Deserialize;

/// Front matter of a guide.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FrontMatter {
    /// Ignored; the file name counts.
    #[serde(default, rename = "name")]
    _name: Option<String>,
    #[serde(default)]
    pub(super) description: String,
    pub(super) model: Option<String>,
    /// What a role does with the base system prompt.
    #[serde(default)]
    pub(super) system: BasePrompt,
}

/// What a role does with the base system prompt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum BasePrompt {
    /// The role comes after it.
    #[default]
    Extend,
    /// The role takes its place.
    Replace,
}

/// A Markdown file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) front_matter: FrontMatter,
    pub(super) body: String,
}

impl Page {
    /// Parses a page. The error is a message.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (yaml, body) = split(text)?;
        let front_matter: Result<Option<FrontMatter>, _> = match yaml {
            Some(yaml) => serde_saphyr::from_str(yaml),
            None => Ok(None),
        };
        let front_matter = front_matter.map_err(|error| format!("{}", error.without_snippet()))?;
        Ok(Self {
            front_matter: front_matter.unwrap_or_default(),
            body: body.to_owned(),
        })
    }
}

/// Splits a page, which may be signed, into its front matter and its body. The error is a message.
pub(super) fn split(text: &str) -> Result<(Option<&str>, &str), String> {
    let mut text = text.trim_start_matches('\u{feff}').trim_start();
    // Removes the signature.
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
        return Ok((None, text));
    };
    let Some(end) = rest.find("\n---") else {
        return Err("the front matter has no closing `---`".to_owned());
    };
    let (yaml, body) = (&rest[..end], &rest[end + 4..]);
    Ok((Some(yaml), body.trim_start_matches('-').trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn front_matter_is_parsed_and_errors_are_reported() {
        let page =
            Page::parse("---\nname: x\ndescription: Reviews.\nmodel: a/b\n---\n\nYou review.\n")
                .unwrap();
        assert_eq!(page.front_matter.description, "Reviews.");
        assert_eq!(page.front_matter.model.as_deref(), Some("a/b"));
        assert_eq!(page.body, "You review.\n");
        let plain = Page::parse("You review.").unwrap();
        assert_eq!(
            (plain.front_matter, plain.body.as_str()),
            (FrontMatter::default(), "You review.")
        );
        let signed = Page::parse("<!-- rye:signed:x -->\n---\ndescription: D\n---\nBody").unwrap();
        assert_eq!(
            (
                signed.front_matter.description.as_str(),
                signed.body.as_str()
            ),
            ("D", "Body")
        );
        assert!(Page::parse("---\nname: x\n").is_err());
        let unknown = Page::parse("---\ncolour: x\n---\nBody").unwrap_err();
        assert!(unknown.contains("colour"), "{unknown}");
    }
}
