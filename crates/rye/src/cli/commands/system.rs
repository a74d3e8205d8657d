//! `rye system export`

use std::path::{Path, PathBuf};

use lillux::durable::{self, Existing};
use lillux::{At as _, shell_word};
use rye_items::SYSTEM;
use serde_json::{Value, json};

use crate::cli::args::{ExportArgs, SystemCommand};
use crate::cli::failure::Failure;
use crate::cli::page::{DIM, Page, paint};
use crate::cli::printer::{Outcome, Report};
use crate::settings;

pub(crate) fn run(command: &SystemCommand) -> Outcome {
    match command {
        SystemCommand::Export(args) => export(args),
    }
}

/// Writes into an empty place only: a bundle of two versions would be neither.
fn export(args: &ExportArgs) -> Outcome {
    let folder = std::path::absolute(&args.folder).at("find", &args.folder)?;
    let folder = settings::real(folder);
    let space = folder.join(".ai");
    if space.symlink_metadata().is_ok() {
        let message = format!("{} is there already", space.display());
        return Err(Failure::failed("exists", message).hint("rye system export OTHER-DIR"));
    }
    for file in SYSTEM.files {
        let path = space.join(file.path);
        durable::create_folder(path.parent().unwrap_or(&space), 0o755)?;
        durable::write(&path, file.bytes, 0o644, Existing::Refuse)?;
    }
    Ok(Box::new(Exported { folder }))
}

struct Exported {
    folder: PathBuf,
}

impl Report for Exported {
    fn json(&self) -> Value {
        let folder: &Path = &self.folder;
        json!({
            "folder": folder.to_string_lossy(),
            "bundle": SYSTEM.name,
            "hash": SYSTEM.hash,
            "files": SYSTEM.files.len(),
        })
    }

    fn show(&self, page: &mut Page) {
        let (count, folder) = (SYSTEM.files.len(), self.folder.display());
        page.line(format_args!("wrote {count} signed files to {folder}/.ai"));
        let next = shell_word(&self.folder);
        let next = format!("to use them: export RYE_SYSTEM_SPACE={next}");
        page.line(paint(DIM, next));
    }
}
