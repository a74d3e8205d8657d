//! The first screen of a chat: what runs where, and how to find out more.

use std::path::{Path, PathBuf};

use rye_engine::protocol::short_id;
use rye_engine::sandbox::{Confinement, FileAccess, NetworkAccess};

use crate::app::SessionInfo;
use crate::block::Block;
use crate::text::{BOLD, DIM, Line, PLAIN};

/// Version, project, model, sandbox, session, and one hint.
pub(crate) fn block(info: &SessionInfo, home: Option<&Path>) -> Block {
    let mut lines = vec![Line::new(concat!("rye ", env!("CARGO_PKG_VERSION")), BOLD)];
    let rows = rows(info, home);
    lines.extend(rows.iter().map(|(name, value)| row(name, value)));
    let hint = "/help lists commands and keys; @ mentions a file; ! runs a command";
    lines.push(Line::new(hint, DIM));
    Block::Notice(lines)
}

/// A name and its value.
pub(crate) fn row(name: &str, value: &str) -> Line {
    Line::new(&format!("{name:<12}"), DIM).with(value, PLAIN)
}

/// What runs where.
pub(crate) fn rows(info: &SessionInfo, home: Option<&Path>) -> Vec<(&'static str, String)> {
    let mut sandbox = info.sandbox.clone();
    if let Some(confinement) = &info.confinement {
        sandbox = format!("{sandbox}: {}", describe(confinement));
    }
    if info.review {
        sandbox += ", changes need your approval (review mode)";
    }
    let mut rows = vec![
        ("project", shorten(&info.workspace, home)),
        ("model", info.model.clone()),
        ("sandbox", sandbox),
        ("session", short_id(&info.session).to_owned()),
    ];
    if let Some(title) = &info.title {
        rows.push(("title", title.clone()));
    }
    rows
}

/// What commands of the agent can affect.
fn describe(confinement: &Confinement) -> String {
    let files = match confinement.files {
        FileAccess::Memory => "sees no files of this machine; its own end with the chat",
        FileAccess::Workspace => "changes files of the project only",
        FileAccess::Host => "not confined, commands need your approval",
    };
    let network = match (confinement.files, confinement.network) {
        (FileAccess::Host | FileAccess::Memory, _) => return files.to_owned(),
        (_, NetworkAccess::None) => "no network",
        (_, NetworkAccess::Proxied) => "network only to allowed hosts",
        (_, NetworkAccess::Host) => "full network",
    };
    format!("{files}, {network}")
}

/// A path with `~` for the home directory.
fn shorten(path: &Path, home: Option<&Path>) -> String {
    match home.and_then(|home| path.strip_prefix(home).ok()) {
        Some(rest) if rest.as_os_str().is_empty() => "~".to_owned(),
        Some(rest) => format!("~/{}", rest.display()),
        None => path.display().to_string(),
    }
}

/// The branch, or the start of the commit, that is checked out in a directory.
pub(crate) fn git_branch(directory: &Path) -> Option<String> {
    let dot_git = directory.ancestors().map(|it| it.join(".git"));
    let dot_git = dot_git.into_iter().find(|it| it.exists())?;
    let git_dir = if dot_git.is_dir() {
        dot_git
    } else {
        // A worktree or a submodule.
        let text = std::fs::read_to_string(&dot_git).ok()?;
        let target = PathBuf::from(text.strip_prefix("gitdir:")?.trim());
        dot_git.parent()?.join(target)
    };
    let head = std::fs::read_to_string(git_dir.join("HEAD")).ok()?;
    let head = head.trim();
    let branch = head.strip_prefix("ref: refs/heads/");
    Some(match branch {
        Some(branch) => branch.to_owned(),
        None => head.chars().take(8).collect(),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn branch_is_read_in_clones_worktrees_and_detached() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("clone/.git/worktrees/w")).unwrap();
        fs::create_dir_all(at("clone/src")).unwrap();
        fs::create_dir_all(at("w")).unwrap();
        fs::write(at("clone/.git/HEAD"), "ref: refs/heads/fix/it\n").unwrap();
        let target = at("clone/.git/worktrees/w");
        fs::write(target.join("HEAD"), "0123456789abcdef\n").unwrap();
        fs::write(at("w/.git"), format!("gitdir: {}\n", target.display())).unwrap();
        assert_eq!(git_branch(&at("clone/src")).as_deref(), Some("fix/it"));
        assert_eq!(git_branch(&at("w")).as_deref(), Some("01234567"));
    }

    #[test]
    fn home_directory_is_shortened() {
        let home = Path::new("/users/ada");
        let table = [
            ("/users/ada/src", "~/src"),
            ("/users/ada", "~"),
            ("/users/adam", "/users/adam"),
        ];
        for (path, expected) in table {
            assert_eq!(shorten(Path::new(path), Some(home)), expected);
        }
    }
}
