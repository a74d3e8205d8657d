//! Some lines of a text, and how to read on.

use std::fmt::Write as _;

use crate::text::floor;

/// How many lines are read where the model does not say.
pub(super) const LINES: usize = 2000;
/// How much of a line is shown beside others, and how much alone.
const LINE: usize = 2000;
const LINE_ALONE: usize = 30_000;
/// How much is shown in all.
const SHOWN: usize = 60_000;

/// Lines with their numbers, from one on.
pub(super) fn lines(text: &str, first: usize, limit: usize) -> Result<String, String> {
    let total = count(text, first)?;
    let mut shown = String::new();
    let mut next = first;
    for line in text.lines().skip(first - 1).take(limit) {
        if next > first {
            shown.push('\n');
        }
        let end = floor(line, line.len().min(LINE));
        let _ = write!(shown, "{next}\t{}", &line[..end]);
        if end < line.len() {
            let (left_out, column) = (line.len() - end, end + 1);
            let _ = write!(
                shown,
                " [… {left_out} more bytes in this line: offset {next}, column {column}]"
            );
        }
        next += 1;
        if shown.len() > SHOWN {
            break;
        }
    }
    if next <= total {
        let last = next - 1;
        let _ = write!(
            shown,
            "\n[lines {first} to {last} of {total}; read on with offset {next}]"
        );
    }
    Ok(shown)
}

/// One long line, from a byte on.
pub(super) fn column(text: &str, number: usize, column: usize) -> Result<String, String> {
    count(text, number)?;
    let line = text.lines().nth(number - 1).unwrap_or_default();
    if column > line.len() {
        let length = line.len();
        return Err(format!(
            "line {number} has {length} bytes, and no column {column}"
        ));
    }
    let start = floor(line, column - 1);
    let end = floor(line, start.saturating_add(LINE_ALONE).min(line.len()));
    let mut shown = line[start..end].to_owned();
    if end < line.len() {
        let (first, length, next) = (start + 1, line.len(), end + 1);
        let _ = write!(
            shown,
            "\n[bytes {first} to {end} of {length} of line {number}; \
             read on with offset {number}, column {next}]"
        );
    }
    Ok(shown)
}

/// How many lines there are, if that one is among them.
fn count(text: &str, first: usize) -> Result<usize, String> {
    let total = text.lines().count();
    if first > total {
        return Err(format!("there is no line {first}: the file has {total}"));
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_page_says_how_to_read_on() {
        let text = |first, limit| lines("a\nb\r\nc\n", first, limit).unwrap();
        assert_eq!(text(1, 10), "1\ta\n2\tb\n3\tc");
        assert_eq!(
            text(2, 1),
            "2\tb\n[lines 2 to 2 of 3; read on with offset 3]"
        );
        assert_eq!(text(3, 1), "3\tc");
        let error = lines("a\n", 2, 1).unwrap_err();
        assert_eq!(error, "there is no line 2: the file has 1");
    }

    #[test]
    fn long_lines_and_long_files_are_cut() {
        let line = lines(&"ü".repeat(LINE), 1, 1).unwrap();
        let end = "ü [… 2000 more bytes in this line: offset 1, column 2001]";
        assert!(line.ends_with(end), "{line}");
        let file = lines(&"1234567\n".repeat(20_000), 1, usize::MAX).unwrap();
        assert!(file.len() < SHOWN + 100);
        assert!(
            file.contains("of 20000; read on with offset "),
            "{}",
            &file[SHOWN..]
        );
    }

    proptest! {
        #[test]
        fn a_long_line_is_read_piece_by_piece(line in "[aü€]{10000,40000}") {
            let text = format!("before\n{line}\nafter");
            let (mut read, mut next) = (String::new(), 1);
            for _ in 0..10 {
                let piece = column(&text, 2, next).unwrap();
                let Some((piece, note)) = piece.split_once('\n') else {
                    read.push_str(&piece);
                    break;
                };
                read.push_str(piece);
                let (_, place) = note.rsplit_once("column ").unwrap();
                next = place.trim_end_matches(']').parse().unwrap();
            }
            prop_assert_eq!(read, line);
        }
    }
}
