//! Where the project and the spaces are.

use std::path::{Path, PathBuf};

use super::{Environment, Options, Origin, Setting};

/// The folders that a call is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Places {
    pub(crate) project: Setting<PathBuf>,
    /// The folder that holds the user's `.ai/`.
    pub(crate) user_space: Option<Setting<PathBuf>>,
    /// Bundles beside the one in the binary.
    pub(crate) system_space: Setting<Vec<PathBuf>>,
}

impl Places {
    /// Finds them from a current folder. `is_space` tells whether a folder has `.ai/`.
    pub(crate) fn find(
        options: &Options,
        environment: Environment<'_>,
        current: &Path,
        is_space: &dyn Fn(&Path) -> bool,
    ) -> Self {
        let user_space = ["USER_SPACE", "HOME"].into_iter().find_map(|name| {
            let folder = current.join(environment(name)?);
            Some(Setting::new(folder, Origin::Variable(name)))
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
    if let Some(folder) = &options.project {
        return Setting::new(current.join(folder), Origin::Option("--project"));
    }
    if let Some(folder) = environment("RYE_PROJECT") {
        return Setting::new(current.join(folder), Origin::Variable("RYE_PROJECT"));
    }
    // The user's own folder has `.ai/` too, and is no project of all that is below it.
    let found = current
        .ancestors()
        .find(|folder| Some(*folder) != user && is_space(folder));
    match found {
        Some(folder) => Setting::new(folder.to_owned(), Origin::Found),
        None => Setting::new(current.to_owned(), Origin::Default),
    }
}

fn system_space(environment: Environment<'_>, current: &Path) -> Setting<Vec<PathBuf>> {
    let name = "RYE_SYSTEM_SPACE";
    let Some(list) = environment(name) else {
        return Setting::new(Vec::new(), Origin::Default);
    };
    let folders = std::env::split_paths(&list)
        .filter(|folder| !folder.as_os_str().is_empty())
        .map(|folder| current.join(folder));
    Setting::new(folders.collect(), Origin::Variable(name))
}
