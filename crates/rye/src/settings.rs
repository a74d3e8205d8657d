//! What holds for a call: options before the environment before `.ai/config/rye.yaml`
//! (project over user over system) before defaults. Every value knows where it is from.

mod error;
mod file;
mod places;
mod read;
mod variables;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rye_items::Space;

pub(crate) use error::SettingsError;
pub(crate) use file::ConfigFile;
pub(crate) use places::Places;
pub(crate) use read::{CONFIG, Judged, config_files, own_file, places_here, real, variable};
pub(crate) use variables::{Read, VARIABLES};

/// How many hits a search shows where nobody says otherwise.
const SEARCH_LIMIT: u32 = 20;

/// The options that are settings too.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    pub(crate) project: Option<PathBuf>,
    pub(crate) color: Option<Color>,
}

/// Reads a variable of the environment; an empty one is none.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// A value and where it is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting<T> {
    pub(crate) value: T,
    pub(crate) origin: Origin,
}

impl<T> Setting<T> {
    fn new(value: T, origin: Origin) -> Self {
        Self { value, origin }
    }
}

/// Where a value is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Typed.
    Option(&'static str),
    /// A variable of the environment.
    Variable(&'static str),
    /// A line of a file.
    File { path: PathBuf, line: u32 },
    /// The nearest folder above the current one that has `.ai/`.
    Found,
    /// Nobody said otherwise.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option(name) => write!(f, "option {name}"),
            Self::Variable(name) => f.write_str(name),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Found => f.write_str("nearest folder with .ai/"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// Whether output is coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum Color {
    /// On a terminal
    #[default]
    Auto,
    /// Also in a pipe
    Always,
    /// Not at all
    Never,
}

impl Color {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Always => "always",
            Self::Never => "never",
        }
    }
}

impl FromStr for Color {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Auto, Self::Always, Self::Never]
            .into_iter()
            .find(|color| color.as_str() == text)
            .ok_or("one of auto, always, never")
    }
}

/// All that holds for a call.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) places: Places,
    pub(crate) cache_dir: Option<Setting<PathBuf>>,
    /// What must not be lost: runs.
    pub(crate) state_dir: Option<Setting<PathBuf>>,
    pub(crate) color: Setting<Color>,
    pub(crate) search_limit: Setting<u32>,
    pub(crate) dev_mode: Setting<bool>,
    pub(crate) debug: Setting<bool>,
    /// Whether signatures that are not bound to their file are refused.
    pub(crate) bound_signatures: Setting<bool>,
    /// Configuration that does not count.
    pub(crate) ignored: Vec<Ignored>,
}

/// A configuration file that does not count, since nobody who is trusted has signed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ignored {
    pub(crate) space: Space,
    pub(crate) path: PathBuf,
    pub(crate) reason: String,
    /// The command that makes it count.
    pub(crate) hint: Option<String>,
}

impl Settings {
    /// Puts the sources together. The files are those that count, the first before the next.
    pub(crate) fn resolve(
        options: &Options,
        environment: Environment<'_>,
        places: Places,
        files: &[ConfigFile],
        ignored: Vec<Ignored>,
    ) -> Result<Self, SettingsError> {
        Ok(Self {
            color: color(options, environment, files)?,
            search_limit: files
                .iter()
                .find_map(|file| file.search_limit.clone())
                .unwrap_or(Setting::new(SEARCH_LIMIT, Origin::Default)),
            // Never from a file: whoever writes one must not be able to switch verification off.
            dev_mode: flag(environment, "RYE_DEV_MODE")?
                .unwrap_or(Setting::new(false, Origin::Default)),
            debug: flag(environment, "RYE_DEBUG")?
                .or_else(|| files.iter().find_map(|file| file.debug.clone()))
                .unwrap_or(Setting::new(false, Origin::Default)),
            bound_signatures: bound_signatures(environment, files)?,
            cache_dir: cache_dir(environment, files)?,
            state_dir: STATE.own_or(environment, || None)?,
            places,
            ignored,
        })
    }

    /// The project's folder.
    pub(crate) fn project(&self) -> &Path {
        &self.places.project.value
    }

    /// The folder that holds the user's `.ai/`.
    pub(crate) fn user_space(&self) -> Result<&Path, SettingsError> {
        let place = self.places.user_space.as_ref();
        place
            .map(|setting| setting.value.as_path())
            .ok_or(SettingsError::NoUserSpace)
    }
}

/// Whether unbound signatures are refused: the environment or the user's own file can ask
/// for it, and neither can take back what the other asks for.
pub(crate) fn bound_signatures(
    environment: Environment<'_>,
    files: &[ConfigFile],
) -> Result<Setting<bool>, SettingsError> {
    let variable = flag(environment, "RYE_REQUIRE_BOUND_SIGNATURES")?;
    let file = files.iter().find_map(|file| file.bound_signatures.clone());
    let set = [variable, file].into_iter().flatten();
    Ok(set
        .max_by_key(|setting| setting.value)
        .unwrap_or(Setting::new(false, Origin::Default)))
}

fn color(
    options: &Options,
    environment: Environment<'_>,
    files: &[ConfigFile],
) -> Result<Setting<Color>, SettingsError> {
    if let Some(color) = early_color(options, environment)? {
        return Ok(color);
    }
    let from_file = files.iter().find_map(|file| file.color.clone());
    Ok(from_file.unwrap_or(Setting::new(Color::Auto, Origin::Default)))
}

/// The colour as far as it is known before any file is read.
pub(crate) fn early_color(
    options: &Options,
    environment: Environment<'_>,
) -> Result<Option<Setting<Color>>, SettingsError> {
    if let Some(color) = options.color {
        return Ok(Some(Setting::new(color, Origin::Option("--color"))));
    }
    if let Some(value) = environment("RYE_COLOR") {
        let value = value.to_string_lossy();
        let color = value.parse().map_err(|expected| SettingsError::Variable {
            name: "RYE_COLOR",
            value: value.to_string(),
            expected,
        })?;
        return Ok(Some(Setting::new(color, Origin::Variable("RYE_COLOR"))));
    }
    let none =
        environment("NO_COLOR").map(|_| Setting::new(Color::Never, Origin::Variable("NO_COLOR")));
    Ok(none)
}

fn flag(
    environment: Environment<'_>,
    name: &'static str,
) -> Result<Option<Setting<bool>>, SettingsError> {
    let Some(value) = environment(name) else {
        return Ok(None);
    };
    let value = value.to_string_lossy();
    let on = match value.as_ref() {
        "1" | "true" => true,
        "0" | "false" => false,
        _ => {
            return Err(SettingsError::Variable {
                name,
                value: value.to_string(),
                expected: "1 or 0",
            });
        }
    };
    Ok(Some(Setting::new(on, Origin::Variable(name))))
}

fn cache_dir(
    environment: Environment<'_>,
    files: &[ConfigFile],
) -> Result<Option<Setting<PathBuf>>, SettingsError> {
    CACHE.own_or(environment, || {
        files.iter().find_map(|file| file.cache_dir.clone())
    })
}

const CACHE: Folder = Folder {
    own: "RYE_CACHE_DIR",
    shared: "XDG_CACHE_HOME",
    default: ".cache/rye",
};
const STATE: Folder = Folder {
    own: "RYE_STATE_DIR",
    shared: "XDG_STATE_HOME",
    default: ".local/state/rye",
};

/// Where the state and the cache of a user are if nothing names other folders.
pub(crate) fn default_folders(home: &Path) -> [PathBuf; 2] {
    [STATE.default, CACHE.default].map(|folder| home.join(folder))
}

/// A folder of the person's that is not for items.
struct Folder {
    /// The variable that names it.
    own: &'static str,
    /// The variable that names the folder of all programs.
    shared: &'static str,
    /// Where it is below `HOME` else.
    default: &'static str,
}

impl Folder {
    fn own_or(
        &self,
        environment: Environment<'_>,
        file: impl FnOnce() -> Option<Setting<PathBuf>>,
    ) -> Result<Option<Setting<PathBuf>>, SettingsError> {
        if let Some(folder) = environment(self.own).map(PathBuf::from) {
            // A relative one would be another in every folder.
            if !folder.is_absolute() {
                return Err(SettingsError::Variable {
                    name: self.own,
                    value: folder.to_string_lossy().into_owned(),
                    expected: "an absolute path",
                });
            }
            return Ok(Some(Setting::new(folder, Origin::Variable(self.own))));
        }
        let shared = || {
            let folder = PathBuf::from(environment(self.shared)?).join("rye");
            let setting = Setting::new(folder, Origin::Variable(self.shared));
            Some(setting).filter(|setting| setting.value.is_absolute())
        };
        let default = || {
            let home = PathBuf::from(environment("HOME")?);
            Some(Setting::new(home.join(self.default), Origin::Default))
        };
        Ok(file().or_else(shared).or_else(default))
    }
}

#[cfg(test)]
mod tests;
