//! `rye system export`: writes the built-in system space to a directory.

use std::path::{Path, PathBuf};

use lillux::durable::{self, IfExists};
use lillux::{PathContext as _, shell_word};
use rye_host::settings;
use rye_items::SYSTEM;
use serde_json::{Value, json};

use crate::cli::args::{ExportArgs, SystemCommand};
use crate::cli::failure::Failure;
use crate::cli::page::{DIM, Page, paint};
use crate::cli::printer::{Outcome, Report};

pub(crate) fn run(command: &SystemCommand) -> Outcome {
    match command {
        SystemCommand::Export(args) => export(args),
    }
}

/// Refuses an existing `.ai/`, so that versions are never mixed.
fn export(args: &ExportArgs) -> Outcome {
    let dir = std::path::absolute(&args.dir).at("find", &args.dir)?;
    let dir = settings::canonicalize_existing(dir);
    let space = dir.join(".ai");
    if space.symlink_metadata().is_ok() {
        let message = format!("{} already exists", space.display());
        return Err(Failure::failed("exists", message).hint(format!(
            "rye system export {}",
            shell_word(&dir.join("rye-system"))
        )));
    }
    for file in SYSTEM.files {
        let path = space.join(file.path);
        durable::create_dir(path.parent().unwrap_or(&space), 0o755)?;
        durable::write(&path, file.bytes, 0o644, IfExists::Fail)?;
    }
    Ok(Box::new(ExportReport { dir }))
}

struct ExportReport {
    dir: PathBuf,
}

impl Report for ExportReport {
    fn json(&self) -> Value {
        let dir: &Path = &self.dir;
        json!({
            "directory": dir.to_string_lossy(),
            "bundle": SYSTEM.name,
            "hash": SYSTEM.hash,
            "files": SYSTEM.files.len(),
        })
    }

    fn show(&self, page: &mut Page) {
        let (count, dir) = (SYSTEM.files.len(), self.dir.display());
        page.line(format_args!("wrote {count} signed files to {dir}/.ai"));
        let next = shell_word(&self.dir);
        let next = format!("next: export RYE_SYSTEM_SPACE={next}");
        page.line(paint(DIM, next));
    }
}
