//! What a command has at hand: settings, the library of items, a printer.

use std::path::Path;

use lillux::shell_word;
use rye_items::signature::ITEM;
use rye_items::trust::{IgnoredFile, Trust};
use rye_items::verify::{self, SignatureFormat};
use rye_items::{IntegrityError, Library, SYSTEM, Space, Spaces, UserKeys};

use super::color_choice;
use super::failure::Failure;
use super::printer::Printer;
use crate::settings::{self, Judged, Options, Settings, SettingsError};

/// The call's surroundings.
pub(crate) struct Context {
    pub(crate) settings: Settings,
    pub(crate) printer: Printer,
}

impl Context {
    /// Reads the settings, says which configuration does not count, and lets the
    /// printer know the colour.
    pub(crate) fn open(options: &Options, printer: &mut Printer) -> Result<Self, Failure> {
        let settings = read_settings(options)?;
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

    /// The same call's surroundings in another project.
    pub(crate) fn in_project(&self, project: &Path) -> Result<Self, Failure> {
        let options = Options {
            project: Some(project.to_owned()),
            color: Some(self.settings.color.value),
        };
        let mut printer = self.printer;
        Self::open(&options, &mut printer)
    }

    /// Fails where a folder that was named for the project is not there.
    pub(crate) fn need_project(&self) -> Result<(), Failure> {
        let project = &self.settings.places.project;
        if project.value.is_dir() {
            return Ok(());
        }
        let folder = project.value.display();
        let message = format!("there is no folder {folder} ({})", project.origin);
        Err(Failure::usage(message)
            .hint(format!("rye init --project {}", shell_word(&project.value))))
    }

    /// The items of all spaces, as they are now.
    pub(crate) fn library(&self) -> Result<Library, Failure> {
        let places = &self.settings.places;
        let library = Library::open(&rye_items::Options {
            project: Some(&places.project.value),
            user: self.user(),
            bundles: &places.system_space.value,
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

    /// All spaces, as they are now.
    pub(crate) fn spaces(&self) -> Result<Spaces, Failure> {
        let places = &self.settings.places;
        let (project, bundles) = (&places.project.value, &places.system_space.value);
        Ok(Spaces::open(Some(project), self.user(), bundles, &SYSTEM)?)
    }

    /// Says which files do not count, and why.
    pub(crate) fn tell_ignored(&self, ignored: &[IgnoredFile]) {
        for ignored in ignored {
            let text = format!("{} is ignored: {}", ignored.path.display(), ignored.reason);
            self.printer.warn(&text, Some(&hint_of(ignored)));
        }
    }

    /// The folder with the user's space, if there is one.
    pub(crate) fn user(&self) -> Option<&Path> {
        let user = self.settings.places.user_space.as_ref()?;
        Some(&user.value)
    }

    /// The user's own keys.
    pub(crate) fn own_keys(&self) -> Result<UserKeys, Failure> {
        Ok(UserKeys::new(self.settings.user_space()?))
    }

    /// The folder of the cache, if it may have one.
    pub(crate) fn cache(&self) -> Option<&Path> {
        let folder = self.settings.cache_dir.as_ref()?;
        Some(&folder.value)
    }
}

/// The command that makes a file count.
pub(crate) fn hint_of(ignored: &IgnoredFile) -> String {
    let sign = || format!("rye sign {}", shell_word(&ignored.path));
    ignored.hint.clone().unwrap_or_else(sign)
}

fn read_settings(options: &Options) -> Result<Settings, SettingsError> {
    let places = settings::places_here(options)?;
    let user = places.user_space.as_ref().map(|user| user.value.as_path());
    let spaces = Spaces::open(
        Some(&places.project.value),
        user,
        &places.system_space.value,
        &SYSTEM,
    )?;
    // Before the first file is verified.
    let own: Vec<_> = settings::own_file(&spaces)?.into_iter().collect();
    if settings::bound_signatures(&settings::variable, &own)?.value {
        verify::require_bound_signatures();
    }
    let trust = Trust::new(&spaces);
    let (files, ignored) = settings::config_files(&spaces, |space, path, bytes| {
        judge(space, path, bytes, &trust)
    })?;
    Settings::resolve(options, &settings::variable, places, &files, ignored)
}

/// Configuration is behaviour: it counts when it is signed by a key that counts.
fn judge(space: Space, path: &Path, bytes: Vec<u8>, trust: &Trust<'_>) -> Judged {
    let form = SignatureFormat::config(ITEM, settings::CONFIG);
    match verify::check(&bytes, &form, trust) {
        Ok(_) => Judged::Counts(bytes),
        Err(problem) => {
            let item = "config:rye".to_owned();
            let error =
                IntegrityError::new(item, path.to_owned(), Some(space), problem, Some(&bytes));
            Judged::Ignored {
                reason: error.problem.to_string(),
                hint: Some(error.hint()),
            }
        }
    }
}
