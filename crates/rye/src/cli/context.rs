//! What a command has at hand: settings, spaces, a printer.

use std::path::Path;

use rye_items::{Space, Spaces};

use super::color_choice;
use super::failure::Failure;
use super::printer::Printer;
use crate::settings::{self, Judged, Options, Settings};

/// The call's surroundings.
pub(crate) struct Context {
    pub(crate) settings: Settings,
    pub(crate) printer: Printer,
}

impl Context {
    /// Reads the settings, says which configuration does not count, and lets the
    /// printer know the colour.
    pub(crate) fn open(options: &Options, printer: &mut Printer) -> Result<Self, Failure> {
        let places = settings::places_here(options)?;
        let user = places.user_space.as_ref().map(|user| user.value.as_path());
        let spaces = Spaces::open(
            Some(&places.project.value),
            user,
            &places.system_space.value,
            &rye_items::space::Embedded::EMPTY,
        )?;
        let (files, ignored) = settings::config_files(&spaces, judge)?;
        let variable = &settings::variable;
        let settings = Settings::resolve(options, variable, places, &files, ignored)?;
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
}

fn judge(_space: Space, _path: &Path, _bytes: Vec<u8>) -> Judged {
    Judged::Ignored {
        reason: "it is not verified".to_owned(),
        hint: Some("rye sign config:rye".to_owned()),
    }
}
