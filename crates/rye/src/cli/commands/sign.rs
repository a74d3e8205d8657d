//! `rye sign`: signs items, and the directories from which tools load code.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lillux::keys::SigningKey;
use lillux::{Hash, shell_word};
use rye_executor::{ExecuteError, dependency_scopes};
use rye_host::Targets;
use rye_items::space::Root;
use rye_items::{ItemFile, ItemKind, Library, MANIFEST, Scope, SignError, SignOutcome, Space};
use serde_json::{Map, json};

use crate::cli::args::SignArgs;
use crate::cli::batch::{Batch, Row};
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::printer::Outcome;
use crate::cli::progress::Progress;

pub(crate) fn run(args: &SignArgs, context: &Context) -> Outcome {
    sign(args, context, None)
}

/// Signs only files that the user was shown, identified by path and content hash.
pub(crate) fn run_approved(
    args: &SignArgs,
    context: &Context,
    approved: &BTreeMap<PathBuf, Hash>,
) -> Outcome {
    sign(args, context, Some(approved))
}

/// A file to sign.
pub(crate) struct UnsignedFile {
    pub(crate) item: String,
    pub(crate) path: PathBuf,
    pub(crate) content: Vec<u8>,
}

/// The files that signing would change. Leaves out files that cannot be signed.
pub(crate) fn unsigned_files(
    args: &SignArgs,
    context: &Context,
) -> Result<Vec<UnsignedFile>, Failure> {
    let library = context.library()?;
    let key = context.require_signing_key()?;
    let targets = Targets::named(library, &args.targets, within(args, library));
    let items = targets.items.into_iter().filter_map(|found| {
        let content = library.unsigned_content(&found, key).ok()??;
        Some(UnsignedFile {
            item: found.reference.to_string(),
            path: found.path(),
            content,
        })
    });
    Ok(items.collect())
}

fn within(args: &SignArgs, library: &Library) -> impl Fn(Space) -> bool {
    let space = args.space.map_or_else(|| own_space(library), Space::from);
    move |other| other == space
}

fn sign(args: &SignArgs, context: &Context, approved: Option<&BTreeMap<PathBuf, Hash>>) -> Outcome {
    let library = context.library()?;
    let key = context.require_signing_key()?;
    let fingerprint = key.public().fingerprint();
    if library.trust().key_status(fingerprint).is_err() {
        let text = format!("your key {fingerprint} is not trusted: items it signs will not verify");
        context.printer.warn(&text, Some("rye doctor"));
    }
    let within = within(args, library);
    let targets = if args.all {
        Targets::all(library, within)
    } else {
        Targets::named(library, &args.targets, within)
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
        args.manifest
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
    let progress = Progress::new(context.printer, "signing", items.len());
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
            let signed: Vec<_> = signed.map(|(found, _)| found).collect();
            sign_manifests(library, &signed, key, context)
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
    Ok(Box::new(Batch {
        success_states: &["signed", "unchanged"],
        not_done: "were not signed",
        detail_heading: "FILE",
        rows,
    }))
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
fn sign_manifests(
    library: &Library,
    items: &[&ItemFile<'_>],
    key: &SigningKey,
    context: &Context,
) -> Vec<Row> {
    let mut scopes: Vec<(&Root, Scope)> = Vec::new();
    let tools = items
        .iter()
        .filter(|found| found.reference.kind == ItemKind::Tool && found.root.as_dir().is_some());
    for found in tools {
        match dependency_scopes(library, found, context.settings.project()) {
            Ok(all) => scopes.extend(all.into_iter().map(|scope| (found.root, scope))),
            // Signing the item itself has reported this.
            Err(error) if error.integrity().is_some_and(|it| it.path == found.path()) => {}
            Err(error) => {
                let item = &found.reference;
                let text = format!("cannot sign the dependencies of {item}: {error}");
                context.printer.warn(&text, error.hint().as_deref());
            }
        }
    }
    let mut seen: Vec<(PathBuf, Scope)> = Vec::new();
    let mut rows = Vec::new();
    for (root, scope) in scopes {
        let path = root.path_to(&scope.dir);
        if seen.contains(&(path.clone(), scope.clone())) {
            continue;
        }
        rows.push(match library.sign_manifest(root, &scope, key, None) {
            Ok(outcome) => manifest_row(scope.dir.clone(), &path.join(MANIFEST), outcome),
            Err(error) => Row::failed(scope.dir.clone(), error.into()),
        });
        seen.push((path, scope));
    }
    rows
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
