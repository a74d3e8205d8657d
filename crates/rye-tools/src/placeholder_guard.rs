//! Protects secrets in files from being overwritten by their placeholder.
//!
//! Secrets are redacted in what a model reads. A model that writes back what it read would
//! replace the secret by the placeholder.

use std::borrow::Cow;

use lillux::redact::{REDACTED, Redactor};

/// Rejects a new text that has the placeholder in place of a secret.
pub(super) fn check_secrets_kept(
    redactor: &Redactor,
    before: &str,
    after: &str,
) -> Result<(), String> {
    let redacted = |text: &str| text.matches(REDACTED).count();
    if redacted(after) > redacted(before) && has_secret(redactor, before) {
        return Err(format!(
            "the new text contains the placeholder `{REDACTED}`, and the file contains a secret that \
             is hidden from you; the secret would be lost. Nothing was changed. Use `edit`, and \
             leave redacted text out of `old` and `new`"
        ));
    }
    Ok(())
}

/// The error for a search text with the placeholder where the file has a secret.
pub(super) fn placeholder_error(redactor: &Redactor, text: &str, old: &str) -> Option<String> {
    let is_visible = redactor.redact(text).contains(old);
    (old.contains(REDACTED) && is_visible && has_secret(redactor, text)).then(|| {
        format!(
            "`{REDACTED}` in `old` is the placeholder of a secret that is hidden from you: leave it out \
             of `old` and `new`"
        )
    })
}

fn has_secret(redactor: &Redactor, text: &str) -> bool {
    matches!(redactor.redact(text), Cow::Owned(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholder_does_not_overwrite_a_secret() {
        let redactor = Redactor::default();
        redactor.add("open-sesame");
        let secret = "KEY=open-sesame\n";
        for (before, after, expected) in [
            (secret, "KEY=[redacted]\n", false),
            (secret, "KEY=[redacted]\nMORE=1\n", false),
            (secret, "KEY=another\n", true),
            (secret, "KEY=open-sesame\nMORE=1\n", true),
            ("it is [redacted]\n", "it was [redacted]\n", true),
            (
                "# [redacted]\nKEY=open-sesame\n",
                "# [redacted]\nKEY=new\n",
                true,
            ),
            (
                "# [redacted]\nKEY=open-sesame\n",
                "# [redacted]\nKEY=[redacted]\n",
                false,
            ),
            ("", "[redacted]", true),
        ] {
            let outcome = check_secrets_kept(&redactor, before, after);
            assert_eq!(outcome.is_ok(), expected, "{before} {after}");
        }
        assert!(placeholder_error(&redactor, secret, "KEY=[redacted]").is_some());
        assert!(placeholder_error(&redactor, secret, "TOKEN=[redacted]").is_none());
        assert!(placeholder_error(&redactor, "KEY=[redacted]\n", "KEY=[redacted]").is_none());
    }
}
