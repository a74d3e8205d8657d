//! Explains why a search text is not found, with the closest match.

use std::collections::HashMap;

use similar::{ChangeTag, TextDiff};

use super::apply::line_number;

/// Maximum number of lines to compare by similarity.
const MAX_COMPARED_LINES: usize = 20_000;
/// Maximum number of characters of a line to compare.
const MAX_COMPARED_CHARS: usize = 200;
/// Minimum similarity of two lines.
const MIN_SIMILARITY: f64 = 0.5;
/// Minimum length of `new` for its presence in the file to be significant.
const MIN_SIGNIFICANT_LEN: usize = 8;
/// Maximum number of lines to show.
const MAX_LINES: usize = 40;

/// The message for a search text that is not in the file, with the likely cause.
pub(super) fn not_found_message(text: &str, old: &str, new: &str) -> String {
    let missing = "`old` is not in the file";
    if text.is_empty() {
        return format!("{missing}, which is empty: use `write`");
    }
    if let Some(rest) = without_numbers(old).filter(|rest| text.contains(rest.as_str())) {
        let line = line_number(text, text.find(&rest).unwrap_or_default());
        return format!(
            "{missing} with the line numbers of `read`: remove them and the tabs \
             (then it matches at line {line})"
        );
    }
    if let Some(found) = whitespace_match(text, old) {
        return format!("{missing}; it matches except for whitespace: {found}");
    }
    if let Some(position) = unescape(old).and_then(|unescaped| text.find(&unescaped)) {
        let line = line_number(text, position);
        return format!("{missing}: it is over-escaped (unescaped, it matches at line {line})");
    }
    if new.trim().len() >= MIN_SIGNIFICANT_LEN
        && let Some(position) = text.find(new)
    {
        let line = line_number(text, position);
        return format!("{missing}; `new` is at line {line}: was the edit already made?");
    }
    match closest_match(text, old) {
        Some((first, window)) => {
            let difference = diff_lines(first, &window, old);
            format!(
                "{missing}; the closest match is line {first} (- is the file, + is `old`):\n{difference}"
            )
        }
        None => format!("{missing}, nor anything similar: `read` the file again"),
    }
}

/// Removes the line numbers that `read` shows; `None` if a line has none.
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

fn unescape(old: &str) -> Option<String> {
    let unescaped = old
        .replace("\\n", "\n")
        .replace("\\t", "\t")
        .replace("\\\"", "\"");
    (unescaped != old).then_some(unescaped)
}

/// Collapses whitespace to single spaces.
fn collapse_whitespace(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The lines that differ from `old` only in whitespace, with a description.
fn whitespace_match(text: &str, old: &str) -> Option<String> {
    let old_lines: Vec<_> = old.trim_matches('\n').split('\n').collect();
    let collapsed_old: Vec<_> = old_lines
        .iter()
        .map(|line| collapse_whitespace(line))
        .collect();
    if collapsed_old.iter().all(String::is_empty) {
        return None;
    }
    let lines: Vec<_> = text.split('\n').collect();
    let collapsed_text: Vec<_> = lines.iter().map(|line| collapse_whitespace(line)).collect();
    let last = old_lines.len() - 1;
    let matches = |window: &&[String]| {
        let mut pairs = window.iter().zip(&collapsed_old).enumerate();
        pairs.all(
            |(number, (line, old))| match (number == 0, number == last) {
                (true, true) => line.contains(old.as_str()),
                (true, false) => line.ends_with(old.as_str()),
                (false, true) => line.starts_with(old.as_str()),
                (false, false) => line == old,
            },
        )
    };
    let at = collapsed_text
        .windows(old_lines.len())
        .position(|window| matches(&window))?;
    let found = &lines[at..at + old_lines.len()];
    let mut pairs = found.iter().zip(&old_lines).enumerate();
    let description = pairs.find_map(|(number, (line, old))| {
        let same = match (number == 0, number == last) {
            (true, true) => line.contains(old),
            (true, false) => line.ends_with(old),
            (false, true) => line.starts_with(old),
            (false, false) => line == old,
        };
        (!same).then(|| describe_whitespace(line, old))
    });
    let description = description.unwrap_or("the whitespace differs");
    Some(format!("{description}\n{}", numbered(at + 1, found)))
}

/// Describes the whitespace difference of two lines.
fn describe_whitespace(line: &str, old: &str) -> &'static str {
    fn indent(line: &str) -> &str {
        &line[..line.len() - line.trim_start().len()]
    }
    fn end(line: &str) -> &str {
        &line[line.trim_end().len()..]
    }
    let (file_indent, old_indent) = (indent(line), indent(old));
    match (file_indent.contains('\t'), old_indent.contains('\t')) {
        (true, false) if file_indent != old_indent => {
            "the file is indented with tabs, `old` with spaces"
        }
        (false, true) if file_indent != old_indent => {
            "the file is indented with spaces, `old` with tabs"
        }
        _ if end(line).contains('\r') != end(old).contains('\r') => {
            "the line endings differ: one is CRLF"
        }
        _ if file_indent != old_indent => "the file is indented by more or less than `old`",
        _ if end(line) != end(old) => "there is whitespace at the end of a line",
        _ => "the whitespace within a line differs",
    }
}

fn numbered(first: usize, lines: &[&str]) -> String {
    let shown = lines.iter().take(MAX_LINES).enumerate();
    let lines: Vec<_> = shown
        .map(|(at, line)| format!("{}\t{line}", first + at))
        .collect();
    lines.join("\n")
}

/// The lines most similar to `old`, with the number of the first.
fn closest_match(text: &str, old: &str) -> Option<(usize, String)> {
    let lines: Vec<_> = text.lines().collect();
    let old_lines: Vec<_> = old.trim_matches('\n').lines().collect();
    let first = shared_lines(&lines, &old_lines).or_else(|| similar_line(&lines, &old_lines))?;
    let end = (first + old_lines.len()).min(lines.len());
    Some((first + 1, lines[first..end].join("\n")))
}

/// Index at which most lines of `old` match in order.
fn shared_lines(lines: &[&str], old_lines: &[&str]) -> Option<usize> {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, line) in old_lines.iter().enumerate() {
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
    // The first of several.
    let best = votes
        .into_iter()
        .max_by_key(|(first, votes)| (*votes, usize::MAX - first));
    best.map(|(first, _)| first)
}

/// Index at which the longest line of `old` matches approximately.
fn similar_line(lines: &[&str], old_lines: &[&str]) -> Option<usize> {
    let (in_old, longest) = old_lines
        .iter()
        .enumerate()
        .max_by_key(|(_, line)| line.trim().len())?;
    let start = |line: &str| {
        line.trim()
            .chars()
            .take(MAX_COMPARED_CHARS)
            .collect::<String>()
    };
    let longest = start(longest);
    let mut best = None;
    for (at, line) in lines.iter().take(MAX_COMPARED_LINES).enumerate() {
        let similarity = strsim::sorensen_dice(&start(line), &longest);
        if similarity >= best.map_or(MIN_SIMILARITY, |(_, best)| best)
            && best.is_none_or(|(_, it)| similarity > it)
        {
            best = Some((at, similarity));
        }
    }
    best.map(|(at, _)| at.saturating_sub(in_old))
}

/// Diff of the lines of the file and `old`.
fn diff_lines(first: usize, window: &str, old: &str) -> String {
    let old = old.trim_matches('\n');
    let diff = TextDiff::from_lines(window, old);
    let mut lines = Vec::new();
    for change in diff.iter_all_changes().take(MAX_LINES) {
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
