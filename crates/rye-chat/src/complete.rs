//! What a word could become: a command, a model, a thread, a file.

use std::path::Path;

use crate::command::COMMANDS;

/// How many are shown.
const MOST: usize = 8;
/// How many files are looked at.
const FILES: usize = 20_000;

/// What could be put in place of the last bytes before the cursor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Menu {
    /// How many bytes it takes the place of.
    pub(crate) bytes: usize,
    /// What, and what is said of it.
    pub(crate) choices: Vec<(String, String)>,
    pub(crate) chosen: usize,
}

/// What is known to complete from.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    pub(crate) models: Vec<String>,
    pub(crate) threads: Vec<String>,
    pub(crate) files: Vec<String>,
}

/// What the text before the cursor could go on with.
pub(crate) fn menu(before: &str, known: &Known) -> Option<Menu> {
    if let Some(rest) = before.strip_prefix('/')
        && !before.contains('\n')
    {
        return match rest.split_once(' ') {
            None => of_commands(rest),
            Some(("model", part)) => of_list(part, &known.models),
            Some(("thread", part)) => of_list(part, &known.threads),
            Some(_) => None,
        };
    }
    let part = file_part(before)?;
    let mut menu = of_list(part.trim_start_matches('"'), &known.files)?;
    // All that stands behind the `@` gives way: a name with spaces is written in quotes.
    menu.bytes = part.len();
    for (name, _) in &mut menu.choices {
        *name = as_written(name);
    }
    let done = matches!(menu.choices.as_slice(), [(only, _)] if only == part);
    (!done).then_some(menu)
}

/// What stands behind the last `@` that begins a word, up to the cursor: a word, or what is in
/// quotes that are still open.
fn file_part(before: &str) -> Option<&str> {
    let at = before.rmatch_indices('@').map(|(at, _)| at).find(|at| {
        let last = before[..*at].chars().next_back();
        last.is_none_or(char::is_whitespace)
    })?;
    let part = &before[at + 1..];
    let fits = match part.strip_prefix('"') {
        Some(quoted) => !quoted.contains(['"', '\n']),
        None => !part.contains(char::is_whitespace),
    };
    fits.then_some(part)
}

/// A file's name, as it is found behind an `@`.
fn as_written(name: &str) -> String {
    match name.strip_suffix('/') {
        // It goes on in the folder.
        Some(folder) if folder.contains(char::is_whitespace) => format!("\"{name}"),
        None if name.contains(char::is_whitespace) => format!("\"{name}\""),
        _ => name.to_owned(),
    }
}

fn of_commands(part: &str) -> Option<Menu> {
    let fitting = COMMANDS.iter().filter(|(name, ..)| name.starts_with(part));
    let choices = fitting.map(|(name, arguments, what)| {
        let end = if arguments.is_empty() { "" } else { " " };
        (
            format!("{name}{end}"),
            format!("{arguments} {what}").trim().to_owned(),
        )
    });
    shown(part, choices.collect())
}

/// Those with the part in them; those whose last piece begins with it come first.
fn of_list(part: &str, all: &[String]) -> Option<Menu> {
    let wanted = part.to_lowercase();
    let mut fitting: Vec<_> = all
        .iter()
        .filter_map(|name| Some((rank(name, &wanted)?, name)))
        .collect();
    fitting.sort_by(|(a, left), (b, right)| (a, left.len(), left).cmp(&(b, right.len(), right)));
    let choices = fitting.into_iter().take(MOST);
    shown(
        part,
        choices
            .map(|(_, name)| (name.clone(), String::new()))
            .collect(),
    )
}

fn rank(name: &str, wanted: &str) -> Option<u8> {
    let name = name.to_lowercase();
    let last = name
        .trim_end_matches('/')
        .rsplit('/')
        .next()
        .unwrap_or(&name);
    match () {
        () if name.starts_with(wanted) => Some(0),
        () if last.starts_with(wanted) => Some(1),
        () if name.contains(wanted) => Some(2),
        () => None,
    }
}

fn shown(part: &str, choices: Vec<(String, String)>) -> Option<Menu> {
    // What is written out needs no menu.
    let done = matches!(choices.as_slice(), [(only, _)] if only.trim_end() == part);
    (!choices.is_empty() && !done).then_some(Menu {
        bytes: part.len(),
        choices,
        chosen: 0,
    })
}

/// The files of a folder that ignore files do not leave out.
pub(crate) fn files(folder: &Path) -> Vec<String> {
    let walk = ignore::WalkBuilder::new(folder).require_git(false).build();
    let found = walk
        .filter_map(Result::ok)
        .filter(|entry| entry.depth() > 0);
    let names = found.filter_map(|entry| {
        let name = entry.path().strip_prefix(folder).ok()?.to_str()?.to_owned();
        let folder = entry.file_type().is_some_and(|kind| kind.is_dir());
        Some(if folder { name + "/" } else { name })
    });
    let mut names: Vec<_> = names.take(FILES).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_completed_by_where_it_stands() {
        let names = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect();
        let known = Known {
            models: names(&["openai/gpt", "anthropic/claude"]),
            threads: names(&["default", "side"]),
            files: names(&[
                "src/main.rs",
                "src/",
                "docs/main.md",
                "README.md",
                "my pictures/",
                "my pictures/a b.png",
            ]),
        };
        let table: [(&str, &[&str]); 15] = [
            ("/mo", &["model "]),
            ("/threads", &[]),
            ("/model cl", &["anthropic/claude"]),
            ("/thread ", &["side", "default"]),
            ("look at @main", &["src/main.rs", "docs/main.md"]),
            ("@src", &["src/", "src/main.rs"]),
            ("mail a@b", &[]),
            ("@pict", &["\"my pictures/", "\"my pictures/a b.png\""]),
            ("see @my", &["\"my pictures/", "\"my pictures/a b.png\""]),
            ("see @\"my pictures/a ", &["\"my pictures/a b.png\""]),
            ("@\"my pictures/a b.png\"", &[]),
            ("@\"my pictures/a b.png\" and", &[]),
            ("@README.md", &[]),
            ("plain", &[]),
            ("/zzz", &[]),
        ];
        for (before, expected) in table {
            let menu = menu(before, &known).unwrap_or_default();
            let choices: Vec<_> = menu.choices.iter().map(|(it, _)| it.as_str()).collect();
            assert_eq!(choices, expected, "{before}");
        }
    }
}
