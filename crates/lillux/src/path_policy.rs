//! Decides which paths an agent's tools may read and write.
//!
//! [`PathPolicy::classify`] resolves a path to its real path, through links, `..` and names
//! that do not exist yet, and classifies it relative to a workspace:
//!
//! - [`PathClass::Private`]: the user's keys, secrets and records. Always denied.
//! - [`PathClass::Sensitive`]: a write needs the user's approval.
//! - [`PathClass::Plain`]: everything else.
//!
//! A private directory is recognised by path and by inode (so also under another mount point),
//! and a private file also by its hard links. [`open`](PathPolicy::open) and
//! [`open_dir`](PathPolicy::open_dir) do not follow links, so they open exactly the path that
//! was classified.
//!
//! ```
//! use lillux::path_policy::{PathClass, PathPolicy, ProtectedPaths, SensitiveReason};
//!
//! # let dir = tempfile::tempdir()?;
//! # let workspace = dir.path();
//! std::fs::create_dir(workspace.join(".ai"))?;
//! let policy = PathPolicy::new(workspace, ProtectedPaths::default());
//! assert_eq!(policy.classify("src/main.rs").class, PathClass::Plain);
//! assert_eq!(
//!     policy.classify(".git/config").class,
//!     PathClass::Sensitive(SensitiveReason::Behaviour)
//! );
//! # Ok::<(), std::io::Error>(())
//! ```

mod open;
mod resolve;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use resolve::resolve;

/// A directory that contains this directory is a project.
const PROJECT: &str = ".ai";

/// Hidden names that do not affect other programs. Every other hidden file or directory, at
/// any depth, counts as configuration of some program: `.git`, `.github`, `.vscode`, `.cargo`,
/// `.npmrc` and so on.
const PLAIN_HIDDEN: [&str; 12] = [
    ".",
    "..",
    ".gitignore",
    ".gitkeep",
    ".ignore",
    ".rgignore",
    ".dockerignore",
    ".npmignore",
    ".prettierignore",
    ".eslintignore",
    ".editorconfig",
    ".mailmap",
];
/// Names that are not hidden, at any depth, that configure programs or agents.
const BEHAVIOUR: [&str; 6] = [
    "lefthook.yml",
    "lefthook.yaml",
    "opencode.json",
    "AGENTS.md",
    "CLAUDE.md",
    "GEMINI.md",
];
/// Directories of a workspace that are also recognised by inode.
const DIRECTORIES: [&str; 6] = [".git", PROJECT, ".github", ".vscode", ".cargo", ".husky"];
/// Names of interpreter environments, dependency directories and compiled code.
const DEPENDENCIES: [&str; 11] = [
    ".venv",
    "venv",
    "site-packages",
    "dist-packages",
    "__pycache__",
    "__pypackages__",
    ".tox",
    ".nox",
    "node_modules",
    "bower_components",
    ENVIRONMENT_MARKER,
];
/// A directory that contains this file is a Python environment.
const ENVIRONMENT_MARKER: &str = "pyvenv.cfg";
/// Files with environment variables: this name, optionally with a suffix such as `.local`.
const VARIABLES: &str = ".env";
/// How many entries of private directories are searched for the hard links of a file.
const MAX_PRIVATE_FILES: usize = 20_000;

/// The user's private directories and home directories.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProtectedPaths {
    /// Directories that tools may never read or write: keys, secrets, records.
    pub private: Vec<PathBuf>,
    /// The user's home directories.
    pub homes: Vec<PathBuf>,
}

/// How a path may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathClass {
    /// May be read and written.
    Plain,
    /// May be read; a write needs approval.
    Sensitive(SensitiveReason),
    /// May be neither read nor written.
    Private,
}

/// Why a write needs approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SensitiveReason {
    /// The path is outside of the workspace.
    Outside,
    /// The path cannot be resolved because its links form a loop.
    Unresolvable,
    /// A hidden file in a workspace that is, or contains, a home directory.
    HiddenInHome,
    /// The file configures other programs or agents.
    Behaviour,
    /// The file belongs to an interpreter environment or a dependency directory.
    Dependency,
    /// The file sets environment variables of programs.
    Variables,
    /// The file has several hard links, which may be anywhere.
    HardLink,
    /// The workspace is, or contains, a home directory.
    Home,
    /// The workspace is not part of a project.
    NoProject,
}

impl SensitiveReason {
    /// Whether an approval rule may allow the write without asking the user.
    pub fn may_be_allowed_by_rule(self) -> bool {
        match self {
            Self::Outside | Self::Unresolvable | Self::HiddenInHome | Self::HardLink => false,
            Self::Behaviour | Self::Dependency | Self::Variables | Self::Home | Self::NoProject => {
                true
            }
        }
    }

    /// The reason as a clause about the file, for messages.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Outside => "it is outside of the workspace",
            Self::Unresolvable => "its links form a loop",
            Self::HiddenInHome => "it is a hidden file in a home directory",
            Self::Behaviour => "files there decide what programs do later",
            Self::Dependency => "programs load code from there",
            Self::Variables => "it sets variables of programs",
            Self::HardLink => "the file has other hard links, which may be anywhere",
            Self::Home => "the workspace is or contains a home directory",
            Self::NoProject => "the workspace is not a project",
        }
    }
}

/// Result of [`PathPolicy::classify`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassifiedPath {
    /// The real path, without links. Parts of it may not exist yet.
    pub real: PathBuf,
    /// How the path may be used.
    pub class: PathClass,
}

/// Classifies the paths of one workspace.
#[derive(Debug, Clone)]
pub struct PathPolicy {
    workspace: PathBuf,
    project: PathBuf,
    protected: ProtectedPaths,
}

impl PathPolicy {
    /// Creates the policy of a workspace that is its own project.
    pub fn new(workspace: impl Into<PathBuf>, protected: ProtectedPaths) -> Self {
        let workspace = workspace.into();
        Self {
            project: workspace.clone(),
            workspace,
            protected,
        }
    }

    /// Sets the project that the workspace is part of.
    #[must_use]
    pub fn within_project(mut self, project: impl Into<PathBuf>) -> Self {
        self.project = project.into();
        self
    }

    /// The workspace as given to [`new`](Self::new), not resolved.
    pub fn workspace(&self) -> &Path {
        &self.workspace
    }

    /// The real paths of the private directories, for programs with their own checks.
    pub fn private_directories(&self) -> Vec<PathBuf> {
        let real = |path: &PathBuf| resolve(path).unwrap_or_else(|| path.clone());
        self.protected.private.iter().map(real).collect()
    }

    /// Reads the inodes of the private directories once, for several checks.
    pub fn private(&self) -> PrivateDirs {
        PrivateDirs::new(self.private_directories())
    }

    /// Resolves a path relative to the workspace and classifies it.
    pub fn classify(&self, path: impl AsRef<Path>) -> ClassifiedPath {
        let named = self.workspace.join(path);
        let Some(real) = resolve(&named) else {
            return ClassifiedPath {
                real: named,
                class: PathClass::Sensitive(SensitiveReason::Unresolvable),
            };
        };
        let class = if self.private().contains(&real) {
            PathClass::Private
        } else {
            match self.sensitive_reason(&named, &real) {
                Some(reason) => PathClass::Sensitive(reason),
                None => PathClass::Plain,
            }
        };
        ClassifiedPath { real, class }
    }

    /// The strongest reason why a write needs approval.
    fn sensitive_reason(&self, named: &Path, real: &Path) -> Option<SensitiveReason> {
        let Some(workspace) = resolve(&self.workspace) else {
            return Some(SensitiveReason::Unresolvable);
        };
        let Ok(inside) = real.strip_prefix(&workspace) else {
            return Some(SensitiveReason::Outside);
        };
        let metadata = fs::symlink_metadata(real);
        if metadata.is_ok_and(|metadata| metadata.is_file() && metadata.nlink() > 1) {
            return Some(SensitiveReason::HardLink);
        }
        let homes = self.protected.homes.iter().filter_map(|home| resolve(home));
        let is_home = homes.into_iter().any(|home| home.starts_with(&workspace));
        if is_home && inside.iter().any(is_hidden) {
            return Some(SensitiveReason::HiddenInHome);
        }
        // The names in the given path count as well as those in the real path. Names above
        // the workspace do not.
        let as_named = named.strip_prefix(&self.workspace).unwrap_or(inside);
        if let Some(reason) = inside.iter().chain(as_named).find_map(by_name) {
            return Some(reason);
        }
        if has_environment(&workspace, inside) {
            return Some(SensitiveReason::Dependency);
        }
        if let Some(reason) = by_identity(&workspace, real) {
            return Some(reason);
        }
        if is_home {
            return Some(SensitiveReason::Home);
        }
        (!self.is_project(&workspace)).then_some(SensitiveReason::NoProject)
    }

    fn is_project(&self, workspace: &Path) -> bool {
        let project = resolve(&self.project);
        project.is_some_and(|project| {
            workspace.starts_with(&project) && project.join(PROJECT).is_dir()
        })
    }
}

/// Whether a name is hidden: `.bashrc`, `.ssh`.
fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

/// Whether writing a file or directory of this name needs approval anywhere in a workspace.
pub fn is_sensitive_name(name: &OsStr) -> bool {
    by_name(name).is_some()
}

fn by_name(name: &OsStr) -> Option<SensitiveReason> {
    let name = name.to_string_lossy();
    let is_one_of = |names: &[&str]| names.iter().any(|it| name.eq_ignore_ascii_case(it));
    let is_variables = name
        .split_at_checked(VARIABLES.len())
        .is_some_and(|(head, tail)| {
            head.eq_ignore_ascii_case(VARIABLES) && (tail.is_empty() || tail.starts_with('.'))
        });
    let is_hidden = name.starts_with('.') && !is_one_of(&PLAIN_HIDDEN);
    if is_one_of(&DEPENDENCIES) {
        Some(SensitiveReason::Dependency)
    } else if is_variables {
        Some(SensitiveReason::Variables)
    } else if is_hidden || is_one_of(&BEHAVIOUR) {
        Some(SensitiveReason::Behaviour)
    } else {
        None
    }
}

/// Whether a directory between the workspace and a path is a Python environment.
fn has_environment(workspace: &Path, inside: &Path) -> bool {
    let dirs = inside.ancestors().filter(|it| !it.as_os_str().is_empty());
    let marker = |dir: &Path| workspace.join(dir).join(ENVIRONMENT_MARKER);
    dirs.into_iter().any(|it| marker(it).exists())
}

/// Recognises a path inside one of the workspace's sensitive directories by inode, so also
/// if the path names the directory differently.
fn by_identity(workspace: &Path, real: &Path) -> Option<SensitiveReason> {
    let named = |names: &'static [&'static str], reason| {
        let known = names.iter().filter_map(move |name| {
            let metadata = fs::metadata(workspace.join(name)).ok()?;
            metadata.is_dir().then(|| (identity(&metadata), reason))
        });
        known.collect::<Vec<_>>()
    };
    let known = [
        named(&DIRECTORIES, SensitiveReason::Behaviour),
        named(&DEPENDENCIES, SensitiveReason::Dependency),
    ]
    .concat();
    if known.is_empty() {
        return None;
    }
    let mut ancestors = real.ancestors().filter_map(|path| {
        let metadata = fs::metadata(path).ok()?;
        Some(identity(&metadata))
    });
    ancestors.find_map(|it| {
        let (_, reason) = known.iter().find(|(known, _)| *known == it)?;
        Some(*reason)
    })
}

/// Device and inode number.
type Identity = (u64, u64);

fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

/// A snapshot of the private directories and their inodes.
#[derive(Debug)]
pub struct PrivateDirs {
    paths: Vec<PathBuf>,
    identities: HashSet<Identity>,
    /// Files in the directories that have several hard links, read on first use.
    files: std::sync::OnceLock<HashSet<Identity>>,
}

impl PrivateDirs {
    fn new(paths: Vec<PathBuf>) -> Self {
        let identities = paths.iter().filter_map(|dir| {
            let metadata = fs::metadata(dir).ok()?;
            Some(identity(&metadata))
        });
        Self {
            identities: identities.collect(),
            paths,
            files: std::sync::OnceLock::new(),
        }
    }

    /// Whether a real path is inside a private directory or is a hard link to a file there.
    pub fn contains(&self, real: &Path) -> bool {
        if self.paths.iter().any(|dir| real.starts_with(dir)) {
            return true;
        }
        let metadata = fs::symlink_metadata(real).ok();
        if metadata.as_ref().is_some_and(|it| self.is_private(it)) {
            return true;
        }
        let parents = real.ancestors().skip(1);
        let mut parents = parents.filter_map(|path| fs::symlink_metadata(path).ok());
        parents.any(|metadata| self.identities.contains(&identity(&metadata)))
    }

    /// Whether the inode is a private directory or a hard link to a private file.
    pub fn is_private(&self, metadata: &Metadata) -> bool {
        let identity = identity(metadata);
        self.identities.contains(&identity)
            || (metadata.is_file() && metadata.nlink() > 1 && self.files().contains(&identity))
    }

    /// Whether a private directory is at or below a real path.
    pub fn is_within(&self, real: &Path) -> bool {
        self.paths.iter().any(|dir| dir.starts_with(real))
    }

    fn files(&self) -> &HashSet<Identity> {
        self.files.get_or_init(|| {
            let mut files = HashSet::new();
            let mut left = MAX_PRIVATE_FILES;
            let mut dirs: Vec<_> = self.paths.iter().rev().cloned().collect();
            while let Some(dir) = dirs.pop() {
                for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                    left -= 1;
                    if left == 0 {
                        return files;
                    }
                    match entry.metadata() {
                        Ok(metadata) if metadata.is_dir() => dirs.insert(0, entry.path()),
                        Ok(metadata) if metadata.nlink() > 1 => {
                            files.insert(identity(&metadata));
                        }
                        _ => {}
                    }
                }
            }
            files
        })
    }
}
