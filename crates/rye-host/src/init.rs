//! Sets up a user and a project: creates a signing key, the directories of a project and a sample tool.

mod agents;

use std::path::{Path, PathBuf};

use lillux::durable::{self, IfExists, WriteError};
use lillux::keys::SigningKey;
use lillux::shell_word;
use rye_items::space::Root;
use rye_items::trust::DistrustReason;
use rye_items::{ItemRef, LookupError, Space, SpaceError, UserKeyError};
use serde_json::{Value, json};

use crate::context::Context;
use crate::failure::Failure;
use crate::settings;

const DIRS: [&str; 5] = ["tools", "directives", "knowledge", "config", "config/agent"];
const SAMPLE: &str = "tools/hello.py";
const SAMPLE_TEXT: &str = include_str!("init/hello.py");

/// Creates what is missing of a key, its trust file, and the directories of the project with a
/// sample tool. With `for_agents`, also instructions, roles and rules for agents.
pub fn init(
    owner: Option<&str>,
    for_agents: bool,
    context: &Context,
) -> Result<InitReport, Failure> {
    let mut report = InitReport::default();
    let owner = &key_owner(owner);
    let (key, is_new) = ensure_key(owner, context, &mut report)?;
    if !is_new {
        ensure_trust(owner, context, &key, &mut report)?;
    }
    create_dirs(context.settings.project(), &mut report)?;
    write_gitignore(context.settings.project(), &mut report)?;
    write_sample(context, &key, &mut report)?;
    if for_agents {
        agents::write(context, &mut report)?;
    }
    Ok(report)
}

/// The owner of a key: the given name, or the login name.
pub fn key_owner(given: Option<&str>) -> String {
    let login = || Some(settings::variable("USER")?.to_string_lossy().into_owned());
    given
        .map(str::to_owned)
        .or_else(login)
        .unwrap_or_else(|| "me".to_owned())
}

/// Returns the user's key, and whether it was generated now, together with its trust file.
fn ensure_key(
    owner: &str,
    context: &Context,
    report: &mut InitReport,
) -> Result<(SigningKey, bool), Failure> {
    let keys = context.own_keys()?;
    let path = keys.pair_files().private;
    match keys.load_signing_key() {
        Ok(key) => {
            report.existing("signing key", path);
            Ok((key, false))
        }
        Err(UserKeyError::Missing(_)) => {
            let key = match keys.generate(owner, IfExists::Fail) {
                // Another process was faster.
                Err(UserKeyError::Exists(_)) => {
                    report.existing("signing key", path);
                    return Ok((keys.load_signing_key()?, false));
                }
                outcome => outcome?,
            };
            report.created("signing key", path);
            report.created("trust file", keys.trust_path(key.public().fingerprint()));
            Ok((key, true))
        }
        Err(error) => Err(error.into()),
    }
}

/// Trusts the user's key, unless it was revoked or its trust file is invalid.
fn ensure_trust(
    owner: &str,
    context: &Context,
    key: &SigningKey,
    report: &mut InitReport,
) -> Result<(), Failure> {
    let keys = context.own_keys()?;
    let fingerprint = key.public().fingerprint();
    let path = keys.trust_path(fingerprint);
    let library = context.reopen_library()?;
    match library.trust().key_status(fingerprint) {
        Ok(trusted) => report.existing("trust file", trusted.path.clone()),
        Err(DistrustReason::Revoked(revocation)) => {
            let text = format!("your key is not trusted: {revocation}");
            context
                .reporter()
                .warn(&text, Some("rye keys generate --force"));
        }
        Err(DistrustReason::Unknown { .. }) if path.symlink_metadata().is_ok() => {
            let text = format!(
                "trust file {} is invalid and left unchanged",
                path.display()
            );
            let hint = format!("rm {} && rye init", shell_word(&path));
            context.reporter().warn(&text, Some(&hint));
        }
        Err(DistrustReason::Unknown { .. }) => {
            let path = keys.trust_own(key, owner)?;
            report.created("trust file", path);
        }
    }
    Ok(())
}

fn create_dirs(project: &Path, report: &mut InitReport) -> Result<(), Failure> {
    durable::create_dir(project, 0o755)?;
    for name in DIRS {
        let relative = Path::new(".ai").join(name);
        let path = project.join(&relative);
        // Check before creating: another process may create it meanwhile.
        let is_new = path.symlink_metadata().is_err();
        if !is_new && !path.is_dir() && !path.is_symlink() {
            return Err(SpaceError::NotADirectory(path).into());
        }
        durable::create_dir_within(project, relative, 0o755)?;
        if is_new {
            report.created("directory", path);
        } else {
            report.existing("directory", path);
        }
    }
    Ok(())
}

/// Keeps state that belongs to this machine out of the repository.
fn write_gitignore(project: &Path, report: &mut InitReport) -> Result<(), Failure> {
    let path = project.join(".ai/state/.gitignore");
    let is_new = path.symlink_metadata().is_err();
    if is_new {
        durable::create_dir_within(project, ".ai/state", 0o700)?;
        durable::write(&path, b"*\n", 0o644, IfExists::Replace)?;
        report.created("gitignore", path);
    } else {
        report.existing("gitignore", path);
    }
    Ok(())
}

/// Writes and signs the sample tool, unless the project already has a tool with its name.
fn write_sample(
    context: &Context,
    key: &SigningKey,
    report: &mut InitReport,
) -> Result<(), Failure> {
    let reference: ItemRef = "tool:hello".parse()?;
    let library = context.reopen_library()?;
    let roots = library.spaces();
    // If the project directory is the user's, its space is the user space.
    let root = roots
        .roots_in(Space::Project)
        .next()
        .or_else(|| roots.roots_in(Space::User).next());
    let Some(root) = root else {
        return Ok(());
    };
    match library.find(&reference) {
        Ok(found) if std::ptr::eq(found.root, root) => {
            report.existing("sample tool", found.path());
            return Ok(());
        }
        Ok(_) | Err(LookupError::NotFound { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let path = sample_path(root)?;
    match durable::write(&path, SAMPLE_TEXT.as_bytes(), 0o644, IfExists::Fail) {
        // Another process was faster, and signs it.
        Err(WriteError::Exists(path)) => {
            report.existing("sample tool", path);
            return Ok(());
        }
        outcome => outcome?,
    }
    let found = library.find(&reference)?;
    library.sign(&found, key, None)?;
    report.created("sample tool", found.path());
    Ok(())
}

/// Path of the sample tool. Fails if a link leads out of the space.
fn sample_path(root: &Root) -> Result<PathBuf, Failure> {
    let (parent, name) = SAMPLE.rsplit_once('/').unwrap_or(("", SAMPLE));
    let dir = root.real_path(parent)?;
    let dir = dir.ok_or_else(|| SpaceError::NotADirectory(root.path_to(parent)))?;
    Ok(dir.join(name))
}

/// What was created and what existed: name, path, whether it was created.
#[derive(Default)]
pub struct InitReport(pub Vec<(&'static str, PathBuf, bool)>);

impl InitReport {
    fn created(&mut self, what: &'static str, path: PathBuf) {
        self.0.push((what, path, true));
    }

    fn existing(&mut self, what: &'static str, path: PathBuf) {
        self.0.push((what, path, false));
    }

    /// The report as JSON.
    pub fn json(&self) -> Value {
        let list = |created: bool| -> Vec<_> {
            let some = self.0.iter().filter(|(_, _, is_new)| *is_new == created);
            some.map(|(what, path, _)| json!({ "what": what, "path": path.to_string_lossy() }))
                .collect()
        };
        json!({ "created": list(true), "existing": list(false) })
    }
}
