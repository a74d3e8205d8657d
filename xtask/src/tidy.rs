//! House rules that no other tool checks: Markdown links lead somewhere,
//! every module says what it is for, and nothing names a path of one machine.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::place;

/// Home folders are those of whoever wrote the line. In halves, so that this
/// file does not break its own rule.
const HOMES: [&str; 3] = [
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/Us", "ers/"),
];

/// Checks every text file of the workspace.
pub(crate) fn check() -> Result<()> {
    let root = place::workspace();
    let mut files = Vec::new();
    collect(&root, &mut files)?;
    files.sort();
    let mut faults = Vec::new();
    for file in files {
        // What is not UTF-8 is data, which these rules are not about.
        let Ok(text) = fs::read_to_string(&file) else {
            continue;
        };
        let name = file
            .strip_prefix(&root)
            .unwrap_or(&file)
            .display()
            .to_string();
        let exists = |link: &str| file.with_file_name("").join(link).exists();
        let found = faults_in(&name, &text, exists);
        faults.extend(found.map(|(line, fault)| format!("{name}:{line}: {fault}")));
    }
    if !faults.is_empty() {
        bail!("{} to put right:\n  {}", faults.len(), faults.join("\n  "));
    }
    Ok(())
}

/// All files below `folder`, without build output and version control.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let cannot = || format!("cannot read the folder {}", folder.display());
    for entry in fs::read_dir(folder).with_context(cannot)? {
        let entry = entry.with_context(cannot)?;
        let kind = entry.file_type().with_context(cannot)?;
        if kind.is_file() {
            files.push(entry.path());
        } else if kind.is_dir() && entry.file_name() != ".git" && entry.file_name() != "target" {
            collect(&entry.path(), files)?;
        }
    }
    Ok(())
}

/// The faults of one file, each with its line, counted from 1.
fn faults_in<'a>(
    name: &str,
    text: &'a str,
    exists: impl Fn(&str) -> bool + 'a,
) -> impl Iterator<Item = (usize, String)> + 'a {
    let extension = Path::new(name).extension().unwrap_or_default();
    // The tests of a module are for what the module is for.
    let is_module = extension == "rs" && !name.ends_with("/tests.rs");
    let is_markdown = extension == "md";
    let silent = is_module && !text.starts_with("//!");
    let silent = silent.then(|| {
        (
            1,
            "open the module with `//!` and what it is for".to_owned(),
        )
    });
    let lines = text.lines().enumerate().flat_map(move |(index, line)| {
        let home = HOMES.iter().find(|home| line.contains(**home));
        let home =
            home.map(|home| format!("names a folder below {home}, which only one machine has"));
        let links = if is_markdown {
            links_in(line)
        } else {
            Vec::new()
        };
        let broken = links.into_iter().filter(|link| !exists(link));
        let broken: Vec<_> = broken
            .map(|link| format!("links to {link}, which is not there"))
            .collect();
        home.into_iter()
            .chain(broken)
            .map(move |fault| (index + 1, fault))
    });
    silent.into_iter().chain(lines)
}

/// The files that a line of Markdown links to, without anchors and addresses.
fn links_in(line: &str) -> Vec<&str> {
    line.split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .filter_map(|link| link.split('#').next())
        .filter(|link| !link.is_empty() && !link.contains(':'))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(name: &str, text: &str) -> Vec<usize> {
        faults_in(name, text, |link| link == "there.md")
            .map(|(line, _)| line)
            .collect()
    }

    #[test]
    fn a_link_must_lead_to_a_file_and_an_address_is_left_alone() {
        let text =
            "[a](there.md#part)\n[b](gone.md) [c](there.md)\n[d](https://example.org) [e](#here)\n";
        assert_eq!(faults("docs/x.md", text), [2]);
        assert_eq!(faults("x.txt", text), [0; 0]);
    }

    #[test]
    fn a_module_opens_by_saying_what_it_is_for() {
        assert_eq!(faults("src/x.rs", "use std::fs;\n"), [1]);
        assert_eq!(faults("src/x.rs", "//! Files.\n"), [0; 0]);
        assert_eq!(faults("src/x/tests.rs", "use super::*;\n"), [0; 0]);
    }

    #[test]
    fn a_home_folder_is_nobody_elses() {
        let text = format!("fine\n{}somebody/x\n", HOMES[0]);
        assert_eq!(faults("notes.txt", &text), [2]);
    }
}
