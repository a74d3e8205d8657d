//! The edge: the environment, the current folder, the files.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use lillux::At as _;
use rye_items::{Space, Spaces};

use super::file::ConfigFile;
use super::{Ignored, Options, Places, SettingsError};

/// The file with settings, relative to a space's `.ai/`.
pub(crate) const CONFIG: &str = "config/rye.yaml";

/// A variable of the environment; an empty one is none.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The places as seen from the current folder.
pub(crate) fn places_here(options: &Options) -> Result<Places, SettingsError> {
    let current = std::env::current_dir().at("find", Path::new("the current folder"))?;
    let user = ["USER_SPACE", "HOME"].into_iter().find_map(variable);
    let user = user.and_then(|user| std::fs::canonicalize(user).ok());
    // The current folder is told without links, the user's may be told with them.
    let is_space = |folder: &Path| Some(folder) != user.as_deref() && folder.join(".ai").is_dir();
    let mut places = Places::find(options, &variable, &current, &is_space);
    places.project.value = real(places.project.value);
    Ok(places)
}

/// A path without links and `..`, as far as it is there.
pub(crate) fn real(path: PathBuf) -> PathBuf {
    let whole = std::fs::canonicalize(&path);
    whole
        .ok()
        .or_else(|| {
            let above = std::fs::canonicalize(path.parent()?).ok()?;
            Some(above.join(path.file_name()?))
        })
        .unwrap_or(path)
}

/// What a file of a space is worth.
pub(crate) enum Judged {
    /// These bytes count.
    Counts(Vec<u8>),
    /// It does not count: why, and the command that makes it.
    Ignored {
        reason: String,
        hint: Option<String>,
    },
}

/// The user's own configuration file, which counts as it is.
pub(crate) fn own_file(spaces: &Spaces) -> Result<Option<ConfigFile>, SettingsError> {
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

/// The configuration files that count, the most specific first, and those that do not.
/// `judge` verifies the bytes of a file that is not the user's own.
pub(crate) fn config_files(
    spaces: &Spaces,
    mut judge: impl FnMut(Space, &Path, Vec<u8>) -> Judged,
) -> Result<(Vec<ConfigFile>, Vec<Ignored>), SettingsError> {
    let home = variable("HOME").map(PathBuf::from);
    let (mut files, mut ignored) = (Vec::new(), Vec::new());
    for root in spaces.roots() {
        let (space, path) = (root.space(), root.path_to(CONFIG));
        let judged = match (space, root.read(CONFIG)) {
            (_, Ok(None)) => continue,
            (Space::User, raw) => Judged::Counts(raw?.map(|raw| raw.bytes).unwrap_or_default()),
            (Space::Project | Space::System, Ok(Some(raw))) => judge(space, &path, raw.bytes),
            // What somebody else's folder holds must not keep every command from running.
            (Space::Project | Space::System, Err(error)) => Judged::Ignored {
                reason: error.to_string(),
                hint: error.hint(),
            },
        };
        match judged {
            Judged::Counts(bytes) => {
                files.push(ConfigFile::parse(space, &path, &bytes, home.as_deref())?);
            }
            Judged::Ignored { reason, hint } => ignored.push(Ignored {
                space,
                path,
                reason,
                hint,
            }),
        }
    }
    Ok((files, ignored))
}
