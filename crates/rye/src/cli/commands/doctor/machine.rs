//! The cache, interpreters, and what is switched off.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use lillux::{At as _, shell_word};

use super::Health;
use crate::cli::context::Context;
use crate::settings;

/// What the standard runtimes run with.
const INTERPRETERS: [(&str, &str); 4] = [
    ("python3", "tools in Python"),
    ("node", "tools in JavaScript and TypeScript"),
    ("bash", "tools in bash"),
    ("ruby", "tools in Ruby"),
];

pub(super) fn check(context: &Context, health: &mut Health) {
    cache(context, health);
    for (program, what) in INTERPRETERS {
        if let Some(path) = on_path(program) {
            health.good(program, path.display().to_string());
        } else {
            let about = format!("not on PATH: {what} do not run");
            let fix = format!("install {program}, or add its folder to PATH");
            health.warn(program, about, fix);
        }
    }
    if context.settings.dev_mode.value {
        let about = "RYE_DEV_MODE is on: items that do not verify run, with a warning";
        health.warn("dev mode", about, "unset RYE_DEV_MODE".to_owned());
    }
}

fn cache(context: &Context, health: &mut Health) {
    let Some(folder) = context.cache() else {
        let about = "no folder for it: HOME is not set";
        return health.warn(
            "cache",
            about,
            "export RYE_CACHE_DIR=/some/folder".to_owned(),
        );
    };
    if !rye_items::is_owner_only_dir(folder) {
        let about = format!(
            "{} is not used: others can write to it, and what is in it is believed",
            folder.display()
        );
        let fix = format!(
            "chmod go-w {0}, or choose another by RYE_CACHE_DIR",
            folder.display()
        );
        return health.warn("cache", about, fix);
    }
    match try_to_write(folder) {
        Ok(()) => health.good("cache", folder.display().to_string()),
        Err(error) => {
            let fix = format!("mkdir -p {0} && chmod u+rwx {0}", shell_word(folder));
            health.fail("cache", error.to_string(), fix);
        }
    }
}

fn try_to_write(folder: &Path) -> Result<(), lillux::PathError> {
    let mut builder = std::fs::DirBuilder::new();
    let made = builder.recursive(true).mode(0o700).create(folder);
    made.at("create the folder", folder)?;
    let probe = folder.join(format!(".probe-{}", std::process::id()));
    std::fs::write(&probe, b"").at("write to", folder)?;
    std::fs::remove_file(&probe).at("remove", &probe)
}

/// The first file of that name on PATH that may be run.
fn on_path(program: &str) -> Option<PathBuf> {
    use rustix::fs::{Access, access};
    let path = settings::variable("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file() && access(file, Access::EXEC_OK).is_ok())
}
