//! Where things are: the workspace, what cargo built, the tools we keep.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The workspace's folder.
pub(crate) fn workspace() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// Where tools and other things that can be made again are kept.
pub(crate) fn kept(what: &str) -> PathBuf {
    workspace().join("target").join(what)
}

/// The program `name` that `cargo build` made; `profile` is `debug` or
/// `release`. Wherever the configuration puts the build folder, this program
/// runs from `<build folder>/<profile>/xtask`.
pub(crate) fn built(profile: &str, name: &str) -> Result<PathBuf> {
    let this = std::env::current_exe().context("cannot tell where this program is")?;
    let folder = this.parent().and_then(Path::parent);
    let folder = folder.with_context(|| format!("{} is in no build folder", this.display()))?;
    let program = folder.join(profile).join(name);
    anyhow::ensure!(program.is_file(), "{} was not built", program.display());
    Ok(program)
}

/// Cargo's own folder, where it keeps registries and databases.
pub(crate) fn cargo_home() -> Option<PathBuf> {
    let set = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    set.or_else(|| Some(std::env::home_dir()?.join(".cargo")))
}

/// Looks a program up on `PATH`.
pub(crate) fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|candidate| is_executable(candidate))
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata()
        .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_on_the_path_and_a_missing_one_is_not() {
        assert!(on_path("sh").is_some_and(|sh| sh.is_absolute()));
        assert_eq!(on_path("no-such-program-anywhere"), None);
    }

    #[test]
    fn the_workspace_is_the_folder_with_the_lock_file() {
        assert!(workspace().join("Cargo.lock").is_file());
    }
}
