//! Reads the sources of settings: environment, current directory, configuration files.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use lillux::PathContext as _;
use rye_items::{Space, Spaces};

use super::file::ConfigFile;
use super::{Directories, IgnoredConfig, Options, SettingsError};

/// Path of the settings file, relative to a space's `.ai/`.
pub const CONFIG: &str = "config/rye.yaml";

/// Reads an environment variable; an empty one counts as unset.
pub fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Locates the directories from the current directory.
pub fn current_dirs(options: &Options) -> Result<Directories, SettingsError> {
    let current = std::env::current_dir().at("find", Path::new("the current directory"))?;
    Ok(dirs_from(options, &current))
}

/// Locates the directories from a directory whose links are resolved.
fn dirs_from(options: &Options, current: &Path) -> Directories {
    let user = ["USER_SPACE", "HOME"].into_iter().find_map(variable);
    let user = user.and_then(|user| std::fs::canonicalize(user).ok());
    // The user's path may contain links.
    let is_space = |dir: &Path| Some(dir) != user.as_deref() && dir.join(".ai").is_dir();
    let mut dirs = Directories::locate(options, &variable, current, &is_space);
    dirs.project.value = canonicalize_existing(dirs.project.value);
    dirs
}

/// The project that a directory belongs to: that of the options or the environment, or else the
/// nearest parent with `.ai/`, or else the directory itself.
pub fn project_of(options: &Options, dir: &Path) -> PathBuf {
    let dir = canonicalize_existing(dir.to_owned());
    dirs_from(options, &dir).project.value
}

/// Resolves links and `..` as far as the path exists.
pub fn canonicalize_existing(path: PathBuf) -> PathBuf {
    let whole = std::fs::canonicalize(&path);
    whole
        .ok()
        .or_else(|| {
            let parent = std::fs::canonicalize(path.parent()?).ok()?;
            Some(parent.join(path.file_name()?))
        })
        .unwrap_or(path)
}

/// Whether a configuration file takes effect.
pub enum ConfigVerdict {
    /// The verified bytes take effect.
    Effective(Vec<u8>),
    /// The file has no effect.
    Ignored {
        /// Why Rye ignores it.
        reason: String,
        /// The command that makes it effective.
        hint: Option<String>,
    },
}

/// The user's own configuration file, which needs no signature.
pub fn user_config_file(spaces: &Spaces) -> Result<Option<ConfigFile>, SettingsError> {
    let home = variable("HOME").map(PathBuf::from);
    let Some(root) = spaces.roots().find(|root| root.space() == Space::User) else {
        return Ok(None);
    };
    let Some(raw) = root.read(CONFIG)? else {
        return Ok(None);
    };
    let path = root.path_to(CONFIG);
    let file = ConfigFile::parse(Space::User, &path, &raw.bytes, home.as_deref())?;
    Ok(Some(file))
}

/// Returns the effective configuration files, most specific first, and the ignored ones.
/// `judge` verifies the bytes of a file that is not the user's own.
pub fn config_files(
    spaces: &Spaces,
    mut judge: impl FnMut(Space, &Path, Vec<u8>) -> ConfigVerdict,
) -> Result<(Vec<ConfigFile>, Vec<IgnoredConfig>), SettingsError> {
    let home = variable("HOME").map(PathBuf::from);
    let (mut files, mut ignored) = (Vec::new(), Vec::new());
    for root in spaces.roots() {
        let (space, path) = (root.space(), root.path_to(CONFIG));
        let verdict = match (space, root.read(CONFIG)) {
            (_, Ok(None)) => continue,
            (Space::User, raw) => {
                ConfigVerdict::Effective(raw?.map(|raw| raw.bytes).unwrap_or_default())
            }
            (Space::Project | Space::System, Ok(Some(raw))) => judge(space, &path, raw.bytes),
            // An unreadable file of another user must not break every command.
            (Space::Project | Space::System, Err(error)) => ConfigVerdict::Ignored {
                reason: error.to_string(),
                hint: error.hint(),
            },
        };
        match verdict {
            ConfigVerdict::Effective(bytes) => {
                files.push(ConfigFile::parse(space, &path, &bytes, home.as_deref())?);
            }
            ConfigVerdict::Ignored { reason, hint } => ignored.push(IgnoredConfig {
                space,
                path,
                reason,
                hint,
            }),
        }
    }
    Ok((files, ignored))
}
