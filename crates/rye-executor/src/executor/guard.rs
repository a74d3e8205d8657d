//! Which programs and directories of a project a call may use: those that were signed.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lillux::{Hash, shell_word};
use rye_items::trust::Trust;
use rye_items::{ItemError, Library, LockedEnvironment, Space};
use serde_json::Value;

use super::dependencies::Loadable;
use super::facts::CallAnchor;
use super::{Approval, Roots};
use crate::environment::{Environment, Origin};

/// Decides about paths below a project or a space. Everything else belongs to the machine.
pub(super) struct Guard<'a> {
    library: &'a Library,
    trust: &'a Trust<'a>,
    pub(super) anchor: &'a CallAnchor,
    cache: &'a Path,
    /// Whether unsigned interpreters pass with a warning.
    waives: bool,
    /// The directories whose content is verified before it is used.
    guarded: Vec<PathBuf>,
    findings: Mutex<Findings>,
}

/// What was found out on the way.
#[derive(Default)]
struct Findings {
    /// The environments that were verified for this call.
    verified: Vec<LockedEnvironment>,
    warnings: Vec<String>,
    error: Option<ItemError>,
}

impl<'a> Guard<'a> {
    pub(super) fn new(
        library: &'a Library,
        trust: &'a Trust<'a>,
        roots: &'a Roots,
        anchor: &'a CallAnchor,
        loadable: &Loadable,
        approval: &Approval,
    ) -> Self {
        let spaces = library.spaces();
        // Without a space of its own, the folder of a call is no project: it may be a home.
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
            // Development mode is for the person at the terminal.
            waives: roots.dev_mode && matches!(approval, Approval::ByUser),
            guarded: guarded.collect(),
            findings: Mutex::new(Findings {
                verified: loadable.environments().cloned().collect(),
                ..Findings::default()
            }),
        }
    }

    fn findings(&self) -> MutexGuard<'_, Findings> {
        self.findings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an interpreter may be used. One of a project must be in a signed environment.
    pub(super) fn admits(&self, program: &Path, space: Space) -> bool {
        match self.is_verified(program.parent().unwrap_or(program)) {
            Ok(true) => true,
            Ok(false) => {
                let waived = self.waives && space != Space::System;
                let environment = environment_dir(program);
                let text = if waived {
                    format!("RYE_DEV_MODE lets the unsigned {} run", program.display())
                } else {
                    format!(
                        "programs in {} are not used: it is not signed; to use them: \
                         rye sign --manifest {}",
                        environment.display(),
                        shell_word(&environment)
                    )
                };
                let warnings = &mut self.findings().warnings;
                if !warnings.contains(&text) {
                    warnings.push(text);
                }
                waived
            }
            Err(error) => {
                self.findings().error.get_or_insert(error);
                false
            }
        }
    }

    /// Whether a directory is outside of what is guarded, or verified.
    fn is_verified(&self, folder: &Path) -> Result<bool, ItemError> {
        if folder.starts_with(self.cache) || !self.is_guarded(folder) {
            return Ok(true);
        }
        let known = |environment: &LockedEnvironment| folder.starts_with(&environment.path);
        if self.findings().verified.iter().any(known) {
            return Ok(true);
        }
        let found = self.library.verify_environment(folder, self.trust)?;
        let is_verified = found.is_some();
        self.findings().verified.extend(found);
        Ok(is_verified)
    }

    /// Whether a path is below a guarded directory, as it is written or after all links.
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

    /// The hash of the signed environment that a program is in.
    pub(super) fn environment_of(&self, program: &Path) -> Option<Hash> {
        let findings = self.findings();
        let mut all = findings.verified.iter();
        all.find(|environment| program.starts_with(&environment.path))
            .map(|environment| environment.hash)
    }

    /// Takes the directories out of what `env_paths` set that are neither verified nor outside
    /// of what is guarded. Of `PATH`, what was there before stays.
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
            for folder in value.split(':') {
                let was_there = name == "PATH" && path_before.split(':').any(|it| it == folder);
                let path = Path::new(folder);
                let stays = was_there
                    || if path.is_absolute() {
                        self.is_verified(path)?
                    } else {
                        !is_list
                    };
                if stays {
                    kept.push(folder);
                } else if !folder.is_empty() {
                    let word = shell_word(path);
                    self.findings().warnings.push(format!(
                        "{name} does without {folder}, which is not signed; \
                         to use it: rye sign --manifest {word}"
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

/// What to sign so that a program may be used: the directory around `bin`.
fn environment_dir(program: &Path) -> PathBuf {
    let folder = program.parent().unwrap_or(program);
    let is_bin = |name: &std::ffi::OsStr| name == "bin" || name == ".bin" || name == "Scripts";
    match folder.parent() {
        Some(above) if folder.file_name().is_some_and(is_bin) => above.to_owned(),
        _ => folder.to_owned(),
    }
}
