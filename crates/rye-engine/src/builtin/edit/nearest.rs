//! Why something is not found, and what stands there instead.

use std::collections::HashMap;

use similar::{ChangeTag, TextDiff};

use super::apply::line_of;

/// How many lines of a file are compared letter by letter.
const COMPARED: usize = 20_000;
/// How much of a line is.
const LETTERS: usize = 200;
/// How alike two lines are at least, if one is taken for the other.
const ALIKE: f64 = 0.5;
/// How long a text is at least, if that it stands in the file says something.
const TELLING: usize = 8;
/// How many lines are shown.
const SHOWN: usize = 40;

/// Why `old` is not in the text, and what may have been meant.
pub(super) fn explain(text: &str, old: &str, new: &str) -> String {
    let missing = "`old` is not in the file";
    if text.is_empty() {
        return format!("{missing}, which is empty: use `write`");
    }
    if let Some(rest) = without_numbers(old).filter(|rest| text.contains(rest.as_str())) {
        let line = line_of(text, text.find(&rest).unwrap_or_default());
        return format!(
            "{missing} with the line numbers that `read` shows: leave them and the tab out \
             (it stands at line {line})"
        );
    }
    if let Some(found) = in_other_spaces(text, old) {
        return format!("{missing}; but for whitespace it stands here: {found}");
    }
    if let Some(place) = unescaped(old).and_then(|plain| text.find(&plain)) {
        let line = line_of(text, place);
        return format!("{missing}: it is escaped once too often (else it stands at line {line})");
    }
    if new.trim().len() >= TELLING
        && let Some(place) = text.find(new)
    {
        let line = line_of(text, place);
        return format!("{missing}; `new` stands at line {line}: was it changed before?");
    }
    match most_alike(text, old) {
        Some((first, window)) => {
            let difference = difference(first, &window, old);
            format!(
                "{missing}; the nearest is line {first} (- is the file, + is `old`):\n{difference}"
            )
        }
        None => format!("{missing}, nor anything like it: `read` the file again"),
    }
}

/// Lines as `read` shows them, without what it puts before them.
fn without_numbers(old: &str) -> Option<String> {
    let strip = |line: &str| {
        let (number, rest) = line.split_once('\t')?;
        let is_number = !number.is_empty() && number.trim().bytes().all(|it| it.is_ascii_digit());
        is_number.then(|| rest.to_owned())
    };
    let lines: Option<Vec<_>> = old.trim_end_matches('\n').split('\n').map(strip).collect();
    let end = if old.ends_with('\n') { "\n" } else { "" };
    Some(lines?.join("\n") + end)
}

fn unescaped(old: &str) -> Option<String> {
    let plain = old
        .replace("\\n", "\n")
        .replace("\\t", "\t")
        .replace("\\\"", "\"");
    (plain != old).then_some(plain)
}

/// A line with one space where there is any whitespace.
fn squeezed(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The lines that differ from `old` in whitespace alone, and how they do.
fn in_other_spaces(text: &str, old: &str) -> Option<String> {
    let wanted: Vec<_> = old.trim_matches('\n').split('\n').collect();
    let squeezed_old: Vec<_> = wanted.iter().map(|line| squeezed(line)).collect();
    if squeezed_old.iter().all(String::is_empty) {
        return None;
    }
    let lines: Vec<_> = text.split('\n').collect();
    let squeezed_text: Vec<_> = lines.iter().map(|line| squeezed(line)).collect();
    let last = wanted.len() - 1;
    let fits = |window: &&[String]| {
        let mut pairs = window.iter().zip(&squeezed_old).enumerate();
        pairs.all(
            |(number, (line, old))| match (number == 0, number == last) {
                (true, true) => line.contains(old.as_str()),
                (true, false) => line.ends_with(old.as_str()),
                (false, true) => line.starts_with(old.as_str()),
                (false, false) => line == old,
            },
        )
    };
    let at = squeezed_text
        .windows(wanted.len())
        .position(|window| fits(&window))?;
    let found = &lines[at..at + wanted.len()];
    let mut pairs = found.iter().zip(&wanted).enumerate();
    let how = pairs.find_map(|(number, (line, old))| {
        let same = match (number == 0, number == last) {
            (true, true) => line.contains(old),
            (true, false) => line.ends_with(old),
            (false, true) => line.starts_with(old),
            (false, false) => line == old,
        };
        (!same).then(|| whitespace(line, old))
    });
    let how = how.unwrap_or("the whitespace differs");
    Some(format!("{how}\n{}", numbered(at + 1, found)))
}

/// How two lines differ that are the same but for whitespace.
fn whitespace(line: &str, old: &str) -> &'static str {
    fn indent(line: &str) -> &str {
        &line[..line.len() - line.trim_start().len()]
    }
    fn end(line: &str) -> &str {
        &line[line.trim_end().len()..]
    }
    let (there, here) = (indent(line), indent(old));
    match (there.contains('\t'), here.contains('\t')) {
        (true, false) if there != here => "the file is indented with tabs, `old` with spaces",
        (false, true) if there != here => "the file is indented with spaces, `old` with tabs",
        _ if end(line).contains('\r') != end(old).contains('\r') => {
            "the line ends differ: one is CRLF"
        }
        _ if there != here => "the file is indented by more or less than `old`",
        _ if end(line) != end(old) => "there is whitespace at the end of a line",
        _ => "the whitespace within a line differs",
    }
}

fn numbered(first: usize, lines: &[&str]) -> String {
    let shown = lines.iter().take(SHOWN).enumerate();
    let lines: Vec<_> = shown
        .map(|(at, line)| format!("{}\t{line}", first + at))
        .collect();
    lines.join("\n")
}

/// The lines that have most in common with `old`, with the number of the first.
fn most_alike(text: &str, old: &str) -> Option<(usize, String)> {
    let lines: Vec<_> = text.lines().collect();
    let wanted: Vec<_> = old.trim_matches('\n').lines().collect();
    let first = shared_lines(&lines, &wanted).or_else(|| alike_line(&lines, &wanted))?;
    let end = (first + wanted.len()).min(lines.len());
    Some((first + 1, lines[first..end].join("\n")))
}

/// Where most lines of `old` stand in their order.
fn shared_lines(lines: &[&str], wanted: &[&str]) -> Option<usize> {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, line) in wanted.iter().enumerate() {
        if line.trim().len() > 2 {
            places.entry(line.trim()).or_default().push(at);
        }
    }
    let mut votes: HashMap<usize, usize> = HashMap::new();
    for (at, line) in lines.iter().enumerate() {
        for in_old in places.get(line.trim()).into_iter().flatten() {
            if let Some(first) = at.checked_sub(*in_old) {
                *votes.entry(first).or_default() += 1;
            }
        }
    }
    // Of several the first.
    let best = votes
        .into_iter()
        .max_by_key(|(first, votes)| (*votes, usize::MAX - first));
    best.map(|(first, _)| first)
}

/// Where the longest line of `old` stands, about.
fn alike_line(lines: &[&str], wanted: &[&str]) -> Option<usize> {
    let (in_old, longest) = wanted
        .iter()
        .enumerate()
        .max_by_key(|(_, line)| line.trim().len())?;
    let start = |line: &str| line.trim().chars().take(LETTERS).collect::<String>();
    let longest = start(longest);
    let mut best = None;
    for (at, line) in lines.iter().take(COMPARED).enumerate() {
        let alike = strsim::sorensen_dice(&start(line), &longest);
        if alike >= best.map_or(ALIKE, |(_, best)| best) && best.is_none_or(|(_, it)| alike > it) {
            best = Some((at, alike));
        }
    }
    best.map(|(at, _)| at.saturating_sub(in_old))
}

/// The lines of the file against those of `old`.
fn difference(first: usize, window: &str, old: &str) -> String {
    let old = old.trim_matches('\n');
    let diff = TextDiff::from_lines(window, old);
    let mut lines = Vec::new();
    for change in diff.iter_all_changes().take(SHOWN) {
        let line = change.value().trim_end_matches('\n');
        let sign = match change.tag() {
            ChangeTag::Equal => ' ',
            ChangeTag::Delete => '-',
            ChangeTag::Insert => '+',
        };
        let number = change.old_index().map(|at| (first + at).to_string());
        lines.push(format!("{sign} {}\t{line}", number.unwrap_or_default()));
    }
    lines.join("\n")
}
