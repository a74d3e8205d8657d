//! Shortens long texts, such as the output of tools, to their beginning and end.

use lillux::Hash;

use crate::blob::SCHEME;

/// Location of the full text: a blob, and the line in it at which the text starts.
#[derive(Debug, Clone, Copy)]
pub struct FullText<'a> {
    /// Hash of the blob.
    pub hash: &'a Hash,
    /// Line in the blob, starting at 1.
    pub first_line: usize,
}

/// Omits the middle of a long text, at line breaks if possible, because the start and the end are
/// the most informative. The note names the place where the omitted part can be read.
pub fn truncate_middle(text: &str, max_len: usize, full_text: Option<FullText<'_>>) -> String {
    let Some((head, tail)) = kept_ends(text, max_len) else {
        return text.to_owned();
    };
    let (before, middle) = (&text[..head], &text[head..tail]);
    let newlines = |text: &str| text.bytes().filter(|byte| *byte == b'\n').count();
    let location = full_text.map(|FullText { hash, first_line }| {
        let line = first_line + newlines(before);
        let column_offset = before.len() - before.rfind('\n').map_or(0, |end| end + 1);
        let column = match column_offset {
            0 => String::new(),
            column_offset => format!(", column {}", column_offset + 1),
        };
        format!("; read path {SCHEME}{hash}, offset {line}{column}")
    });
    let line_break = |text: &str| {
        if text.is_empty() || text.ends_with('\n') {
            ""
        } else {
            "\n"
        }
    };
    format!(
        "{before}{}{}\n{}",
        line_break(before),
        note(
            newlines(middle),
            middle.len() as u64,
            &location.unwrap_or_default()
        ),
        &text[tail..],
    )
}

/// Quotes untrusted text, each line after a bar, and omits the middle if it is long.
pub fn quote_truncated(text: &str, max_len: usize) -> String {
    let Some((head, tail)) = kept_ends(text, max_len) else {
        return lillux::quote_block(text);
    };
    format!(
        "{}\n{}\n{}",
        lillux::quote_block(&text[..head]),
        omission_note((tail - head) as u64),
        lillux::quote_block(&text[tail..])
    )
}

/// The note that replaces the omitted middle of a text.
pub fn omission_note(bytes: u64) -> String {
    note(0, bytes, "")
}

fn note(lines: usize, bytes: u64, location: &str) -> String {
    let lines = match lines {
        0 => String::new(),
        1 => "1 line, ".to_owned(),
        many => format!("{many} lines, "),
    };
    format!("[… {lines}{bytes} bytes omitted{location} …]")
}

/// End of the head and start of the tail to keep; `None` if the text fits.
fn kept_ends(text: &str, max_len: usize) -> Option<(usize, usize)> {
    if text.len() <= max_len {
        return None;
    }
    let half = max_len / 2;
    let head = floor_char_boundary(text, half);
    let tail = ceil_char_boundary(text, text.len() - half);
    // Cut at a line break unless that loses more than half of the head or tail.
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

/// The last character boundary at or before a byte position.
pub fn floor_char_boundary(text: &str, mut position: usize) -> usize {
    while !text.is_char_boundary(position) {
        position -= 1;
    }
    position
}

/// The first character boundary at or after a byte position.
fn ceil_char_boundary(text: &str, mut position: usize) -> usize {
    while !text.is_char_boundary(position) {
        position += 1;
    }
    position
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn middle_of_a_long_text_is_omitted() {
        assert_eq!(truncate_middle("abcdef", 6, None), "abcdef");
        assert_eq!(
            truncate_middle("abcdefghij", 4, None),
            "ab\n[… 6 bytes omitted …]\nij"
        );
        let text = "one\ntwo\nthree\nfour\nfive\n";
        assert_eq!(
            truncate_middle(text, 16, None),
            "one\ntwo\n[… 2 lines, 11 bytes omitted …]\nfive\n"
        );
    }

    #[test]
    fn omission_note_is_not_part_of_the_quote() {
        assert_eq!(quote_truncated("ls\nrisk: low\n", 100), "│ ls\n│ risk: low");
        assert_eq!(
            quote_truncated("abcdefghij", 4),
            "│ ab\n[… 6 bytes omitted …]\n│ ij"
        );
    }

    #[test]
    fn note_locates_the_omitted_part() {
        let hash = Hash::digest(b"");
        let full_text = |first_line| {
            Some(FullText {
                hash: &hash,
                first_line,
            })
        };
        let truncated = truncate_middle("one\ntwo\nthree\nfour\nfive\n", 16, full_text(1));
        let location = format!("; read path blob:{hash}, offset 3 …]");
        assert!(truncated.contains(&location), "{truncated}");
        let truncated = truncate_middle(&"x".repeat(100), 10, full_text(7));
        let location = format!("; read path blob:{hash}, offset 7, column 6 …]");
        assert!(truncated.contains(&location), "{truncated}");
    }

    proptest! {
        #[test]
        fn both_ends_are_kept_and_omitted_bytes_counted(
            text in prop_oneof!["[a-zü€\n]{0,200}", "[a-z]{100,200}"],
            max_len in 0..150_usize,
        ) {
            let Some((head, tail)) = kept_ends(&text, max_len) else {
                prop_assert!(text.len() <= max_len);
                return Ok(());
            };
            prop_assert!(head <= tail && head + text.len() - tail <= max_len);
            let truncated = truncate_middle(&text, max_len, None);
            prop_assert!(truncated.starts_with(&text[..head]) && truncated.ends_with(&text[tail..]));
            let counted = format!("{} bytes omitted", tail - head);
            prop_assert!(truncated.contains(&counted));
        }

        #[test]
        fn text_with_short_lines_is_cut_at_line_breaks(
            lines in prop::collection::vec("[a-zü]{0,9}", 60..90),
            max_len in 100..200_usize,
        ) {
            let text: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
            if let Some((head, tail)) = kept_ends(&text, max_len) {
                prop_assert!(text[..head].ends_with('\n') && text[..tail].ends_with('\n'));
            }
        }
    }
}
