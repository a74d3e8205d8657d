//! Locates the project directory and the spaces.

use std::path::{Path, PathBuf};

use super::{Environment, Options, Origin, Setting};

/// The directories that a call works with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directories {
    /// The project directory.
    pub project: Setting<PathBuf>,
    /// The directory that contains the user's `.ai/`.
    pub user_space: Option<Setting<PathBuf>>,
    /// Bundles in addition to the built-in one.
    pub system_space: Setting<Vec<PathBuf>>,
}

impl Directories {
    /// Locates them from the current directory. `is_space` tells whether a directory has `.ai/`.
    pub fn locate(
        options: &Options,
        environment: Environment<'_>,
        current: &Path,
        is_space: &dyn Fn(&Path) -> bool,
    ) -> Self {
        let user_space = ["USER_SPACE", "HOME"].into_iter().find_map(|name| {
            let dir = current.join(environment(name)?);
            Some(Setting::new(dir, Origin::Variable(name)))
        });
        let user = user_space.as_ref().map(|setting| setting.value.as_path());
        Self {
            project: project(options, environment, current, user, is_space),
            system_space: system_space(environment, current),
            user_space,
        }
    }
}

fn project(
    options: &Options,
    environment: Environment<'_>,
    current: &Path,
    user: Option<&Path>,
    is_space: &dyn Fn(&Path) -> bool,
) -> Setting<PathBuf> {
    if let Some(dir) = &options.project {
        return Setting::new(current.join(dir), Origin::Option("--project"));
    }
    if let Some(dir) = environment("RYE_PROJECT") {
        return Setting::new(current.join(dir), Origin::Variable("RYE_PROJECT"));
    }
    // The user's directory has `.ai/` too, but is not a project.
    let found = current
        .ancestors()
        .find(|dir| Some(*dir) != user && is_space(dir));
    match found {
        Some(dir) => Setting::new(dir.to_owned(), Origin::Discovered),
        None => Setting::new(current.to_owned(), Origin::Default),
    }
}

fn system_space(environment: Environment<'_>, current: &Path) -> Setting<Vec<PathBuf>> {
    let name = "RYE_SYSTEM_SPACE";
    let Some(list) = environment(name) else {
        return Setting::new(Vec::new(), Origin::Default);
    };
    let dirs = std::env::split_paths(&list)
        .filter(|dir| !dir.as_os_str().is_empty())
        .map(|dir| current.join(dir));
    Setting::new(dirs.collect(), Origin::Variable(name))
}
