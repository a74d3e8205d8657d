//! Pages of a text file, with a note on how to continue.

use std::fmt::Write as _;

use rye_engine::text::floor_char_boundary;

/// Default number of lines.
pub(super) const DEFAULT_LINES: usize = 2000;
/// Maximum number of bytes of a line among others.
const MAX_LINE: usize = 2000;
/// Maximum number of bytes of a single line.
const MAX_SINGLE_LINE: usize = 30_000;
/// Maximum size of a page, in bytes.
const MAX_PAGE: usize = 60_000;

/// Numbered lines starting at `first`.
pub(super) fn lines(text: &str, first: usize, limit: usize) -> Result<String, String> {
    let total = count_lines(text, first)?;
    let mut shown = String::new();
    let mut next = first;
    for line in text.lines().skip(first - 1).take(limit) {
        if next > first {
            shown.push('\n');
        }
        let end = floor_char_boundary(line, line.len().min(MAX_LINE));
        let _ = write!(shown, "{next}\t{}", &line[..end]);
        if end < line.len() {
            let (omitted, column) = (line.len() - end, end + 1);
            let _ = write!(
                shown,
                " [… {omitted} more bytes in this line: offset {next}, column {column}]"
            );
        }
        next += 1;
        if shown.len() > MAX_PAGE {
            break;
        }
    }
    if next <= total {
        let last = next - 1;
        let _ = write!(
            shown,
            "\n[lines {first} to {last} of {total}; continue with offset {next}]"
        );
    }
    Ok(shown)
}

/// The part of a line that starts at a byte column, with a note on how to continue.
pub(super) fn column(text: &str, number: usize, column: usize) -> Result<String, String> {
    count_lines(text, number)?;
    let line = text.lines().nth(number - 1).unwrap_or_default();
    if column > line.len() {
        let length = line.len();
        return Err(format!(
            "no column {column}: line {number} has {length} bytes"
        ));
    }
    let start = floor_char_boundary(line, column - 1);
    let end = floor_char_boundary(line, start.saturating_add(MAX_SINGLE_LINE).min(line.len()));
    let mut shown = line[start..end].to_owned();
    if end < line.len() {
        let (first, length, next) = (start + 1, line.len(), end + 1);
        let _ = write!(
            shown,
            "\n[bytes {first} to {end} of {length} of line {number}; \
             continue with offset {number}, column {next}]"
        );
    }
    Ok(shown)
}

/// The number of lines; an error if `first` is beyond the end.
fn count_lines(text: &str, first: usize) -> Result<usize, String> {
    let total = text.lines().count();
    if first > total {
        return Err(format!("no line {first}: the file has {total}"));
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn page_ends_with_a_note_on_how_to_continue() {
        let text = |first, limit| lines("a\nb\r\nc\n", first, limit).unwrap();
        assert_eq!(text(1, 10), "1\ta\n2\tb\n3\tc");
        assert_eq!(
            text(2, 1),
            "2\tb\n[lines 2 to 2 of 3; continue with offset 3]"
        );
        assert_eq!(text(3, 1), "3\tc");
        let error = lines("a\n", 2, 1).unwrap_err();
        assert_eq!(error, "no line 2: the file has 1");
    }

    #[test]
    fn long_lines_and_files_are_truncated() {
        let line = lines(&"ü".repeat(MAX_LINE), 1, 1).unwrap();
        let end = "ü [… 2000 more bytes in this line: offset 1, column 2001]";
        assert!(line.ends_with(end), "{line}");
        let file = lines(&"1234567\n".repeat(20_000), 1, usize::MAX).unwrap();
        assert!(file.len() < MAX_PAGE + 100);
        assert!(
            file.contains("of 20000; continue with offset "),
            "{}",
            &file[MAX_PAGE..]
        );
    }

    proptest! {
        #[test]
        fn long_line_is_read_in_parts(line in "[aü€]{10000,40000}") {
            let text = format!("before\n{line}\nafter");
            let (mut read, mut next) = (String::new(), Some(1));
            while let Some(start) = next {
                let part = column(&text, 2, start).unwrap();
                let note = part.lines().nth(1).and_then(|note| note.rsplit_once(' '));
                next = note.map(|(_, column)| column.trim_end_matches(']').parse().unwrap());
                read.push_str(part.lines().next().unwrap());
            }
            prop_assert_eq!(read, line);
        }
    }
}
