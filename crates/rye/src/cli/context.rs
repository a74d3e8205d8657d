//! Context of a command: settings, access to items, printer.

use std::path::Path;

use lillux::shell_word;
use rye_items::signature::ITEM;
use rye_items::trust::{IgnoredFile, Trust};
use rye_items::verify::{self, SignatureFormat};
use rye_items::{IntegrityError, Library, SYSTEM, Space, Spaces, UserKeys};

use super::color_choice;
use super::failure::Failure;
use super::printer::Printer;
use crate::settings::{self, ConfigVerdict, Options, Settings, SettingsError};

/// What every command needs.
pub(crate) struct Context {
    pub(crate) settings: Settings,
    pub(crate) printer: Printer,
}

impl Context {
    /// Loads the settings, warns about ignored configuration files and sets the printer's colour.
    pub(crate) fn open(options: &Options, printer: &mut Printer) -> Result<Self, Failure> {
        let settings = load_settings(options)?;
        printer.color = color_choice(settings.color.value);
        for ignored in &settings.ignored {
            let text = format!("{} is ignored: {}", ignored.path.display(), ignored.reason);
            printer.warn(&text, ignored.hint.as_deref());
        }
        Ok(Self {
            settings,
            printer: *printer,
        })
    }

    /// The context for another project.
    pub(crate) fn in_project(&self, project: &Path) -> Result<Self, Failure> {
        let options = Options {
            project: Some(project.to_owned()),
            color: Some(self.settings.color.value),
        };
        let mut printer = self.printer;
        Self::open(&options, &mut printer)
    }

    /// Fails if the project directory that was named does not exist.
    pub(crate) fn require_project(&self) -> Result<(), Failure> {
        let project = &self.settings.dirs.project;
        if project.value.is_dir() {
            return Ok(());
        }
        let dir = project.value.display();
        let message = format!(
            "project directory {dir} does not exist ({})",
            project.origin
        );
        Err(Failure::usage(message)
            .hint(format!("rye init --project {}", shell_word(&project.value))))
    }

    /// Opens the library of the items in all spaces.
    pub(crate) fn library(&self) -> Result<Library, Failure> {
        let dirs = &self.settings.dirs;
        let library = Library::open(&rye_items::Options {
            project: Some(&dirs.project.value),
            user: self.user(),
            bundles: &dirs.system_space.value,
            embedded: &SYSTEM,
            cache: self.cache(),
            process_cache: None,
            dev_mode: self.settings.dev_mode.value,
        })?;
        for ignored in library.ignored() {
            let text = format!("{} is ignored: {}", ignored.path.display(), ignored.reason);
            self.printer.warn(&text, None);
        }
        Ok(library)
    }

    /// Opens all spaces.
    pub(crate) fn spaces(&self) -> Result<Spaces, Failure> {
        let dirs = &self.settings.dirs;
        let (project, bundles) = (&dirs.project.value, &dirs.system_space.value);
        Ok(Spaces::open(Some(project), self.user(), bundles, &SYSTEM)?)
    }

    /// Warns about ignored files.
    pub(crate) fn warn_ignored(&self, ignored: &[IgnoredFile]) {
        for ignored in ignored {
            let text = format!("{} is ignored: {}", ignored.path.display(), ignored.reason);
            self.printer.warn(&text, Some(&accept_hint(ignored)));
        }
    }

    /// The directory of the user space, if there is one.
    pub(crate) fn user(&self) -> Option<&Path> {
        let user = self.settings.dirs.user_space.as_ref()?;
        Some(&user.value)
    }

    /// The user's own keys.
    pub(crate) fn own_keys(&self) -> Result<UserKeys, Failure> {
        Ok(UserKeys::new(self.settings.user_space()?))
    }

    /// The cache directory, if there is one.
    pub(crate) fn cache(&self) -> Option<&Path> {
        let dir = self.settings.cache_dir.as_ref()?;
        Some(&dir.value)
    }
}

/// The command that makes an ignored file effective.
pub(crate) fn accept_hint(ignored: &IgnoredFile) -> String {
    let sign = || format!("rye sign {}", shell_word(&ignored.path));
    ignored.hint.clone().unwrap_or_else(sign)
}

fn load_settings(options: &Options) -> Result<Settings, SettingsError> {
    let dirs = settings::current_dirs(options)?;
    let user = dirs.user_space.as_ref().map(|user| user.value.as_path());
    let spaces = Spaces::open(
        Some(&dirs.project.value),
        user,
        &dirs.system_space.value,
        &SYSTEM,
    )?;
    // Before the first file is verified.
    let own: Vec<_> = settings::user_config_file(&spaces)?.into_iter().collect();
    if settings::bound_signatures(&settings::variable, &own)?.value {
        verify::require_bound_signatures();
    }
    let trust = Trust::new(&spaces);
    let (files, ignored) = settings::config_files(&spaces, |space, path, bytes| {
        verify_config(space, path, bytes, &trust)
    })?;
    Settings::resolve(options, &settings::variable, dirs, &files, ignored)
}

/// Verifies a configuration file: it changes behaviour, so it needs a trusted signature.
fn verify_config(space: Space, path: &Path, bytes: Vec<u8>, trust: &Trust<'_>) -> ConfigVerdict {
    let form = SignatureFormat::config(ITEM, settings::CONFIG);
    match verify::check(&bytes, &form, trust) {
        Ok(_) => ConfigVerdict::Effective(bytes),
        Err(problem) => {
            let item = "config:rye".to_owned();
            let error =
                IntegrityError::new(item, path.to_owned(), Some(space), problem, Some(&bytes));
            ConfigVerdict::Ignored {
                reason: error.problem.to_string(),
                hint: Some(error.hint()),
            }
        }
    }
}
