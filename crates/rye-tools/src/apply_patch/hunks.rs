//! Applies the hunks of a patch to a text.

use super::parse::Hunk;

/// Maximum number of lines in a message.
const MAX_SHOWN: usize = 20;

/// The text with all hunks applied in order; the error is a message for the model.
pub(super) fn apply(text: &str, hunks: &[Hunk]) -> Result<String, String> {
    let ends_with_newline = text.is_empty() || text.ends_with('\n');
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut from = 0;
    for (number, hunk) in hunks.iter().enumerate() {
        let place = find(&lines, hunk, from).map_err(|why| match hunks.len() {
            1 => why,
            many => format!("hunk {} of {many}: {why}", number + 1),
        })?;
        let end = place + hunk.old.len();
        lines.splice(place..end, hunk.new.iter().cloned());
        from = place + hunk.new.len();
    }
    let mut text = lines.join("\n");
    if ends_with_newline && !lines.is_empty() {
        text.push('\n');
    }
    Ok(text)
}

/// Index of the first line of a hunk.
fn find(lines: &[String], hunk: &Hunk, from: usize) -> Result<usize, String> {
    let mut from = from;
    for header in &hunk.after {
        let found = position(lines, std::slice::from_ref(header), from, false);
        let found = found.or_else(|| {
            let rest = lines.iter().enumerate().skip(from);
            let mut containing = rest.filter(|(_, line)| line.contains(header.as_str()));
            containing.next().map(|(at, _)| at)
        });
        from = found.ok_or_else(|| format!("there is no line `{header}` (from `@@`)"))? + 1;
    }
    if hunk.old.is_empty() {
        // Only added lines: after the header, or at the end of the file.
        let at_end = hunk.after.is_empty() || hunk.is_at_end;
        return Ok(if at_end { lines.len() } else { from });
    }
    let found = position(lines, &hunk.old, from, hunk.is_at_end);
    found.ok_or_else(|| {
        let mut shown: Vec<_> = hunk.old.iter().take(MAX_SHOWN).cloned().collect();
        if hunk.old.len() > MAX_SHOWN {
            shown.push("…".to_owned());
        }
        format!(
            "these lines are not in the file in this order (read it again):\n{}",
            shown.join("\n")
        )
    })
}

/// How lines are compared, the strictest way first.
const COMPARISONS: [fn(&str) -> &str; 3] = [|line| line, str::trim_end, str::trim];

/// Where consecutive lines are, from a line on. If they should end with the file, the end is tried
/// first.
fn position(lines: &[String], wanted: &[String], from: usize, is_at_end: bool) -> Option<usize> {
    let last = lines.len().checked_sub(wanted.len())?;
    let is_here = |at: usize, view: fn(&str) -> &str| {
        let pairs = lines[at..].iter().zip(wanted);
        pairs
            .into_iter()
            .all(|(line, wanted)| view(line) == view(wanted))
    };
    for view in COMPARISONS {
        if is_at_end && last >= from && is_here(last, view) {
            return Some(last);
        }
        if let Some(at) = (from..=last).find(|&at| is_here(at, view)) {
            return Some(at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hunk(after: &[&str], old: &[&str], new: &[&str]) -> Hunk {
        let lines = |all: &[&str]| all.iter().map(|&line| line.to_owned()).collect();
        Hunk {
            after: lines(after),
            old: lines(old),
            new: lines(new),
            is_at_end: false,
        }
    }

    #[test]
    fn hunks_are_found_in_order() {
        let text = "fn a() {\n    x\n}\nfn b() {\n    x\n}\n";
        let second = hunk(&["fn b() {"], &["    x"], &["    y"]);
        assert_eq!(
            apply(text, &[second]).unwrap(),
            "fn a() {\n    x\n}\nfn b() {\n    y\n}\n"
        );
        let both = [
            hunk(&[], &["    x"], &["    1"]),
            hunk(&[], &["    x"], &["    2"]),
        ];
        assert_eq!(
            apply(text, &both).unwrap(),
            "fn a() {\n    1\n}\nfn b() {\n    2\n}\n"
        );
        // Whitespace that the model got wrong.
        let loose = hunk(&[], &["x  "], &["    y"]);
        assert!(
            apply(text, &[loose])
                .unwrap()
                .starts_with("fn a() {\n    y\n")
        );
        let at_end = Hunk {
            is_at_end: true,
            ..hunk(&[], &["    x", "}"], &["    z", "}"])
        };
        assert!(
            apply(text, &[at_end])
                .unwrap()
                .ends_with("fn b() {\n    z\n}\n")
        );
        assert_eq!(apply("a", &[hunk(&[], &[], &["b"])]).unwrap(), "a\nb");
        assert_eq!(apply("", &[hunk(&[], &[], &["b"])]).unwrap(), "b\n");
        assert_eq!(apply("a\n", &[hunk(&[], &["a"], &[])]).unwrap(), "");
    }

    #[test]
    fn missing_lines_are_shown() {
        let why = apply("a\nb\n", &[hunk(&[], &["b", "a"], &[])]).unwrap_err();
        assert!(why.ends_with("b\na"), "{why}");
        let why = apply("a\n", &[hunk(&["fn x"], &["a"], &[])]).unwrap_err();
        assert!(why.contains("`fn x`"), "{why}");
    }

    proptest! {
        #[test]
        fn replacing_the_whole_text_gives_the_new_text(
            old in proptest::collection::vec("[ab ]{0,3}", 1..6),
            new in proptest::collection::vec("[ab ]{0,3}", 1..6),
        ) {
            let text = format!("{}\n", old.join("\n"));
            let expected = format!("{}\n", new.join("\n"));
            let hunk = Hunk { old, new, ..Hunk::default() };
            prop_assert_eq!(apply(&text, &[hunk]).unwrap(), expected);
        }
    }
}
