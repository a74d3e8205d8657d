//! Settings of a call. Precedence: command-line options, environment variables,
//! `.ai/config/rye.yaml` (project, user, system), defaults. Each value records its origin.

mod dirs;
mod error;
mod file;
mod load;
mod variables;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rye_items::Space;
use serde::Deserialize;

pub use dirs::Directories;
pub use error::SettingsError;
pub use file::ConfigFile;
pub use load::{
    CONFIG, ConfigVerdict, canonicalize_existing, config_files, current_dirs, project_of,
    user_config_file, variable,
};
pub use variables::{ReadTime, VARIABLES};

/// Default number of search results.
const SEARCH_LIMIT: u32 = 20;

/// Command-line options that override settings.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The project directory.
    pub project: Option<PathBuf>,
    /// When to colour output.
    pub color: Option<Color>,
}

/// Reads an environment variable; an empty one counts as unset.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// A value and its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting<T> {
    /// The value.
    pub value: T,
    /// Its origin.
    pub origin: Origin,
}

impl<T> Setting<T> {
    fn new(value: T, origin: Origin) -> Self {
        Self { value, origin }
    }
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A command-line option.
    Option(&'static str),
    /// An environment variable.
    Variable(&'static str),
    /// A line of a configuration file.
    File {
        /// The file.
        path: PathBuf,
        /// The line.
        line: u32,
    },
    /// The nearest parent of the current directory that has `.ai/`.
    Discovered,
    /// The built-in default.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option(name) => write!(f, "option {name}"),
            Self::Variable(name) => f.write_str(name),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Discovered => f.write_str("nearest directory with .ai/"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// When to colour output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Color {
    /// If the output is a terminal
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

impl Color {
    /// All settings.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Always, Self::Never];

    /// The name of the setting.
    pub fn as_str(self) -> &'static str {
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
        Self::ALL
            .into_iter()
            .find(|color| color.as_str() == text)
            .ok_or("auto, always or never")
    }
}

/// The colours of the chat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum ChatTheme {
    /// The palette of the terminal.
    #[default]
    Terminal,
    /// Colours for a light background.
    Light,
    /// Colours for a dark background.
    Dark,
}

/// When the chat alerts a user who looks elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum ChatNotify {
    /// If the terminal says that it has no focus.
    #[default]
    Unfocused,
    /// Whether it has the focus or not.
    Always,
    /// Neither bell nor notification.
    Never,
}

/// The settings of a call.
#[derive(Debug)]
pub struct Settings {
    /// The project and the spaces.
    pub dirs: Directories,
    /// Directory of caches.
    pub cache_dir: Option<Setting<PathBuf>>,
    /// Directory of sessions and runs.
    pub state_dir: Option<Setting<PathBuf>>,
    /// When to colour output.
    pub color: Setting<Color>,
    /// The colours of the chat.
    pub chat_theme: Setting<ChatTheme>,
    /// When the chat alerts a user who looks elsewhere.
    pub chat_notify: Setting<ChatNotify>,
    /// Number of search results.
    pub search_limit: Setting<u32>,
    /// Whether unverified items of the project and user run, with a warning.
    pub dev_mode: Setting<bool>,
    /// Whether every execution is traced.
    pub debug: Setting<bool>,
    /// Whether signatures that are not bound to a file are refused.
    pub bound_signatures: Setting<bool>,
    /// Configuration files without effect.
    pub ignored: Vec<IgnoredConfig>,
}

/// A configuration file without effect, because no trusted key signed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IgnoredConfig {
    /// The space of the file.
    pub space: Space,
    /// The file.
    pub path: PathBuf,
    /// Why it has no effect.
    pub reason: String,
    /// The command that makes it effective.
    pub hint: Option<String>,
}

impl Settings {
    /// Merges all sources. `files` are the verified files in order of precedence.
    pub fn resolve(
        options: &Options,
        environment: Environment<'_>,
        dirs: Directories,
        files: &[ConfigFile],
        ignored: Vec<IgnoredConfig>,
    ) -> Result<Self, SettingsError> {
        Ok(Self {
            color: color(options, environment, files)?,
            chat_theme: files
                .iter()
                .find_map(|file| file.chat_theme.clone())
                .unwrap_or(Setting::new(ChatTheme::default(), Origin::Default)),
            chat_notify: files
                .iter()
                .find_map(|file| file.chat_notify.clone())
                .unwrap_or(Setting::new(ChatNotify::default(), Origin::Default)),
            search_limit: files
                .iter()
                .find_map(|file| file.search_limit.clone())
                .unwrap_or(Setting::new(SEARCH_LIMIT, Origin::Default)),
            // Never from a file: write access to one must not suffice to disable verification.
            dev_mode: flag(environment, "RYE_DEV_MODE")?
                .unwrap_or(Setting::new(false, Origin::Default)),
            debug: flag(environment, "RYE_DEBUG")?
                .or_else(|| files.iter().find_map(|file| file.debug.clone()))
                .unwrap_or(Setting::new(false, Origin::Default)),
            bound_signatures: bound_signatures(environment, files)?,
            cache_dir: cache_dir(environment, files)?,
            state_dir: STATE.resolve(environment, || None)?,
            dirs,
            ignored,
        })
    }

    /// The project directory.
    pub fn project(&self) -> &Path {
        &self.dirs.project.value
    }

    /// The directory that contains the user's `.ai/`.
    pub fn user_space(&self) -> Result<&Path, SettingsError> {
        let dir = self.dirs.user_space.as_ref();
        dir.map(|setting| setting.value.as_path())
            .ok_or(SettingsError::NoUserSpace)
    }
}

/// Whether unbound signatures are refused. Either the environment or the user's configuration
/// file can require it; neither can revoke what the other requires.
pub fn bound_signatures(
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

/// The colour setting from options and environment, before any file is read.
pub fn early_color(
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
    CACHE.resolve(environment, || {
        files.iter().find_map(|file| file.cache_dir.clone())
    })
}

const CACHE: BaseDir = BaseDir {
    own: "RYE_CACHE_DIR",
    shared: "XDG_CACHE_HOME",
    default: ".cache/rye",
};
const STATE: BaseDir = BaseDir {
    own: "RYE_STATE_DIR",
    shared: "XDG_STATE_HOME",
    default: ".local/state/rye",
};

/// The default state and cache directories of a user.
pub fn default_dirs(home: &Path) -> [PathBuf; 2] {
    [STATE.default, CACHE.default].map(|dir| home.join(dir))
}

/// A per-user directory for data other than items, as in the XDG base directory specification.
struct BaseDir {
    /// Environment variable that names the directory.
    own: &'static str,
    /// XDG variable that names its parent.
    shared: &'static str,
    /// Default path below `HOME`.
    default: &'static str,
}

impl BaseDir {
    fn resolve(
        &self,
        environment: Environment<'_>,
        file: impl FnOnce() -> Option<Setting<PathBuf>>,
    ) -> Result<Option<Setting<PathBuf>>, SettingsError> {
        if let Some(dir) = environment(self.own).map(PathBuf::from) {
            // A relative path would depend on the current directory.
            if !dir.is_absolute() {
                return Err(SettingsError::Variable {
                    name: self.own,
                    value: dir.to_string_lossy().into_owned(),
                    expected: "an absolute path",
                });
            }
            return Ok(Some(Setting::new(dir, Origin::Variable(self.own))));
        }
        let shared = || {
            let dir = PathBuf::from(environment(self.shared)?).join("rye");
            let setting = Setting::new(dir, Origin::Variable(self.shared));
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
