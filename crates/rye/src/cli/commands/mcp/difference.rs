//! Differences between the accepted definition of a tool and the server's current one.

use rye_host::mcp::discover::Difference;
use serde_json::{Value, json};

use crate::cli::page::{BAD, BOLD, DIM, GOOD, Page, paint, sanitize};

/// Maximum number of lines to show per side; JSON output has all.
const MAX_LINES: usize = 100;

pub(super) fn json(difference: &Difference) -> Value {
    let Difference {
        part,
        before,
        after,
    } = difference;
    json!({ "part": part, "before": before, "after": after })
}

pub(super) fn show(difference: &Difference, page: &mut Page, item: &str) {
    page.line("");
    page.line(format_args!("{} {}", paint(BOLD, item), difference.part));
    let (before, after) = (
        lines(difference.before.as_ref()),
        lines(difference.after.as_ref()),
    );
    if difference.before.is_none() {
        let text = "  the accepted value is unknown (only its hash is stored)";
        page.line(paint(DIM, text));
    }
    let same = |(a, b): &(&String, &String)| a == b;
    let first = before.iter().zip(&after).take_while(same).count();
    let (before, after) = (&before[first..], &after[first..]);
    let last = before.iter().rev().zip(after.iter().rev());
    let last = last.take_while(same).count();
    let sides = [
        ("-", BAD, &before[..before.len() - last]),
        ("+", GOOD, &after[..after.len() - last]),
    ];
    for (sign, style, lines) in sides {
        for line in lines.iter().take(MAX_LINES) {
            page.line(paint(style, format_args!("  {sign} {line}")));
        }
        if lines.len() > MAX_LINES {
            let more = lines.len() - MAX_LINES;
            page.line(paint(DIM, format_args!("  {more} more lines (use --json)")));
        }
    }
}

/// The lines of a value, with control characters escaped.
fn lines(value: Option<&Value>) -> Vec<String> {
    let text = match value {
        None | Some(Value::Null) => return Vec::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => serde_json::to_string_pretty(other).unwrap_or_default(),
    };
    text.lines()
        .map(|line| sanitize(line).into_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_lines_are_not_shown() {
        let difference = Difference {
            part: "description".to_owned(),
            before: Some("one\ntwo\nthree".into()),
            after: Some("one\n\u{1b}[2J2\nthree".into()),
        };
        let mut page = Page::new(None);
        show(&difference, &mut page, "mcp/s/t");
        let shown = anstream::adapter::strip_str(page.as_str()).to_string();
        assert_eq!(shown, "\nmcp/s/t description\n  - two\n  + \\u{1b}[2J2\n");
    }
}
