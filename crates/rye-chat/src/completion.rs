//! Completion of commands, models, threads and files.

use std::collections::BTreeSet;
use std::time::Duration;

use rye_engine::sandbox::{Sandbox, WalkOptions};

use crate::command::COMMANDS;

/// Choices in the menu.
const MAX_CHOICES: usize = 50;
/// Files of the workspace that are listed.
const MAX_FILES: usize = 20_000;
/// Longest time for listing them.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);

/// Completions for the word before the cursor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Menu {
    /// Bytes before the cursor that a choice replaces.
    pub(crate) replaced_bytes: usize,
    pub(crate) choices: Vec<Choice>,
    pub(crate) selected: usize,
    /// The user moved the selection.
    pub(crate) is_moved: bool,
}

/// A text to complete with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) text: String,
    pub(crate) description: String,
}

impl From<&str> for Choice {
    fn from(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            description: String::new(),
        }
    }
}

/// Names to complete from.
#[derive(Debug, Clone, Default)]
pub(crate) struct Completions {
    pub(crate) models: Vec<Choice>,
    pub(crate) threads: Vec<Choice>,
    pub(crate) files: Vec<String>,
    pub(crate) sessions: Vec<Choice>,
    pub(crate) roles: Vec<Choice>,
    pub(crate) skills: Vec<Choice>,
}

/// The completions for the text before the cursor.
pub(crate) fn menu(before: &str, known: &Completions) -> Option<Menu> {
    if let Some(rest) = before.strip_prefix('/')
        && !before.contains('\n')
    {
        return match rest.split_once(' ') {
            None => complete_command(rest),
            Some(("model", part)) => complete(part, &known.models),
            Some(("thread" | "threads", part)) => complete(part, &known.threads),
            Some(("sessions" | "resume", part)) => complete(part, &known.sessions),
            Some(("role" | "roles", part)) => complete(part, &known.roles),
            Some(("skill" | "skills", part)) => complete(part, &known.skills),
            Some(_) => None,
        };
    }
    let part = file_part(before)?;
    let mut menu = complete(part.trim_start_matches('"'), &names(&known.files))?;
    // Replace everything after the `@`, because a name with spaces is quoted.
    menu.replaced_bytes = part.len();
    for choice in &mut menu.choices {
        choice.text = quote_name(&choice.text);
    }
    let complete = matches!(menu.choices.as_slice(), [only] if only.text == part);
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
    let rank = |name: &str| rank(name, part);
    let mut matches: Vec<_> = COMMANDS
        .iter()
        .filter_map(|command| Some((rank(command.0)?, command)))
        .collect();
    // If some start like this, only those, and the exact one before all.
    if matches.iter().any(|(rank, _)| *rank == 0) {
        matches.retain(|(rank, _)| *rank == 0);
    }
    matches.sort_by_key(|(rank, (name, ..))| (*name != part, *rank));
    let choices = matches
        .into_iter()
        .map(|(_, it)| it)
        .map(|(name, arguments, description)| {
            let end = if arguments.is_empty() { "" } else { " " };
            Choice {
                text: format!("{name}{end}"),
                description: format!("{arguments} {description}").trim().to_owned(),
            }
        });
    menu_for(part, choices.collect())
}

fn names(all: &[String]) -> Vec<Choice> {
    all.iter().map(|name| name.as_str().into()).collect()
}

/// Choices that match the part, best matches first; equal matches stay in their order if they
/// have descriptions, otherwise the shortest comes first.
fn complete(part: &str, all: &[Choice]) -> Option<Menu> {
    let part_lower = part.to_lowercase();
    let rank = |choice: &Choice| {
        let by_name = rank(&choice.text, &part_lower);
        let description = choice.description.to_lowercase();
        by_name.or_else(|| match () {
            () if description.contains(&part_lower) => Some(4),
            () if !description.is_empty() && is_subsequence(&part_lower, &description) => Some(5),
            () => None,
        })
    };
    let matches = all.iter().enumerate();
    let mut matches: Vec<_> = matches
        .filter_map(|(at, choice)| {
            let order = if choice.description.is_empty() {
                (choice.text.len(), choice.text.as_str())
            } else {
                (at, "")
            };
            Some((rank(choice)?, order, choice))
        })
        .collect();
    matches.sort_by_key(|(rank, order, _)| (*rank, *order));
    let choices = matches.into_iter().take(MAX_CHOICES);
    menu_for(part, choices.map(|(.., choice)| choice.clone()).collect())
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
        () if is_subsequence(part, &name) => Some(3),
        () => None,
    }
}

/// Whether a text has these letters in this order.
fn is_subsequence(letters: &str, text: &str) -> bool {
    let mut rest = text.chars();
    letters.chars().all(|letter| rest.any(|it| it == letter))
}

fn menu_for(part: &str, choices: Vec<Choice>) -> Option<Menu> {
    // A word that is complete needs no menu.
    let complete = matches!(choices.as_slice(), [only] if only.text.trim_end() == part);
    (!choices.is_empty() && !complete).then_some(Menu {
        replaced_bytes: part.len(),
        choices,
        ..Menu::default()
    })
}

/// The files and directories that the agent's tools see in the workspace, without ignored ones.
pub(crate) async fn list_files(sandbox: &dyn Sandbox) -> Vec<String> {
    let walk = WalkOptions {
        path: String::new(),
        hidden: false,
        ignored: false,
        max_files: MAX_FILES,
        time_limit: LIST_TIMEOUT,
    };
    let found = sandbox.walk(&walk).await.unwrap_or_default();
    with_directories(found.files.into_iter().map(|file| file.path))
}

/// The files and the directories that contain them, sorted.
fn with_directories(files: impl Iterator<Item = String>) -> Vec<String> {
    let mut names = BTreeSet::new();
    for file in files {
        let mut end = file.len();
        while let Some(at) = file[..end].rfind('/') {
            if !names.insert(file[..=at].to_owned()) {
                break;
            }
            end = at;
        }
        names.insert(file);
    }
    names.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completion_depends_on_the_context_of_the_word() {
        let names = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect();
        let known = Completions {
            models: vec!["openai/gpt".into(), "anthropic/claude".into()],
            threads: vec!["default".into(), "side".into()],
            files: names(&[
                "src/main.rs",
                "src/",
                "docs/main.md",
                "README.md",
                "my pictures/",
                "my pictures/a b.png",
            ]),
            sessions: vec![Choice {
                text: "4d1f83a2".to_owned(),
                description: "fix the build (1 h ago)".to_owned(),
            }],
            ..Completions::default()
        };
        let table: [(&str, &[&str]); 20] = [
            ("/sessions ", &["4d1f83a2"]),
            ("/sessions build", &["4d1f83a2"]),
            ("/sessions ftb", &["4d1f83a2"]),
            ("@rdme", &["README.md"]),
            ("/mo", &["model "]),
            ("/rvw", &["review "]),
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
            let choices: Vec<_> = menu.choices.iter().map(|it| it.text.as_str()).collect();
            assert_eq!(choices, expected, "{before}");
        }
    }

    #[test]
    fn directories_of_the_files_are_listed_once() {
        let files = ["a/b/c.rs", "a/b/d.rs", "a/e.rs", "f"];
        let files = files.iter().map(|it| (*it).to_owned());
        assert_eq!(
            with_directories(files),
            ["a/", "a/b/", "a/b/c.rs", "a/b/d.rs", "a/e.rs", "f"]
        );
    }
}
