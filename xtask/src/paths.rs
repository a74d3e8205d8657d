//! Paths: the workspace, build output and installed tools.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Root of the workspace.
pub(crate) fn workspace() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// A directory in `target` for files that can be regenerated.
pub(crate) fn cache_dir(name: &str) -> PathBuf {
    workspace().join("target").join(name)
}

/// A program built by cargo with the profile `debug` or `release`. Wherever the configuration
/// puts the build directory, this program runs from `<build directory>/<profile>/xtask`.
pub(crate) fn built_program(profile: &str, name: &str) -> Result<PathBuf> {
    let executable = std::env::current_exe().context("cannot find the path of this program")?;
    let directory = executable.parent().and_then(Path::parent);
    let directory = directory
        .with_context(|| format!("{} is not in a build directory", executable.display()))?;
    let program = directory.join(profile).join(name);
    anyhow::ensure!(program.is_file(), "{} was not built", program.display());
    Ok(program)
}

/// Cargo's home directory.
pub(crate) fn cargo_home() -> Option<PathBuf> {
    let set = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    set.or_else(|| Some(std::env::home_dir()?.join(".cargo")))
}

/// Finds a program on `PATH`.
pub(crate) fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(program))
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
    fn only_existing_programs_are_found_on_the_path() {
        assert!(find_program("sh").is_some_and(|sh| sh.is_absolute()));
        assert_eq!(find_program("no-such-program-anywhere"), None);
    }

    #[test]
    fn workspace_root_has_the_lock_file() {
        assert!(workspace().join("Cargo.lock").is_file());
    }
}
