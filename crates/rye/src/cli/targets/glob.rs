//! Globs over ids: `*` and `?` within a segment, `**` across segments.

/// Whether the pattern matches the whole id.
pub(super) fn matches(pattern: &str, id: &str) -> bool {
    matches_bytes(pattern.as_bytes(), id.as_bytes())
}

/// Matches by dynamic programming, so that the cost is at most the product of the lengths.
fn matches_bytes(pattern: &[u8], id: &[u8]) -> bool {
    // row[i]: whether the pattern so far matches the first i bytes.
    let mut row = vec![false; id.len() + 1];
    row[0] = true;
    let mut rest = pattern;
    while let Some((&first, after)) = rest.split_first() {
        let across = first == b'*' && after.first() == Some(&b'*');
        rest = if across { &after[1..] } else { after };
        let mut next = vec![false; id.len() + 1];
        for at in 0..=id.len() {
            next[at] = match first {
                // Matches nothing, or one more byte than before.
                b'*' => row[at] || at > 0 && next[at - 1] && (across || id[at - 1] != b'/'),
                b'?' => at > 0 && row[at - 1] && id[at - 1] != b'/',
                byte => at > 0 && row[at - 1] && id[at - 1] == byte,
            };
        }
        row = next;
    }
    row[id.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stay_within_a_segment_unless_doubled() {
        for (pattern, id, expected) in [
            ("*", "hello", true),
            ("*", "my/hello", false),
            ("**", "my/hello", true),
            ("my/*", "my/hello", true),
            ("my/*", "my/deep/hello", false),
            ("my/**", "my/deep/hello", true),
            ("**/hello", "my/deep/hello", true),
            ("**hello", "hello", true),
            ("h?llo", "hello", true),
            ("a?b", "a/b", false),
            ("h*o", "hello", true),
            ("h*x", "hello", false),
            ("", "", true),
            ("hello", "hell", false),
        ] {
            assert_eq!(matches(pattern, id), expected, "{pattern} {id}");
        }
    }

    #[test]
    fn matching_is_not_exponential() {
        let (pattern, id) = ("a*".repeat(200) + "b", "a".repeat(1000));
        assert!(!matches(&pattern, &id));
    }
}
