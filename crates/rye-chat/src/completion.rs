//! Completion of commands, models, threads and files.

use std::path::Path;

use crate::command::COMMANDS;

/// Choices in the menu.
const MAX_CHOICES: usize = 8;
/// Files of the workspace that are listed.
const MAX_FILES: usize = 20_000;

/// Completions for the word before the cursor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Menu {
    /// Bytes before the cursor that a choice replaces.
    pub(crate) replaced_bytes: usize,
    /// Replacement and description.
    pub(crate) choices: Vec<(String, String)>,
    pub(crate) selected: usize,
}

/// Names to complete from.
#[derive(Debug, Clone, Default)]
pub(crate) struct Completions {
    pub(crate) models: Vec<String>,
    pub(crate) threads: Vec<String>,
    pub(crate) files: Vec<String>,
}

/// The completions for the text before the cursor.
pub(crate) fn menu(before: &str, known: &Completions) -> Option<Menu> {
    if let Some(rest) = before.strip_prefix('/')
        && !before.contains('\n')
    {
        return match rest.split_once(' ') {
            None => complete_command(rest),
            Some(("model", part)) => complete_name(part, &known.models),
            Some(("thread", part)) => complete_name(part, &known.threads),
            Some(_) => None,
        };
    }
    let part = file_part(before)?;
    let mut menu = complete_name(part.trim_start_matches('"'), &known.files)?;
    // Replace everything after the `@`, because a name with spaces is quoted.
    menu.replaced_bytes = part.len();
    for (name, _) in &mut menu.choices {
        *name = quote_name(name);
    }
    let complete = matches!(menu.choices.as_slice(), [(only, _)] if only == part);
    (!complete).then_some(menu)
}

/// The text from the last `@` that starts a word up to the cursor: a word, or text in quotes
/// that are still open.
fn file_part(before: &str) -> Option<&str> {
    let at = before.rmatch_indices('@').map(|(at, _)| at).find(|at| {
        let last = before[..*at].chars().next_back();
        last.is_none_or(char::is_whitespace)
    })?;
    let part = &before[at + 1..];
    let is_name = match part.strip_prefix('"') {
        Some(quoted) => !quoted.contains(['"', '\n']),
        None => !part.contains(char::is_whitespace),
    };
    is_name.then_some(part)
}

/// A file name as it is written after an `@`.
fn quote_name(name: &str) -> String {
    match name.strip_suffix('/') {
        // The quotes stay open, to complete a file in the directory.
        Some(directory) if directory.contains(char::is_whitespace) => format!("\"{name}"),
        None if name.contains(char::is_whitespace) => format!("\"{name}\""),
        _ => name.to_owned(),
    }
}

fn complete_command(part: &str) -> Option<Menu> {
    let matches = COMMANDS.iter().filter(|(name, ..)| name.starts_with(part));
    let choices = matches.map(|(name, arguments, description)| {
        let end = if arguments.is_empty() { "" } else { " " };
        (
            format!("{name}{end}"),
            format!("{arguments} {description}").trim().to_owned(),
        )
    });
    menu_for(part, choices.collect())
}

/// Names that contain the part, best matches first.
fn complete_name(part: &str, all: &[String]) -> Option<Menu> {
    let part_lower = part.to_lowercase();
    let mut matches: Vec<_> = all
        .iter()
        .filter_map(|name| Some((rank(name, &part_lower)?, name)))
        .collect();
    matches.sort_by(|(a, left), (b, right)| (a, left.len(), left).cmp(&(b, right.len(), right)));
    let choices = matches.into_iter().take(MAX_CHOICES);
    menu_for(
        part,
        choices
            .map(|(_, name)| (name.clone(), String::new()))
            .collect(),
    )
}

/// How well a name matches; lower is better.
fn rank(name: &str, part: &str) -> Option<u8> {
    let name = name.to_lowercase();
    let last = name
        .trim_end_matches('/')
        .rsplit('/')
        .next()
        .unwrap_or(&name);
    match () {
        () if name.starts_with(part) => Some(0),
        () if last.starts_with(part) => Some(1),
        () if name.contains(part) => Some(2),
        () => None,
    }
}

fn menu_for(part: &str, choices: Vec<(String, String)>) -> Option<Menu> {
    // A word that is complete needs no menu.
    let complete = matches!(choices.as_slice(), [(only, _)] if only.trim_end() == part);
    (!choices.is_empty() && !complete).then_some(Menu {
        replaced_bytes: part.len(),
        choices,
        selected: 0,
    })
}

/// The files and directories of the workspace, without ignored ones.
pub(crate) fn list_files(workspace: &Path) -> Vec<String> {
    let walk = ignore::WalkBuilder::new(workspace)
        .require_git(false)
        .build();
    let found = walk
        .filter_map(Result::ok)
        .filter(|entry| entry.depth() > 0);
    let names = found.filter_map(|entry| {
        let name = entry
            .path()
            .strip_prefix(workspace)
            .ok()?
            .to_str()?
            .to_owned();
        let is_directory = entry.file_type().is_some_and(|kind| kind.is_dir());
        Some(if is_directory { name + "/" } else { name })
    });
    let mut names: Vec<_> = names.take(MAX_FILES).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completion_depends_on_the_context_of_the_word() {
        let names = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect();
        let known = Completions {
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
