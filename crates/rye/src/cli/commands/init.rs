//! `rye init`

use std::path::{Path, PathBuf};

use lillux::durable::{self, Existing, WriteError};
use lillux::keys::SigningKey;
use lillux::shell_word;
use rye_graph::RunStore;
use rye_items::space::Root;
use rye_items::trust::DistrustReason;
use rye_items::{ItemRef, LookupError, Space, SpaceError, UserKeyError};
use serde_json::{Value, json};

use super::keys::owner;
use crate::cli::args::InitArgs;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::page::{DIM, GOOD, Page, paint};
use crate::cli::printer::{Outcome, Report};

const FOLDERS: [&str; 4] = ["tools", "directives", "knowledge", "config"];
const SAMPLE: &str = "tools/hello.py";
const SAMPLE_TEXT: &str = include_str!("init/hello.py");

pub(crate) fn run(args: &InitArgs, context: &Context) -> Outcome {
    let mut made = Made::default();
    let (key, fresh) = own_key(args, context, &mut made)?;
    if !fresh {
        own_trust(args, context, &key, &mut made)?;
    }
    folders(context.settings.project(), &mut made)?;
    hide(context.settings.project(), &mut made)?;
    sample(context, &key, &mut made)?;
    Ok(Box::new(made))
}

/// The key, and whether it was made now, with its trust file.
fn own_key(
    args: &InitArgs,
    context: &Context,
    made: &mut Made,
) -> Result<(SigningKey, bool), Failure> {
    let keys = context.own_keys()?;
    let path = keys.pair_files().private;
    match keys.load_signing_key() {
        Ok(key) => {
            made.there("signing key", path);
            Ok((key, false))
        }
        Err(UserKeyError::Missing(_)) => {
            let key = match keys.generate(&owner(args.owner.as_deref()), Existing::Refuse) {
                // Another call was quicker.
                Err(UserKeyError::Exists(_)) => {
                    made.there("signing key", path);
                    return Ok((keys.load_signing_key()?, false));
                }
                outcome => outcome?,
            };
            made.made("signing key", path);
            made.made("trust in it", keys.trust_path(key.public().fingerprint()));
            Ok((key, true))
        }
        Err(error) => Err(error.into()),
    }
}

/// Trusts the user's key, unless somebody has decided otherwise.
fn own_trust(
    args: &InitArgs,
    context: &Context,
    key: &SigningKey,
    made: &mut Made,
) -> Result<(), Failure> {
    let keys = context.own_keys()?;
    let fingerprint = key.public().fingerprint();
    let path = keys.trust_path(fingerprint);
    let library = context.library()?;
    match library.trust().key_status(fingerprint) {
        Ok(trusted) => made.there("trust in it", trusted.path.clone()),
        Err(DistrustReason::Revoked(revocation)) => {
            let text = format!("your key does not count: {revocation}");
            context
                .printer
                .warn(&text, Some("rye keys generate --force"));
        }
        Err(DistrustReason::Unknown { .. }) if path.symlink_metadata().is_ok() => {
            let text = format!("{} does not count, and is left as it is", path.display());
            let hint = format!("rm {} && rye init", shell_word(&path));
            context.printer.warn(&text, Some(&hint));
        }
        Err(DistrustReason::Unknown { .. }) => {
            let path = keys.trust_own(key, &owner(args.owner.as_deref()))?;
            made.made("trust in it", path);
        }
    }
    Ok(())
}

fn folders(project: &Path, made: &mut Made) -> Result<(), Failure> {
    durable::create_folder(project, 0o755)?;
    for name in FOLDERS {
        let relative = Path::new(".ai").join(name);
        let path = project.join(&relative);
        // Whether anything is there is asked first: another call may make it meanwhile.
        let is_new = path.symlink_metadata().is_err();
        if !is_new && !path.is_dir() && !path.is_symlink() {
            return Err(SpaceError::NotADirectory(path).into());
        }
        durable::create_folder_beneath(project, relative, 0o755)?;
        if is_new {
            made.made("folder", path);
        } else {
            made.there("folder", path);
        }
    }
    Ok(())
}

/// What runs of graphs write down is this machine's, and stays out of the repository.
fn hide(project: &Path, made: &mut Made) -> Result<(), Failure> {
    let path = project.join(".ai/state/.gitignore");
    let is_new = path.symlink_metadata().is_err();
    RunStore::new(project).hide()?;
    if is_new {
        made.made("gitignore", path);
    } else {
        made.there("gitignore", path);
    }
    Ok(())
}

/// Writes and signs the sample, unless the project has an item of its name.
fn sample(context: &Context, key: &SigningKey, made: &mut Made) -> Result<(), Failure> {
    let reference: ItemRef = "tool:hello".parse()?;
    let library = context.library()?;
    let roots = library.spaces();
    // Where the project is the user's own folder, its space is the user's.
    let root = roots
        .roots_in(Space::Project)
        .next()
        .or_else(|| roots.roots_in(Space::User).next());
    let Some(root) = root else {
        return Ok(());
    };
    match library.find(&reference) {
        Ok(found) if std::ptr::eq(found.root, root) => {
            made.there("sample tool", found.path());
            return Ok(());
        }
        Ok(_) | Err(LookupError::NotFound { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let path = place(root)?;
    match durable::write(&path, SAMPLE_TEXT.as_bytes(), 0o644, Existing::Refuse) {
        // Another call was quicker, and signs it.
        Err(WriteError::Exists(path)) => {
            made.there("sample tool", path);
            return Ok(());
        }
        outcome => outcome?,
    }
    let found = library.find(&reference)?;
    library.sign(&found, key, None)?;
    made.made("sample tool", found.path());
    Ok(())
}

/// Where the sample goes, by no link that leads out of the space.
fn place(root: &Root) -> Result<PathBuf, Failure> {
    let (above, name) = SAMPLE.rsplit_once('/').unwrap_or(("", SAMPLE));
    let folder = root.real_path(above)?;
    let folder = folder.ok_or_else(|| SpaceError::NotADirectory(root.path_to(above)))?;
    Ok(folder.join(name))
}

/// What was made and what was there.
#[derive(Default)]
struct Made(Vec<(&'static str, PathBuf, bool)>);

impl Made {
    fn made(&mut self, what: &'static str, path: PathBuf) {
        self.0.push((what, path, true));
    }

    fn there(&mut self, what: &'static str, path: PathBuf) {
        self.0.push((what, path, false));
    }
}

impl Report for Made {
    fn json(&self) -> Value {
        let list = |wanted: bool| -> Vec<_> {
            let some = self.0.iter().filter(|(_, _, made)| *made == wanted);
            some.map(|(what, path, _)| json!({ "what": what, "path": path.to_string_lossy() }))
                .collect()
        };
        json!({ "made": list(true), "there": list(false) })
    }

    fn show(&self, page: &mut Page) {
        for (what, path, made) in &self.0 {
            let (style, word) = if *made { (GOOD, "made") } else { (DIM, "kept") };
            let path = path.display();
            page.line(format_args!("{}  {what:<11}  {path}", paint(style, word)));
        }
        page.line(paint(DIM, "next: rye execute hello --name Ada"));
    }
}
