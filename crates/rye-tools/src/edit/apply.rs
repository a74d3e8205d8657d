//! Applies replacements to a text, all or none.

use serde::Deserialize;

use super::document::Document;
use super::nearest;

/// Maximum number of line numbers in an error message.
const MAX_LISTED: usize = 20;

/// One replacement.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Change {
    pub(super) old: String,
    pub(super) new: String,
    #[serde(default)]
    pub(super) all: bool,
}

/// Applies the changes in order. Returns the new document and the number of replacements; the
/// error is a message for the model.
pub(super) fn apply(document: &Document, changes: &[Change]) -> Result<(Document, usize), String> {
    let mut text = document.text.clone();
    let mut replacements = 0;
    for (number, change) in changes.iter().enumerate() {
        let replaced = replace(document, &text, change).map_err(|why| match changes.len() {
            1 => why,
            many => format!("edit {} of {many}: {why}\nNo edit was applied.", number + 1),
        });
        let (next, count) = replaced?;
        (text, replacements) = (next, replacements + count);
    }
    Ok((document.with_text(text), replacements))
}

fn replace(document: &Document, text: &str, change: &Change) -> Result<(String, usize), String> {
    if change.old.is_empty() {
        return Err("`old` is empty: give the text to replace, or use `write`".to_owned());
    }
    let (mut old, mut new) = (
        document.normalize(&change.old),
        document.normalize(&change.new),
    );
    if old == new {
        return Err("`old` and `new` are the same".to_owned());
    }
    if document.is_mixed() && !text.contains(&*old) {
        let crlf = |text: &str| text.replace("\r\n", "\n").replace('\n', "\r\n");
        (old, new) = (crlf(&old).into(), crlf(&new).into());
    }
    if change.all {
        return match text.matches(&*old).count() {
            0 => Err(nearest::not_found_message(text, &old, &new)),
            count => Ok((text.replace(&*old, &new), count)),
        };
    }
    let occurrences = occurrences(text, &old);
    match occurrences.as_slice() {
        [] => Err(nearest::not_found_message(text, &old, &new)),
        [position] => {
            let (before, after) = (&text[..*position], &text[position + old.len()..]);
            Ok(([before, &new, after].concat(), 1))
        }
        many => Err(ambiguous_error(text, many)),
    }
}

/// Positions of all occurrences, including overlapping ones, which are ambiguous as well.
fn occurrences(text: &str, old: &str) -> Vec<usize> {
    let step = old.chars().next().map_or(1, char::len_utf8);
    let mut positions = Vec::new();
    let mut start = 0;
    while let Some(offset) = text.get(start..).and_then(|rest| rest.find(old)) {
        positions.push(start + offset);
        start += offset + step;
        if positions.len() > 10_000 {
            break;
        }
    }
    positions
}

fn ambiguous_error(text: &str, positions: &[usize]) -> String {
    let listed = positions.iter().take(MAX_LISTED);
    let mut lines: Vec<_> = listed
        .map(|position| line_number(text, *position).to_string())
        .collect();
    lines.dedup();
    let word = if lines.len() == 1 { "line" } else { "lines" };
    let more = match positions.len().saturating_sub(MAX_LISTED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "`old` occurs {} times, in {word} {}{more}: add surrounding lines to make it unique, or \
         set `all`",
        positions.len(),
        lines.join(", "),
    )
}

/// Number of the line at a byte position.
pub(super) fn line_number(text: &str, position: usize) -> usize {
    text[..position].matches('\n').count() + 1
}
