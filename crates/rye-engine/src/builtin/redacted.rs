//! What a model is not shown must not be lost by what it writes: a secret is redacted in what it
//! reads, and whoever writes back what they read would write the placeholder in its place.

use std::borrow::Cow;

use lillux::redact::{REDACTED, Redactor};

/// Refuses a text that has the placeholder where the file has a secret.
pub(super) fn kept(redactor: &Redactor, before: &str, after: &str) -> Result<(), String> {
    let redacted = |text: &str| text.matches(REDACTED).count();
    if redacted(after) > redacted(before) && has_secret(redactor, before) {
        return Err(format!(
            "the new text has `{REDACTED}` in it, and the file a secret, which stands there for what \
             you are not shown: the secret would be lost. Nothing was changed. Use `edit`, and \
             leave out of `old` and `new` what is redacted"
        ));
    }
    Ok(())
}

/// What is wrong with looking for the placeholder in a file that has a secret in its place.
pub(super) fn sought(redactor: &Redactor, text: &str, old: &str) -> Option<String> {
    let is_there = redactor.redact(text).contains(old);
    (old.contains(REDACTED) && is_there && has_secret(redactor, text)).then(|| {
        format!(
            "`{REDACTED}` in `old` stands for a secret, which you are not shown and which is what \
             the file has: leave it out of `old` and `new`"
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
    fn the_mask_is_not_written_where_the_secret_stands() {
        let redactor = Redactor::default();
        redactor.add("open-sesame");
        let secret = "KEY=open-sesame\n";
        for (before, after, good) in [
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
            let kept = kept(&redactor, before, after);
            assert_eq!(kept.is_ok(), good, "{before} {after}");
        }
        assert!(sought(&redactor, secret, "KEY=[redacted]").is_some());
        assert!(sought(&redactor, secret, "TOKEN=[redacted]").is_none());
        assert!(sought(&redactor, "KEY=[redacted]\n", "KEY=[redacted]").is_none());
    }
}
