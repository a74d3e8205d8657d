//! What a model is not shown must not be lost by what it writes: a secret is masked in what it
//! reads, and whoever writes back what they read would write the mask in its place.

use std::borrow::Cow;

use lillux::mask::{MASK, Masks};

/// Refuses a text that has the mask where the file has a secret.
pub(super) fn kept(masks: &Masks, before: &str, after: &str) -> Result<(), String> {
    let masked = |text: &str| text.matches(MASK).count();
    if masked(after) > masked(before) && has_secret(masks, before) {
        return Err(format!(
            "the new text has `{MASK}` in it, and the file a secret, which stands there for what \
             you are not shown: the secret would be lost. Nothing was changed. Use `edit`, and \
             leave out of `old` and `new` what is masked"
        ));
    }
    Ok(())
}

/// What is wrong with looking for the mask in a file that has a secret in its place.
pub(super) fn sought(masks: &Masks, text: &str, old: &str) -> Option<String> {
    let is_there = masks.mask(text).contains(old);
    (old.contains(MASK) && is_there && has_secret(masks, text)).then(|| {
        format!(
            "`{MASK}` in `old` stands for a secret, which you are not shown and which is what \
             the file has: leave it out of `old` and `new`"
        )
    })
}

fn has_secret(masks: &Masks, text: &str) -> bool {
    matches!(masks.mask(text), Cow::Owned(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_is_not_written_where_the_secret_stands() {
        let masks = Masks::default();
        masks.add("open-sesame");
        let secret = "KEY=open-sesame\n";
        for (before, after, good) in [
            (secret, "KEY=[masked]\n", false),
            (secret, "KEY=[masked]\nMORE=1\n", false),
            (secret, "KEY=another\n", true),
            (secret, "KEY=open-sesame\nMORE=1\n", true),
            ("it is [masked]\n", "it was [masked]\n", true),
            (
                "# [masked]\nKEY=open-sesame\n",
                "# [masked]\nKEY=new\n",
                true,
            ),
            (
                "# [masked]\nKEY=open-sesame\n",
                "# [masked]\nKEY=[masked]\n",
                false,
            ),
            ("", "[masked]", true),
        ] {
            let kept = kept(&masks, before, after);
            assert_eq!(kept.is_ok(), good, "{before} {after}");
        }
        assert!(sought(&masks, secret, "KEY=[masked]").is_some());
        assert!(sought(&masks, secret, "TOKEN=[masked]").is_none());
        assert!(sought(&masks, "KEY=[masked]\n", "KEY=[masked]").is_none());
    }
}
