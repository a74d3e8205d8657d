//! Allows only signed programs and directories of a project in a call.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lillux::{Hash, shell_word};
use rye_items::trust::Trust;
use rye_items::{ItemError, Library, LockedEnvironment, Space};
use serde_json::Value;

use super::dependencies::LoadableFiles;
use super::template_context::CallAnchor;
use super::{Approval, Roots};
use crate::environment::{Environment, Origin};

/// Checks paths inside the project and the spaces. All other paths belong to the system and are
/// allowed.
pub(super) struct PathGuard<'a> {
    library: &'a Library,
    trust: &'a Trust<'a>,
    pub(super) anchor: &'a CallAnchor,
    cache: &'a Path,
    /// Whether unsigned interpreters are accepted with a warning.
    accepts_unsigned: bool,
    /// Whether commands that print the path of an interpreter are run.
    pub(super) runs_commands: bool,
    /// Directories whose content must be signed.
    guarded: Vec<PathBuf>,
    findings: Mutex<Findings>,
}

/// Results of the checks of this call.
#[derive(Default)]
struct Findings {
    /// Environments that were verified for this call.
    verified: Vec<LockedEnvironment>,
    warnings: Vec<String>,
    /// The first directory that is not signed.
    unsigned: Option<PathBuf>,
    error: Option<ItemError>,
}

impl<'a> PathGuard<'a> {
    pub(super) fn new(
        library: &'a Library,
        trust: &'a Trust<'a>,
        roots: &'a Roots,
        anchor: &'a CallAnchor,
        loadable: &LoadableFiles,
        approval: &Approval,
    ) -> Self {
        let spaces = library.spaces();
        // Without a project space, the project directory is unguarded: it may be a home directory.
        let mut project = spaces
            .roots_in(Space::Project)
            .map(|_| roots.project.clone());
        let user = spaces
            .roots_in(Space::User)
            .filter_map(|root| root.as_dir());
        let guarded = project.next().into_iter().chain(user.map(Path::to_owned));
        Self {
            library,
            trust,
            anchor,
            cache: &roots.cache,
            // Development mode applies only to calls that a user makes directly.
            accepts_unsigned: roots.dev_mode && matches!(approval, Approval::ByUser),
            runs_commands: true,
            guarded: guarded.collect(),
            findings: Mutex::new(Findings {
                verified: loadable.environments().cloned().collect(),
                ..Findings::default()
            }),
        }
    }

    /// In a dry run, nothing is run to find an interpreter.
    #[must_use]
    pub(super) fn for_dry_run(mut self, is_dry_run: bool) -> Self {
        self.runs_commands = !is_dry_run;
        self
    }

    fn findings(&self) -> MutexGuard<'_, Findings> {
        self.findings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an interpreter may be used. Inside the project it must be in a signed environment.
    pub(super) fn allows(&self, program: &Path, space: Space) -> bool {
        match self.is_verified(program.parent().unwrap_or(program)) {
            Ok(true) => true,
            Ok(false) => {
                let is_accepted = self.accepts_unsigned && space != Space::System;
                let environment = self.environment_dir(program);
                let warning = if is_accepted {
                    format!("RYE_DEV_MODE accepts the unsigned {}", program.display())
                } else {
                    format!(
                        "ignored programs in {}, which is not signed; to use them: \
                         rye sign --manifest {}",
                        environment.display(),
                        shell_word(&environment)
                    )
                };
                let findings = &mut *self.findings();
                if !is_accepted {
                    findings.unsigned.get_or_insert(environment);
                }
                if !findings.warnings.contains(&warning) {
                    findings.warnings.push(warning);
                }
                is_accepted
            }
            Err(error) => {
                self.findings().error.get_or_insert(error);
                false
            }
        }
    }

    /// The first directory that was refused because it is not signed.
    pub(super) fn unsigned(&self) -> Option<PathBuf> {
        self.findings().unsigned.clone()
    }

    /// Directory of the environment that contains a program: the parent of `bin`, unless that is
    /// the whole project or space.
    fn environment_dir(&self, program: &Path) -> PathBuf {
        let dir = program.parent().unwrap_or(program);
        let is_bin = |name: &std::ffi::OsStr| name == "bin" || name == ".bin" || name == "Scripts";
        let is_root = |parent: &Path| self.guarded.iter().any(|root| root == parent);
        match dir.parent() {
            Some(parent) if dir.file_name().is_some_and(is_bin) && !is_root(parent) => {
                parent.to_owned()
            }
            _ => dir.to_owned(),
        }
    }

    /// Whether a directory is unguarded or inside a verified environment.
    fn is_verified(&self, dir: &Path) -> Result<bool, ItemError> {
        if dir.starts_with(self.cache) || !self.is_guarded(dir) {
            return Ok(true);
        }
        let contains = |environment: &LockedEnvironment| dir.starts_with(&environment.path);
        if self.findings().verified.iter().any(contains) {
            return Ok(true);
        }
        let found = self.library.verify_environment(dir, self.trust)?;
        let is_verified = found.is_some();
        self.findings().verified.extend(found);
        Ok(is_verified)
    }

    /// Whether a path is inside a guarded directory, before or after resolving symbolic links.
    fn is_guarded(&self, path: &Path) -> bool {
        let real = path.canonicalize().ok();
        self.guarded.iter().any(|guarded| {
            let real_guarded = guarded.canonicalize();
            path.starts_with(guarded)
                || real_guarded.is_ok_and(|guarded| {
                    path.starts_with(&guarded)
                        || real.as_ref().is_some_and(|real| real.starts_with(&guarded))
                })
        })
    }

    /// Hash of the signed environment that contains a program.
    pub(super) fn environment_hash(&self, program: &Path) -> Option<Hash> {
        let findings = self.findings();
        let mut all = findings.verified.iter();
        all.find(|environment| program.starts_with(&environment.path))
            .map(|environment| environment.hash)
    }

    /// Removes guarded, unverified directories from the variables that `env_paths` set. Entries
    /// that `PATH` had before stay.
    pub(super) fn strip_unverified(
        &self,
        environment: &mut Environment,
        env_paths: &Value,
        path_before: &str,
        id: &str,
    ) -> Result<(), ItemError> {
        for (name, change) in env_paths.as_object().into_iter().flatten() {
            let Some(value) = environment.get(name).map(str::to_owned) else {
                continue;
            };
            let is_list = change.get("set").is_none();
            let mut kept = Vec::new();
            for dir in value.split(':') {
                let is_inherited = name == "PATH" && path_before.split(':').any(|it| it == dir);
                let path = Path::new(dir);
                let is_kept = is_inherited
                    || if path.is_absolute() {
                        self.is_verified(path)?
                    } else {
                        !is_list
                    };
                if is_kept {
                    kept.push(dir);
                } else if !dir.is_empty() {
                    let argument = shell_word(path);
                    self.findings().warnings.push(format!(
                        "removed {dir} from {name}, because it is not signed; \
                         to use it: rye sign --manifest {argument}"
                    ));
                }
            }
            let kept = kept.join(":");
            if kept != value {
                environment.set(name, kept, Origin::Anchor(id.to_owned()));
            }
        }
        Ok(())
    }

    pub(super) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.findings().warnings)
    }

    pub(super) fn take_error(&self) -> Option<ItemError> {
        self.findings().error.take()
    }
}
