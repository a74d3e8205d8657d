//! Replacements in a text, all or none.

use serde::Deserialize;

use super::document::Document;
use super::nearest;

/// How many line numbers are told.
const TOLD: usize = 20;

/// What is to stand in the place of what.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Change {
    pub(super) old: String,
    pub(super) new: String,
    #[serde(default)]
    pub(super) all: bool,
}

/// The document with all changes, one after the other, and how many places were changed;
/// or why not, in words.
pub(super) fn apply(document: &Document, changes: &[Change]) -> Result<(Document, usize), String> {
    let mut text = document.text.clone();
    let mut places = 0;
    for (number, change) in changes.iter().enumerate() {
        let replaced = replace(document, &text, change).map_err(|why| match changes.len() {
            1 => why,
            many => format!(
                "edit {} of {many}: {why}\nNothing was changed, by the other edits neither.",
                number + 1
            ),
        });
        let (next, count) = replaced?;
        (text, places) = (next, places + count);
    }
    Ok((document.with(text), places))
}

fn replace(document: &Document, text: &str, change: &Change) -> Result<(String, usize), String> {
    if change.old.is_empty() {
        return Err("`old` is empty: name what is to be replaced, or use `write`".to_owned());
    }
    let (mut old, mut new) = (document.fit(&change.old), document.fit(&change.new));
    if old == new {
        return Err("`old` and `new` are the same".to_owned());
    }
    if document.is_mixed() && !text.contains(&*old) {
        let crlf = |text: &str| text.replace("\r\n", "\n").replace('\n', "\r\n");
        (old, new) = (crlf(&old).into(), crlf(&new).into());
    }
    if change.all {
        return match text.matches(&*old).count() {
            0 => Err(nearest::explain(text, &old, &new)),
            count => Ok((text.replace(&*old, &new), count)),
        };
    }
    let places = places(text, &old);
    match places.as_slice() {
        [] => Err(nearest::explain(text, &old, &new)),
        [place] => {
            let (before, after) = (&text[..*place], &text[place + old.len()..]);
            Ok(([before, &new, after].concat(), 1))
        }
        many => Err(several(text, many)),
    }
}

/// Where something stands, also where it overlaps itself: which of two is meant is not
/// known then, either.
fn places(text: &str, old: &str) -> Vec<usize> {
    let step = old.chars().next().map_or(1, char::len_utf8);
    let mut places = Vec::new();
    let mut from = 0;
    while let Some(at) = text.get(from..).and_then(|rest| rest.find(old)) {
        places.push(from + at);
        from += at + step;
        if places.len() > 10_000 {
            break;
        }
    }
    places
}

fn several(text: &str, places: &[usize]) -> String {
    let told = places.iter().take(TOLD);
    let mut lines: Vec<_> = told
        .map(|place| line_of(text, *place).to_string())
        .collect();
    lines.dedup();
    let word = if lines.len() == 1 {
        "line"
    } else {
        "the lines"
    };
    let more = match places.len().saturating_sub(TOLD) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "`old` stands at {} places, in {word} {}{more}: add lines around it until it is \
         only one, or set `all`",
        places.len(),
        lines.join(", "),
    )
}

/// The number of the line that a byte is in.
pub(super) fn line_of(text: &str, place: usize) -> usize {
    text[..place].matches('\n').count() + 1
}
