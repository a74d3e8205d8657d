//! `rye verify`: verifies the signatures of items and their dependencies.

use std::path::{Path, PathBuf};

use lillux::shell_word;
use rye_executor::dependency_scopes;
use rye_host::Targets;
use rye_items::trust::{Trust, TrustedKey};
use rye_items::{
    Coverage, ItemError, ItemFile, ItemKind, Library, Owner, Scope, Space, VerifiedSignature,
};
use serde_json::{Map, Value, json};

use crate::cli::args::VerifyArgs;
use crate::cli::batch::{Batch, Row};
use crate::cli::context::Context;
use crate::cli::printer::Outcome;
use crate::cli::progress::Progress;

pub(crate) fn run(args: &VerifyArgs, context: &Context) -> Outcome {
    let library = context.library()?;
    let within = |space: Space| args.space.is_none_or(|only| Space::from(only) == space);
    let targets = if args.all {
        Targets::all_signed(library, within)
    } else {
        Targets::named(library, &args.targets, within)
    };

    let failures = targets.failures.into_iter();
    let mut rows: Vec<_> = failures
        .map(|(word, failure)| Row::failed(word, failure))
        .collect();
    let trust = library.trust();
    let outside = targets.outside.iter();
    rows.extend(outside.map(|path| verify_external_file(library, path, &trust)));
    let progress = Progress::new(context.printer, "verifying", targets.items.len());
    let tools = targets.items.iter().cloned();
    let tools: Vec<_> = tools.collect();
    let checked = library.verify_batch(targets.items, &|done| progress.set(done));
    drop(progress);
    rows.extend(failed_manifests(library, &tools, &trust, context));
    rows.extend(
        checked
            .into_iter()
            .map(|(found, outcome)| row(&found, outcome)),
    );
    Ok(Box::new(Batch {
        success_states: &["verified", "partial"],
        not_done: "do not verify",
        detail_heading: "SIGNED BY",
        rows,
    }))
}

/// Verifies the directories from which tools load code; returns a row for each failure.
fn failed_manifests(
    library: &Library,
    items: &[ItemFile<'_>],
    trust: &Trust<'_>,
    context: &Context,
) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut seen: Vec<(PathBuf, Scope)> = Vec::new();
    let tools = items
        .iter()
        .filter(|found| found.reference.kind == ItemKind::Tool && found.root.as_dir().is_some());
    for found in tools {
        // A tool that does not verify has its own row.
        let scopes = dependency_scopes(library, found, context.settings.project());
        for scope in scopes.unwrap_or_default() {
            let path = found.root.path_to(&scope.dir);
            if seen.contains(&(path.clone(), scope.clone())) {
                continue;
            }
            let item = found.reference.to_string();
            let sign = match found.root.space() {
                Space::User => shell_word(&found.path()),
                _ => found.reference.id.to_string(),
            };
            let owner = Owner {
                item: &item,
                sign_argument: &sign,
                file: None,
            };
            if let Err(error) = library.verify_dependencies(found.root, &scope, owner, trust) {
                rows.push(Row::failed(scope.dir.clone(), error.into()));
            }
            seen.push((path, scope));
        }
    }
    rows
}

fn row(found: &ItemFile<'_>, outcome: Result<VerifiedSignature, ItemError>) -> Row {
    let item = found.reference.to_string();
    let mut fields = Map::new();
    fields.insert("space".into(), json!(found.root.space()));
    fields.insert("path".into(), json!(found.path().to_string_lossy()));
    match outcome {
        Ok(good) => verified_row(
            item,
            fields,
            good.coverage,
            &good.hash.to_string(),
            &good.signer,
        ),
        Err(error) => Row {
            fields,
            ..Row::failed(item, error.into())
        },
    }
}

fn verify_external_file(library: &Library, path: &Path, trust: &Trust<'_>) -> Row {
    let item = path.display().to_string();
    let mut fields = Map::new();
    fields.insert("path".into(), item.as_str().into());
    match library.verify_external_file(path, trust) {
        Ok(signed) => {
            let hash = signed.line.hash.to_string();
            verified_row(item, fields, signed.coverage, &hash, &signed.key)
        }
        Err(error) => Row {
            fields,
            ..Row::failed(item, error.into())
        },
    }
}

fn verified_row(
    item: String,
    mut fields: Map<String, Value>,
    coverage: Coverage,
    hash: &str,
    signer: &TrustedKey,
) -> Row {
    let fingerprint = signer.key.fingerprint();
    fields.insert("hash".into(), hash.into());
    fields.insert("signer".into(), json!(fingerprint));
    fields.insert("owner".into(), json!(signer.owner));
    Row {
        state: match coverage {
            Coverage::Whole => "verified",
            Coverage::Partial => "partial",
        },
        item,
        detail: match &signer.owner {
            Some(owner) => format!("{fingerprint} {owner}"),
            None => fingerprint.to_string(),
        },
        fields,
        failure: None,
    }
}
