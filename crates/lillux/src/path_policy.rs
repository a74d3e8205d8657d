//! Which paths of this machine a program that acts for somebody else may touch.
//!
//! A path is resolved to the place that it really names, through links, `..` and names that
//! do not exist yet, and then [classified](PathPolicy::classify) relative to a workspace:
//!
//! - [`Class::Private`]: the user's keys, secrets and records. Refused; no approval allows it.
//! - [`Class::Sensitive`]: a write needs a person's approval.
//! - [`Class::Plain`]: everything else.
//!
//! A private directory is recognised by its name, by the identity of its inode (so also under
//! another mount point), and a private file also by its hard links. [`open`](PathPolicy::open)
//! and [`open_folder`](PathPolicy::open_folder) follow no links, so what was classified is what
//! is opened.

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

/// The directory that makes a directory a project.
const PROJECT: &str = ".ai";

/// Hidden names that decide nothing. Every other hidden file or directory, at any depth, is
/// taken to decide what programs do later: `.git`, `.github`, `.vscode`, `.cargo`, `.npmrc` and
/// whatever the next program reads.
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
/// Other names, at any depth, that decide what programs or agents do later.
const BEHAVIOUR: [&str; 6] = [
    "lefthook.yml",
    "lefthook.yaml",
    "opencode.json",
    "AGENTS.md",
    "CLAUDE.md",
    "GEMINI.md",
];
/// Directories of a workspace that are also recognised under another name.
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
/// The file that makes a directory a Python environment.
const ENVIRONMENT_MARKER: &str = "pyvenv.cfg";
/// Files with variables for programs: this name, or this name and a suffix after a dot.
const VARIABLES: &str = ".env";
/// How many entries of private directories are compared with a file that has several names.
const MOST_PRIVATE_FILES: usize = 20_000;

/// What of this machine is the user's own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Protected {
    /// Directories that are never read or written for somebody else: keys, secrets, records.
    pub private: Vec<PathBuf>,
    /// Home directories of the user.
    pub homes: Vec<PathBuf>,
}

/// How a path may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// A file of the workspace like any other.
    Plain,
    /// A write must be approved.
    Sensitive(Sensitive),
    /// Never read and never written.
    Private,
}

/// Why a write must be approved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sensitive {
    /// It is outside of the workspace.
    Outside,
    /// Where it leads cannot be told: its links form a loop.
    Unresolvable,
    /// A hidden file in a workspace that is, or contains, a home directory.
    HiddenInHome,
    /// The file decides what programs do later.
    Behaviour,
    /// The file belongs to an interpreter environment or a dependency directory.
    Dependency,
    /// The file sets variables of programs.
    Variables,
    /// The file has further names, which may lie anywhere.
    HardLink,
    /// The workspace is, or contains, a home directory.
    Home,
    /// The workspace is no project.
    NoProject,
}

impl Sensitive {
    /// Whether a rule may allow the write without asking.
    pub fn may_be_allowed_by_rule(self) -> bool {
        match self {
            Self::Outside | Self::Unresolvable | Self::HiddenInHome | Self::HardLink => false,
            Self::Behaviour | Self::Dependency | Self::Variables | Self::Home | Self::NoProject => {
                true
            }
        }
    }

    /// The reason, as the second half of a sentence about the file.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Outside => "it is outside of the workspace",
            Self::Unresolvable => "its links form a loop, so where it leads is unknown",
            Self::HiddenInHome => "it is a hidden file in a home directory",
            Self::Behaviour => "files there decide what programs do later",
            Self::Dependency => "programs load code from there",
            Self::Variables => "it sets variables of programs",
            Self::HardLink => "the file has further names, which may lie anywhere",
            Self::Home => "the workspace is or contains a home directory",
            Self::NoProject => "the workspace is not a project",
        }
    }
}

/// A path, resolved and classified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classified {
    /// The path without links. Parts of it may not exist yet.
    pub real: PathBuf,
    /// How it may be used.
    pub class: Class,
}

/// Classifies the paths of one workspace.
#[derive(Debug, Clone)]
pub struct PathPolicy {
    workspace: PathBuf,
    project: PathBuf,
    protected: Protected,
}

impl PathPolicy {
    /// The policy of a workspace that is its own project.
    pub fn new(workspace: impl Into<PathBuf>, protected: Protected) -> Self {
        let workspace = workspace.into();
        Self {
            project: workspace.clone(),
            workspace,
            protected,
        }
    }

    /// Names the project that the workspace is a part of.
    #[must_use]
    pub fn within_project(mut self, project: impl Into<PathBuf>) -> Self {
        self.project = project.into();
        self
    }

    /// The workspace, as it was named.
    pub fn workspace(&self) -> &Path {
        &self.workspace
    }

    /// The private directories without links, for programs that check by themselves.
    pub fn private_directories(&self) -> Vec<PathBuf> {
        let real = |path: &PathBuf| resolve(path).unwrap_or_else(|| path.clone());
        self.protected.private.iter().map(real).collect()
    }

    /// Looks up the private directories once, for several checks in a row.
    pub fn private(&self) -> Private {
        Private::new(self.private_directories())
    }

    /// Resolves a path relative to the workspace and classifies it.
    pub fn classify(&self, path: impl AsRef<Path>) -> Classified {
        let named = self.workspace.join(path);
        let Some(real) = resolve(&named) else {
            return Classified {
                real: named,
                class: Class::Sensitive(Sensitive::Unresolvable),
            };
        };
        let class = if self.private().contains(&real) {
            Class::Private
        } else {
            match self.sensitive(&named, &real) {
                Some(reason) => Class::Sensitive(reason),
                None => Class::Plain,
            }
        };
        Classified { real, class }
    }

    /// The strongest reason to ask about a write.
    fn sensitive(&self, named: &Path, real: &Path) -> Option<Sensitive> {
        let Some(workspace) = resolve(&self.workspace) else {
            return Some(Sensitive::Unresolvable);
        };
        let Ok(inside) = real.strip_prefix(&workspace) else {
            return Some(Sensitive::Outside);
        };
        let about = fs::symlink_metadata(real);
        if about.is_ok_and(|about| about.is_file() && about.nlink() > 1) {
            return Some(Sensitive::HardLink);
        }
        let homes = self.protected.homes.iter().filter_map(|home| resolve(home));
        let is_home = homes.into_iter().any(|home| home.starts_with(&workspace));
        if is_home && inside.iter().any(is_hidden) {
            return Some(Sensitive::HiddenInHome);
        }
        // The names on the way count as well as those of the place that links lead to. The
        // workspace itself may lie below such a name.
        let as_named = named.strip_prefix(&self.workspace).unwrap_or(inside);
        if let Some(reason) = inside.iter().chain(as_named).find_map(by_name) {
            return Some(reason);
        }
        if has_environment(&workspace, inside) {
            return Some(Sensitive::Dependency);
        }
        if let Some(reason) = by_identity(&workspace, real) {
            return Some(reason);
        }
        if is_home {
            return Some(Sensitive::Home);
        }
        (!self.is_project(&workspace)).then_some(Sensitive::NoProject)
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

/// Whether a file or directory of this name, anywhere in a workspace, is written only with
/// approval.
pub fn is_sensitive_name(name: &OsStr) -> bool {
    by_name(name).is_some()
}

fn by_name(name: &OsStr) -> Option<Sensitive> {
    let name = name.to_string_lossy();
    let is_one_of = |names: &[&str]| names.iter().any(|it| name.eq_ignore_ascii_case(it));
    let is_variables = name
        .split_at_checked(VARIABLES.len())
        .is_some_and(|(head, tail)| {
            head.eq_ignore_ascii_case(VARIABLES) && (tail.is_empty() || tail.starts_with('.'))
        });
    let is_hidden = name.starts_with('.') && !is_one_of(&PLAIN_HIDDEN);
    if is_one_of(&DEPENDENCIES) {
        Some(Sensitive::Dependency)
    } else if is_variables {
        Some(Sensitive::Variables)
    } else if is_hidden || is_one_of(&BEHAVIOUR) {
        Some(Sensitive::Behaviour)
    } else {
        None
    }
}

/// Whether a directory between the workspace and a path is a Python environment.
fn has_environment(workspace: &Path, inside: &Path) -> bool {
    let folders = inside.ancestors().filter(|it| !it.as_os_str().is_empty());
    let marker = |folder: &Path| workspace.join(folder).join(ENVIRONMENT_MARKER);
    folders.into_iter().any(|it| marker(it).exists())
}

/// Whether a directory above a path is a known one of the workspace under another name.
fn by_identity(workspace: &Path, real: &Path) -> Option<Sensitive> {
    let named = |names: &'static [&'static str], reason| {
        let known = names.iter().filter_map(move |name| {
            let about = fs::metadata(workspace.join(name)).ok()?;
            about.is_dir().then(|| (identity(&about), reason))
        });
        known.collect::<Vec<_>>()
    };
    let known = [
        named(&DIRECTORIES, Sensitive::Behaviour),
        named(&DEPENDENCIES, Sensitive::Dependency),
    ]
    .concat();
    if known.is_empty() {
        return None;
    }
    let mut above = real.ancestors().filter_map(|path| {
        let about = fs::metadata(path).ok()?;
        Some(identity(&about))
    });
    above.find_map(|it| {
        let (_, reason) = known.iter().find(|(known, _)| *known == it)?;
        Some(*reason)
    })
}

/// Device and inode.
type Identity = (u64, u64);

fn identity(about: &Metadata) -> Identity {
    (about.dev(), about.ino())
}

/// The private directories as they are now.
#[derive(Debug)]
pub struct Private {
    folders: Vec<PathBuf>,
    identities: HashSet<Identity>,
    /// The files in them, looked up when a file with several names is met.
    files: std::sync::OnceLock<HashSet<Identity>>,
}

impl Private {
    fn new(folders: Vec<PathBuf>) -> Self {
        let identities = folders.iter().filter_map(|folder| {
            let about = fs::metadata(folder).ok()?;
            Some(identity(&about))
        });
        Self {
            identities: identities.collect(),
            folders,
            files: std::sync::OnceLock::new(),
        }
    }

    /// Whether a path without links is in a private directory, or is a hard link of a file
    /// there.
    pub fn contains(&self, real: &Path) -> bool {
        if self.folders.iter().any(|folder| real.starts_with(folder)) {
            return true;
        }
        let here = fs::symlink_metadata(real).ok();
        if here.as_ref().is_some_and(|about| self.is_private(about)) {
            return true;
        }
        let above = real.ancestors().skip(1);
        let mut above = above.filter_map(|path| fs::symlink_metadata(path).ok());
        above.any(|about| self.identities.contains(&identity(&about)))
    }

    /// Whether a file or directory is a private one, by its inode.
    pub fn is_private(&self, about: &Metadata) -> bool {
        let identity = identity(about);
        self.identities.contains(&identity)
            || (about.is_file() && about.nlink() > 1 && self.files().contains(&identity))
    }

    /// Whether a private directory is at or below a path without links.
    pub fn is_within(&self, real: &Path) -> bool {
        self.folders.iter().any(|folder| folder.starts_with(real))
    }

    fn files(&self) -> &HashSet<Identity> {
        self.files.get_or_init(|| {
            let mut files = HashSet::new();
            let mut left = MOST_PRIVATE_FILES;
            let mut folders: Vec<_> = self.folders.iter().rev().cloned().collect();
            while let Some(folder) = folders.pop() {
                for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                    left -= 1;
                    if left == 0 {
                        return files;
                    }
                    match entry.metadata() {
                        Ok(about) if about.is_dir() => folders.insert(0, entry.path()),
                        Ok(about) if about.nlink() > 1 => {
                            files.insert(identity(&about));
                        }
                        _ => {}
                    }
                }
            }
            files
        })
    }
}
