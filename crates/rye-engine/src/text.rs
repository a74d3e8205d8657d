//! Texts that are too long.

use lillux::Hash;

use crate::blob::SCHEME;

/// What stands where something is left out, and before the place where it can be read.
const LEFT_OUT: &str = "bytes are left out here";
const READ_ON: &str = ": read on with path ";

/// Where the whole of a text can be read, and from which line on the text stands there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Whole<'a> {
    pub(crate) hash: &'a Hash,
    pub(crate) first_line: usize,
}

/// Leaves out the middle of what is too long, whole lines of it where it has lines: the
/// beginning says what it is, and the end how it went. What is left out can be read where
/// the whole is.
pub(crate) fn without_middle(text: &str, longest: usize, whole: Option<Whole<'_>>) -> String {
    let Some((head, tail)) = ends(text, longest) else {
        return text.to_owned();
    };
    let (before, middle) = (&text[..head], &text[head..tail]);
    let newlines = |text: &str| text.bytes().filter(|byte| *byte == b'\n').count();
    let lines = match newlines(middle) {
        0 => String::new(),
        1 => "1 line, ".to_owned(),
        many => format!("{many} lines, "),
    };
    let place = whole.map(|Whole { hash, first_line }| {
        let line = first_line + newlines(before);
        let begun = before.len() - before.rfind('\n').map_or(0, |end| end + 1);
        let column = match begun {
            0 => String::new(),
            begun => format!(", column {}", begun + 1),
        };
        format!("{READ_ON}{SCHEME}{hash}, offset {line}{column}")
    });
    let gap = |text: &str| {
        if text.is_empty() || text.ends_with('\n') {
            ""
        } else {
            "\n"
        }
    };
    format!(
        "{before}{}[… {lines}{} {LEFT_OUT}{} …]\n{}",
        gap(before),
        middle.len(),
        place.unwrap_or_default(),
        &text[tail..],
    )
}

/// A text of somebody else's for a person who has to decide, each line behind a bar; without
/// the middle of what is too long.
pub(crate) fn quoted(text: &str, longest: usize) -> String {
    let Some((head, tail)) = ends(text, longest) else {
        return lillux::quote_block(text);
    };
    format!(
        "{}\n[… {} bytes are left out here …]\n{}",
        lillux::quote_block(&text[..head]),
        tail - head,
        lillux::quote_block(&text[tail..])
    )
}

/// The blob in which the whole of a text is that [lost its middle](without_middle).
pub(crate) fn whole_of(text: &str) -> Option<Hash> {
    let marks = text.match_indices(LEFT_OUT);
    let mut places = marks.filter_map(|(at, mark)| text[at + mark.len()..].strip_prefix(READ_ON));
    places.find_map(|place| {
        let (hash, _) = place.strip_prefix(SCHEME)?.split_once(", offset ")?;
        hash.parse().ok()
    })
}

/// Where the beginning ends and the end begins, if both together are to be no longer than
/// this; none where it fits.
fn ends(text: &str, longest: usize) -> Option<(usize, usize)> {
    if text.len() <= longest {
        return None;
    }
    let half = longest / 2;
    let head = floor(text, half);
    let tail = ceil(text, text.len() - half);
    // At the end of a line, if that does not cost more than half of it.
    let line_end = text[..head].rfind('\n').map(|end| end + 1);
    let head = line_end.filter(|end| *end > head / 2).unwrap_or(head);
    let line_start = text[tail..].find('\n').map(|end| tail + end + 1);
    let furthest = tail + (text.len() - tail) / 2;
    let starts_line = text[..tail].ends_with('\n');
    let tail = line_start
        .filter(|start| !starts_line && *start < furthest)
        .unwrap_or(tail);
    Some((head, tail))
}

/// The end of the last whole character before a byte.
pub(crate) fn floor(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// The start of the first whole character from a byte on.
fn ceil(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_fits_stays_and_of_the_rest_the_middle_goes() {
        assert_eq!(without_middle("abcdef", 6, None), "abcdef");
        assert_eq!(
            without_middle("abcdefghij", 4, None),
            "ab\n[… 6 bytes are left out here …]\nij"
        );
        let text = "one\ntwo\nthree\nfour\nfive\n";
        assert_eq!(
            without_middle(text, 16, None),
            "one\ntwo\n[… 2 lines, 11 bytes are left out here …]\nfive\n"
        );
    }

    #[test]
    fn what_is_left_out_of_a_quoted_text_is_not_said_by_it() {
        assert_eq!(quoted("ls\nrisk: low\n", 100), "│ ls\n│ risk: low");
        assert_eq!(
            quoted("abcdefghij", 4),
            "│ ab\n[… 6 bytes are left out here …]\n│ ij"
        );
    }

    #[test]
    fn it_says_where_the_rest_is() {
        let hash = Hash::digest(b"");
        let whole = |first_line| {
            Some(Whole {
                hash: &hash,
                first_line,
            })
        };
        let cut = without_middle("one\ntwo\nthree\nfour\nfive\n", 16, whole(1));
        let place = format!(": read on with path blob:{hash}, offset 3 …]");
        assert!(cut.contains(&place), "{cut}");
        let cut = without_middle(&"x".repeat(100), 10, whole(7));
        let place = format!(": read on with path blob:{hash}, offset 7, column 6 …]");
        assert!(cut.contains(&place), "{cut}");
    }

    proptest! {
        #[test]
        fn both_ends_stay_and_what_is_between_is_counted(
            text in prop_oneof!["[a-zü€\n]{0,200}", "[a-z]{100,200}"],
            longest in 0..150_usize,
        ) {
            let Some((head, tail)) = ends(&text, longest) else {
                prop_assert!(text.len() <= longest);
                return Ok(());
            };
            prop_assert!(head <= tail && head + text.len() - tail <= longest);
            let cut = without_middle(&text, longest, None);
            prop_assert!(cut.starts_with(&text[..head]) && cut.ends_with(&text[tail..]));
            let counted = format!("{} bytes are left out here", tail - head);
            prop_assert!(cut.contains(&counted));
        }

        #[test]
        fn short_lines_are_cut_between(
            lines in prop::collection::vec("[a-zü]{0,9}", 60..90),
            longest in 100..200_usize,
        ) {
            let text: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
            if let Some((head, tail)) = ends(&text, longest) {
                prop_assert!(text[..head].ends_with('\n') && text[..tail].ends_with('\n'));
            }
        }
    }
}
