//! Signs items, and the directories from which tools load code.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lillux::keys::SigningKey;
use lillux::{Hash, shell_word};
use rye_executor::ExecuteError;
use rye_items::space::Root;
use rye_items::{ItemFile, Library, MANIFEST, SignError, SignOutcome, Space};
use rye_mcp::UnsignedItem;
use serde_json::{Map, json};

use crate::batch::{Batch, Row};
use crate::context::Context;
use crate::failure::Failure;
use crate::targets::{Targets, code_directories, is_path};

/// What to sign.
#[derive(Debug, Clone, Default)]
pub struct SignTargets {
    /// Ids, globs, files or directories.
    pub names: Vec<String>,
    /// Directories of which all files are signed.
    pub manifests: Vec<PathBuf>,
    /// Every item in the space.
    pub all: bool,
    /// The space; by default the project, or the user space outside a project.
    pub space: Option<Space>,
    /// Claimed identity of the signer.
    pub provenance: Option<String>,
}

/// The items whose current content the user has not signed. Leaves out files that cannot be signed.
pub fn unsigned_items(args: &SignTargets, context: &Context) -> Result<Vec<UnsignedItem>, Failure> {
    let library = context.library()?;
    let key = context.require_signing_key()?;
    let targets = Targets::named(library, &args.names, within(args, library));
    let items = targets.items.into_iter().filter_map(|found| {
        let content = library.unsigned_content(&found, key).ok()??;
        Some(UnsignedItem {
            item: found.reference.to_string(),
            path: found.path(),
            hash: Hash::digest(&content),
            text: String::from_utf8_lossy(&content).into_owned(),
        })
    });
    Ok(items.collect())
}

fn within(args: &SignTargets, library: &Library) -> impl Fn(Space) -> bool {
    let space = args.space.unwrap_or_else(|| own_space(library));
    move |other| other == space
}

/// Signs items, also those of other projects that are named by their paths. With `approved`, signs
/// only files that the user was shown, identified by path and content hash.
pub fn sign(
    mut args: SignTargets,
    context: &Context,
    approved: Option<&BTreeMap<PathBuf, Hash>>,
) -> Result<Batch, Failure> {
    let mut rows = Vec::new();
    // The user approved only items of this project.
    if approved.is_none() {
        for (project, args) in split_off_projects(&mut args, context.library()?) {
            rows.extend(sign_in_project(
                &args,
                &context.in_project(&project)?,
                None,
            )?);
        }
    }
    let is_own = args.all || !args.names.is_empty() || !args.manifests.is_empty();
    if is_own || rows.is_empty() {
        rows.extend(sign_in_project(&args, context, approved)?);
    }
    Ok(Batch {
        success_states: &["signed", "unchanged"],
        not_done: "were not signed",
        detail_heading: "FILE",
        rows,
    })
}

/// Moves the paths that belong to other projects to the arguments for those projects.
fn split_off_projects(args: &mut SignTargets, library: &Library) -> BTreeMap<PathBuf, SignTargets> {
    let none = SignTargets {
        space: args.space,
        provenance: args.provenance.clone(),
        ..SignTargets::default()
    };
    let mut others: BTreeMap<PathBuf, SignTargets> = BTreeMap::new();
    args.names.retain(|word| {
        let project = is_path(word).then(|| other_project(Path::new(word), library));
        let Some(project) = project.flatten() else {
            return true;
        };
        let other = others.entry(project).or_insert_with(|| none.clone());
        other.names.push(word.clone());
        false
    });
    args.manifests.retain(|path| {
        let Some(project) = other_project(path, library) else {
            return true;
        };
        let other = others.entry(project).or_insert_with(|| none.clone());
        other.manifests.push(path.clone());
        false
    });
    others
}

/// The project that contains a path outside the spaces of the library.
fn other_project(path: &Path, library: &Library) -> Option<PathBuf> {
    let path = path.canonicalize().ok()?;
    let project = path.ancestors().find(|dir| dir.join(".ai").is_dir())?;
    let mut spaces = library.spaces().roots().filter_map(Root::as_dir);
    let is_own = spaces.any(|space| {
        let space = space.canonicalize();
        space.is_ok_and(|space| path.starts_with(&space) || space.parent() == Some(project))
    });
    (!is_own).then(|| project.to_owned())
}

fn sign_in_project(
    args: &SignTargets,
    context: &Context,
    approved: Option<&BTreeMap<PathBuf, Hash>>,
) -> Result<Vec<Row>, Failure> {
    let library = context.library()?;
    let key = context.require_signing_key()?;
    let fingerprint = key.public().fingerprint();
    if library.trust().key_status(fingerprint).is_err() {
        let text = format!("your key {fingerprint} is not trusted: items it signs will not verify");
        context.reporter().warn(&text, Some("rye doctor"));
    }
    let within = within(args, library);
    let targets = if args.all {
        Targets::all(library, within)
    } else {
        Targets::named(library, &args.names, within)
    };

    let failures = targets.failures.into_iter();
    let mut rows: Vec<_> = failures
        .map(|(word, failure)| Row::failed(word, failure))
        .collect();
    rows.extend(targets.outside.into_iter().map(|path| {
        let failure = Failure::failed("outside", "the file is not in a space")
            .at(&path)
            .hint(copy_command(&path, context));
        Row::failed(path.display().to_string(), failure)
    }));
    rows.extend(
        args.manifests
            .iter()
            .map(|path| match library.sign_directory(path, key) {
                Ok((manifest, outcome)) => {
                    manifest_row(path.display().to_string(), &manifest, outcome)
                }
                Err(error) => Row::failed(path.display().to_string(), error.into()),
            }),
    );
    let items = targets.items.into_iter();
    let (items, refused): (Vec<_>, Vec<_>) = items
        .map(|found| {
            let checked = check(library, &found, key);
            (found, checked)
        })
        .partition(|(_, checked)| checked.is_ok());
    rows.extend(refused.into_iter().filter_map(|(found, checked)| {
        let error = checked.err()?;
        let failure = Failure::failed(error.code(), error.to_string()).at(found.path());
        let failure = failure.maybe_hint(error.hint());
        Some(Row::failed(found.reference.to_string(), failure))
    }));
    let items: Vec<_> = items.into_iter().map(|(found, _)| found).collect();
    let progress = context.reporter().progress("signing", Some(items.len()));
    let provenance = args.provenance.as_deref();
    let outcomes = match approved {
        None => library.sign_batch(&items, key, provenance, &|done| progress.set(done)),
        Some(approved) => {
            let items = items.iter();
            items
                .map(|found| match approved.get(&found.path()) {
                    Some(hash) => library.sign_approved(found, key, *hash),
                    // The file was already signed when the user was asked.
                    None if library.unsigned_content(found, key)?.is_none() => {
                        Ok(SignOutcome::Unchanged)
                    }
                    None => Err(SignError::ChangedSinceApproval(found.path())),
                })
                .collect()
        }
    };
    drop(progress);
    // The user approved only items.
    let manifests = match approved {
        None => {
            let signed = items.iter().zip(&outcomes);
            let signed = signed.filter(|(_, outcome)| outcome.is_ok());
            sign_manifests(library, signed.map(|(found, _)| found), key, context)
        }
        Some(_) => Vec::new(),
    };
    rows.extend(
        items
            .iter()
            .zip(outcomes)
            .map(|(found, outcome)| row(found, outcome)),
    );
    rows.extend(manifests);
    Ok(rows)
}

/// Refuses a tool whose command line would contain a parameter.
fn check(library: &Library, found: &ItemFile<'_>, key: &SigningKey) -> Result<(), ExecuteError> {
    match library.unsigned_content(found, key) {
        Ok(Some(content)) => rye_executor::check_before_signing(library, found, &content),
        // Nothing to sign, or signing reports the error.
        _ => Ok(()),
    }
}

/// Signs the directories from which tools load code, each once.
fn sign_manifests<'f, 'a: 'f>(
    library: &Library,
    items: impl IntoIterator<Item = &'f ItemFile<'a>>,
    key: &SigningKey,
    context: &Context,
) -> Vec<Row> {
    let warn = |found: &ItemFile<'_>, error: &ExecuteError| {
        // Signing the item itself has reported this.
        if error.integrity().is_some_and(|it| it.path == found.path()) {
            return;
        }
        let item = &found.reference;
        let text = format!("cannot sign the dependencies of {item}: {error}");
        context.reporter().warn(&text, error.hint().as_deref());
    };
    let directories = code_directories(library, items, context.settings.project(), warn);
    let rows = directories.into_iter().map(|(found, scope)| {
        let manifest = found.root.path_to(&scope.dir).join(MANIFEST);
        match library.sign_manifest(found.root, &scope, key, None) {
            Ok(outcome) => manifest_row(scope.dir, &manifest, outcome),
            Err(error) => Row::failed(scope.dir, error.into()),
        }
    });
    rows.collect()
}

fn manifest_row(item: String, manifest: &Path, outcome: SignOutcome) -> Row {
    let path = manifest.display().to_string();
    let mut fields = Map::new();
    fields.insert("path".into(), path.as_str().into());
    Row {
        state: match outcome {
            SignOutcome::Signed => "signed",
            SignOutcome::Unchanged => "unchanged",
        },
        item,
        detail: path,
        fields,
        failure: None,
    }
}

/// The command that copies a file into the project.
fn copy_command(path: &Path, context: &Context) -> String {
    let markdown = path.extension().is_some_and(|extension| extension == "md");
    let dir = if markdown { "knowledge" } else { "tools" };
    let dir = context.settings.project().join(".ai").join(dir);
    format!("cp {} {}/", shell_word(path), shell_word(&dir))
}

/// The project space, or the user space outside a project.
fn own_space(library: &Library) -> Space {
    match library.spaces().roots_in(Space::Project).next() {
        Some(_) => Space::Project,
        None => Space::User,
    }
}

fn row(found: &ItemFile<'_>, outcome: Result<SignOutcome, SignError>) -> Row {
    let path = found.path().display().to_string();
    let item = found.reference.to_string();
    let mut fields = Map::new();
    fields.insert("space".into(), json!(found.root.space()));
    fields.insert("path".into(), path.as_str().into());
    let (state, failure) = match outcome {
        Ok(SignOutcome::Signed) => ("signed", None),
        Ok(SignOutcome::Unchanged) => ("unchanged", None),
        Err(error) => ("failed", Some(error.into())),
    };
    Row {
        state,
        item,
        detail: path,
        fields,
        failure,
    }
}
