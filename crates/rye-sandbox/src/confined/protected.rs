//! Finds the files of a workspace that a command must not change, and those that it created.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use super::policy::ConfinementPolicy;
use super::quarantine::DIRECTORY;

/// A file or directory of the workspace that a command cannot change or use.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Guard {
    /// Relative to the workspace; no part of it is a link.
    pub(crate) path: PathBuf,
    pub(crate) kind: GuardKind,
}

/// What a guard does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GuardKind {
    /// Makes it read-only.
    ReadOnly,
    /// Hides a socket, behind which a program of the host may listen.
    Socket,
}

/// Identifies a protected file, to tell whether it was replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    link: Option<PathBuf>,
}

/// The protected files of a workspace at one moment.
#[derive(Debug, Default)]
pub(crate) struct ProtectedFiles {
    /// By path relative to the workspace.
    files: BTreeMap<PathBuf, Identity>,
    sockets: Vec<PathBuf>,
    /// Other files that protected ones refer to, such as a hooks directory.
    referenced: Vec<PathBuf>,
}

impl ProtectedFiles {
    /// Searches a workspace. Does not descend into protected directories.
    pub(crate) fn find(workspace: &Path, policy: &ConfinementPolicy, home: Option<&Path>) -> Self {
        let mut found = Self::default();
        let mut dirs = vec![PathBuf::new()];
        while let Some(dir) = dirs.pop() {
            // A directory that cannot be read cannot be changed by the command's user either.
            let entries = fs::read_dir(workspace.join(&dir)).into_iter().flatten();
            for entry in entries.flatten() {
                let path = dir.join(entry.file_name());
                let Ok(kind) = entry.file_type() else {
                    continue;
                };
                if policy.protects(&entry.file_name()) {
                    if let Some(identity) = identify(&workspace.join(&path)) {
                        found.files.insert(path, identity);
                    }
                } else if kind.is_dir() {
                    dirs.push(path);
                } else if kind.is_socket() {
                    found.sockets.push(path);
                }
            }
        }
        found.add_references(workspace, home);
        found
    }

    /// Stops the protection of these files and directories.
    pub(crate) fn release(&mut self, paths: &[PathBuf]) {
        self.files.retain(|path, _| !paths.contains(path));
        self.referenced.retain(|path| !paths.contains(path));
    }

    /// Adds what the protected files lead to inside of the workspace: targets of links, and
    /// directories with the hooks of git.
    fn add_references(&mut self, workspace: &Path, home: Option<&Path>) {
        let mut referenced = Vec::new();
        let user_config = home.map(|home| home.join(".gitconfig"));
        let user_hooks = user_config.and_then(|file| hooks_path(&file));
        for (path, identity) in &self.files {
            let absolute = workspace.join(path);
            if identity.link.is_some() {
                referenced.push(absolute.clone());
            }
            if path.file_name().is_some_and(|name| name == ".git") {
                let own_hooks = hooks_path(&absolute.join("config"));
                let dir = absolute.parent().unwrap_or(workspace);
                let hooks = [own_hooks, user_hooks.clone()].into_iter().flatten();
                referenced.extend(hooks.map(|hooks| dir.join(hooks)));
            }
        }
        let inside = |path: &PathBuf| {
            let real = fs::canonicalize(path).ok()?;
            let inside = real.strip_prefix(workspace).ok()?;
            // The workspace itself stays writable.
            (!inside.as_os_str().is_empty()).then(|| inside.to_owned())
        };
        self.referenced = referenced.iter().filter_map(inside).collect();
    }

    /// The guards for a command.
    pub(crate) fn guards(&self) -> Vec<Guard> {
        let files = self.files.iter();
        let files = files.filter(|(_, identity)| identity.link.is_none());
        let read_only = files.map(|(path, _)| path).chain(&self.referenced);
        let read_only = read_only.map(|path| (path, GuardKind::ReadOnly));
        let sockets = self.sockets.iter().map(|path| (path, GuardKind::Socket));
        let guards = read_only.chain(sockets).map(|(path, kind)| Guard {
            path: path.clone(),
            kind,
        });
        let mut guards: Vec<_> = guards.collect();
        guards.sort();
        guards.dedup();
        guards
    }

    /// Protected files that were created or replaced since `before`. A file that moved together
    /// with a directory above it does not count as created.
    pub(crate) fn created_since(&self, before: &Self) -> Vec<PathBuf> {
        let is_new = |(path, identity): &(&PathBuf, &Identity)| match before.files.get(*path) {
            Some(old) => old != *identity,
            None => !before.files.values().any(|old| old == *identity),
        };
        self.files
            .iter()
            .filter(is_new)
            .filter(|(path, _)| *path != Path::new(DIRECTORY))
            .map(|(path, _)| path.clone())
            .collect()
    }
}

fn identify(path: &Path) -> Option<Identity> {
    let metadata = fs::symlink_metadata(path).ok()?;
    Some(Identity {
        device: metadata.dev(),
        inode: metadata.ino(),
        link: metadata
            .is_symlink()
            .then(|| fs::read_link(path).unwrap_or_default()),
    })
}

/// The directory of hooks that a configuration file of git names.
fn hooks_path(config: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(config).ok()?;
    let mut section = String::new();
    let mut found = None;
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[') {
            section = name.split(']').next().unwrap_or_default().to_lowercase();
        }
        let Some((key, value)) = line.rsplit(']').next().and_then(|it| it.split_once('=')) else {
            continue;
        };
        if section == "core" && key.trim().eq_ignore_ascii_case("hookspath") {
            found = Some(PathBuf::from(value.trim().trim_matches('"')));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_protected_files_at_any_depth_and_new_ones() -> std::io::Result<()> {
        let dir = tempfile::tempdir()?;
        let root = fs::canonicalize(dir.path())?;
        fs::create_dir_all(root.join("a/b/.git/hooks"))?;
        fs::create_dir_all(root.join("hooks"))?;
        fs::create_dir_all(root.join(".git"))?;
        fs::write(root.join(".git/config"), "[core]\n\thooksPath = hooks\n")?;
        fs::write(root.join("a/.envrc"), "")?;
        let policy = ConfinementPolicy::default();
        let before = ProtectedFiles::find(&root, &policy, None);
        let paths: Vec<_> = before.guards().into_iter().map(|it| it.path).collect();
        assert_eq!(
            paths,
            [".git", "a/.envrc", "a/b/.git", "hooks"].map(PathBuf::from)
        );

        fs::rename(root.join("a/b"), root.join("a/c"))?;
        fs::create_dir_all(root.join("new/.git"))?;
        fs::remove_file(root.join("a/.envrc"))?;
        std::os::unix::fs::symlink("/etc", root.join("a/.envrc"))?;
        let after = ProtectedFiles::find(&root, &policy, None);
        assert_eq!(
            after.created_since(&before),
            ["a/.envrc", "new/.git"].map(PathBuf::from)
        );
        Ok(())
    }

    #[test]
    fn hooks_directory_is_read_from_the_configuration() -> std::io::Result<()> {
        let dir = tempfile::tempdir()?;
        let file = dir.path().join("config");
        for (text, expected) in [
            ("[core]\n  hooksPath = .githooks\n", Some(".githooks")),
            ("[Core]\nHOOKSPATH=\"x y\"\n", Some("x y")),
            ("[core] hooksPath = inline\n", Some("inline")),
            ("[other]\nhooksPath = no\n", None),
            ("", None),
        ] {
            fs::write(&file, text)?;
            assert_eq!(hooks_path(&file), expected.map(PathBuf::from), "{text}");
        }
        Ok(())
    }
}
