//! Instruction files: the user's, and those of the workspace from its root down to the directory
//! in which the user works.

use std::path::{Path, PathBuf};

use rye_engine::guides::InstructionFile;
use rye_engine::sandbox::Sandbox;
use rye_engine::text::truncate_middle;
use rye_items::Space;

use super::{FileGuides, read_in_dir, read_in_sandbox};

/// Names of an instruction file, by precedence: one per directory counts.
const NAMES: [&str; 2] = ["AGENTS.md", "CLAUDE.md"];
/// Maximum size of a file in the system prompt, in bytes. The middle of a longer file is omitted.
const MAX_FILE: usize = 32 * 1024;
/// Maximum size of all files, in bytes. The most general files are omitted first.
const MAX_TOTAL: usize = 64 * 1024;

/// Loads all instruction files, the most general first.
pub(super) async fn load(guides: &FileGuides, sandbox: &dyn Sandbox) -> Vec<InstructionFile> {
    let mut files: Vec<_> = of_user(guides).into_iter().collect();
    let dirs = &guides.instruction_dirs;
    let above = dirs.above.iter();
    files.extend(above.filter_map(|dir| in_dir(&dirs.project, dir)));
    let mut dir = PathBuf::new();
    files.extend(in_workspace(guides, sandbox, &dir).await);
    for part in dirs.below.components() {
        dir.push(part);
        files.extend(in_workspace(guides, sandbox, &dir).await);
    }
    limit(files)
}

/// The user's own file.
fn of_user(guides: &FileGuides) -> Option<InstructionFile> {
    let mut roots = guides.spaces.roots_in(Space::User);
    roots.find_map(|root| {
        NAMES.iter().find_map(|name| {
            let raw = root.read(name).ok()??;
            instruction_file(format!("~/.ai/{name}"), &raw.bytes)
        })
    })
}

/// The directories from the project down to the workspace, without the workspace.
pub(super) fn dirs_above(project: &Path, workspace: &Path) -> Vec<PathBuf> {
    let above = workspace.ancestors().skip(1);
    let mut dirs: Vec<_> = above
        .take_while(|dir| dir.starts_with(project))
        .map(Path::to_owned)
        .collect();
    dirs.reverse();
    dirs
}

/// The file of a directory of the project above the workspace.
fn in_dir(project: &Path, dir: &Path) -> Option<InstructionFile> {
    NAMES.iter().find_map(|name| {
        let path = dir.join(name);
        let bytes = read_in_dir(project, &path)?;
        instruction_file(path.display().to_string(), &bytes)
    })
}

/// The file of a directory of the workspace, as the agent sees it, or else as it is on this machine.
async fn in_workspace(
    guides: &FileGuides,
    sandbox: &dyn Sandbox,
    dir: &Path,
) -> Option<InstructionFile> {
    for name in NAMES {
        let path = dir.join(name);
        let shown = path.display().to_string();
        let bytes = match read_in_sandbox(sandbox, &shown).await {
            Some(bytes) => Some(bytes),
            None => read_in_dir(&guides.workspace, &path),
        };
        let file = bytes.and_then(|bytes| instruction_file(shown, &bytes));
        if file.is_some() {
            return file;
        }
    }
    None
}

/// The file, unless it is empty.
fn instruction_file(path: String, bytes: &[u8]) -> Option<InstructionFile> {
    let text = String::from_utf8_lossy(bytes);
    let text = truncate_middle(text.trim(), MAX_FILE, None);
    (!text.is_empty()).then_some(InstructionFile { path, text })
}

/// Omits the most general files until the rest fits, and says so.
fn limit(files: Vec<InstructionFile>) -> Vec<InstructionFile> {
    let mut rest = MAX_TOTAL;
    let mut kept = files;
    for file in kept.iter_mut().rev() {
        let left = rest.checked_sub(file.text.len());
        if left.is_none() {
            let text = "[omitted: the instruction files are too long; read it if you need it]";
            text.clone_into(&mut file.text);
        }
        rest = left.unwrap_or_default();
    }
    kept
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use rye_engine::guides::Guides as _;
    use rye_items::{SYSTEM, Spaces};
    use rye_sandbox::VirtualSandbox;

    use super::*;

    fn file(path: &str, text: &str) -> InstructionFile {
        InstructionFile {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    #[tokio::test]
    async fn files_come_from_the_user_and_from_the_root_down() {
        let dir = tempfile::tempdir().unwrap();
        let [user, project] = ["user", "project"].map(|name| dir.path().join(name));
        let workspace = project.join("crates/one");
        let current = workspace.join("src/deep");
        fs::create_dir_all(user.join(".ai")).unwrap();
        fs::create_dir_all(&current).unwrap();
        let write = |path: &Path, text: &str| fs::write(path, text).unwrap();
        write(&user.join(".ai/AGENTS.md"), "Be brief.");
        write(&project.join("AGENTS.md"), "Use tabs.");
        write(&project.join("CLAUDE.md"), "not read beside AGENTS.md");
        write(&project.join("crates/CLAUDE.md"), "Crates.");
        write(&workspace.join("AGENTS.md"), " \n");
        write(&workspace.join("CLAUDE.md"), "One.");
        write(&current.join("AGENTS.md"), "Deep.");
        write(&dir.path().join("AGENTS.md"), "above the project");
        let spaces = Spaces::open(Some(&project), Some(&user), &[], &SYSTEM).unwrap();
        let guides = FileGuides::new(Arc::new(spaces), &workspace, Vec::new())
            .instructions_between(&project, Some(&current));
        let found = guides.instructions(&VirtualSandbox::new()).await;
        let project = fs::canonicalize(project).unwrap();
        let above = |path: &str| project.join(path).display().to_string();
        assert_eq!(
            found,
            [
                file("~/.ai/AGENTS.md", "Be brief."),
                file(&above("AGENTS.md"), "Use tabs."),
                file(&above("crates/CLAUDE.md"), "Crates."),
                file("CLAUDE.md", "One."),
                file("src/deep/AGENTS.md", "Deep."),
            ]
        );
    }

    #[test]
    fn long_files_are_shortened_and_the_most_general_are_omitted() {
        let long = "x".repeat(2 * MAX_FILE);
        let short = instruction_file("a".to_owned(), long.as_bytes()).unwrap();
        assert!(short.text.len() <= MAX_FILE + 200, "{}", short.text.len());
        let half = "x".repeat(MAX_TOTAL / 2);
        let files = limit(vec![file("a", "first"), file("b", &half), file("c", &half)]);
        let lengths: Vec<_> = files.iter().map(|it| it.text.len()).collect();
        assert!(files[0].text.starts_with("[omitted"), "{lengths:?}");
        assert_eq!(lengths[1..], [MAX_TOTAL / 2; 2]);
    }
}
