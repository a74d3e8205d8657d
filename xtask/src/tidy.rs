//! Rules that no other tool checks: relative Markdown links resolve, every module has a `//!`
//! comment, and no file contains a path of a home directory.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::paths;

/// Home directories. Written in two parts, so that this file passes its own check.
const HOMES: [&str; 3] = [
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/Us", "ers/"),
];

/// Checks every text file of the workspace.
pub(crate) fn check() -> Result<()> {
    let root = paths::workspace();
    let mut files = Vec::new();
    collect(&root, &mut files)?;
    files.sort();
    let mut findings = Vec::new();
    for file in files {
        // Binary files are not checked.
        let Ok(text) = fs::read_to_string(&file) else {
            continue;
        };
        let name = file
            .strip_prefix(&root)
            .unwrap_or(&file)
            .display()
            .to_string();
        let exists = |link: &str| file.with_file_name("").join(link).exists();
        let found = findings_in(&name, &text, exists);
        findings.extend(found.map(|(line, finding)| format!("{name}:{line}: {finding}")));
    }
    if !findings.is_empty() {
        bail!("{} findings:\n  {}", findings.len(), findings.join("\n  "));
    }
    Ok(())
}

/// Collects all files below a directory, without build output and version control.
fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let cannot = || format!("cannot read the directory {}", directory.display());
    for entry in fs::read_dir(directory).with_context(cannot)? {
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

/// Findings in one file, each with its line number.
fn findings_in<'a>(
    name: &str,
    text: &'a str,
    exists: impl Fn(&str) -> bool + 'a,
) -> impl Iterator<Item = (usize, String)> + 'a {
    let extension = Path::new(name).extension().unwrap_or_default();
    // A module of tests needs no description.
    let is_module = extension == "rs" && !name.ends_with("/tests.rs");
    let is_markdown = extension == "md";
    let undocumented = is_module && !text.starts_with("//!");
    let undocumented = undocumented.then(|| (1, "the module has no `//!` comment".to_owned()));
    let lines = text.lines().enumerate().flat_map(move |(index, line)| {
        let home = HOMES.iter().find(|home| line.contains(**home));
        let home = home.map(|home| format!("contains a path below {home}"));
        let links = if is_markdown {
            links_in(line)
        } else {
            Vec::new()
        };
        let broken = links.into_iter().filter(|link| !exists(link));
        let broken: Vec<_> = broken.map(|link| format!("broken link: {link}")).collect();
        home.into_iter()
            .chain(broken)
            .map(move |finding| (index + 1, finding))
    });
    undocumented.into_iter().chain(lines)
}

/// Relative link targets in a line of Markdown, without anchors.
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

    fn finding_lines(name: &str, text: &str) -> Vec<usize> {
        findings_in(name, text, |link| link == "there.md")
            .map(|(line, _)| line)
            .collect()
    }

    #[test]
    fn relative_links_must_resolve_and_urls_are_ignored() {
        let text =
            "[a](there.md#part)\n[b](gone.md) [c](there.md)\n[d](https://example.org) [e](#here)\n";
        assert_eq!(finding_lines("docs/x.md", text), [2]);
        assert_eq!(finding_lines("x.txt", text), [0; 0]);
    }

    #[test]
    fn module_needs_a_description() {
        assert_eq!(finding_lines("src/x.rs", "use std::fs;\n"), [1]);
        assert_eq!(finding_lines("src/x.rs", "//! Files.\n"), [0; 0]);
        assert_eq!(finding_lines("src/x/tests.rs", "use super::*;\n"), [0; 0]);
    }

    #[test]
    fn home_directory_is_reported() {
        let text = format!("fine\n{}ada/x\n", HOMES[0]);
        assert_eq!(finding_lines("notes.txt", &text), [2]);
    }
}
