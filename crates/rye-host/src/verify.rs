//! Verifies the signatures of items and their dependencies.

use std::path::Path;

use lillux::shell_word;
use rye_items::trust::{Trust, TrustedKey};
use rye_items::{Coverage, ItemError, ItemFile, Library, Owner, Space, VerifiedSignature};
use serde_json::{Map, Value, json};

use crate::batch::{Batch, Row};
use crate::context::Context;
use crate::failure::Failure;
use crate::targets::{Targets, code_directories};

/// Verifies items: the named ones, or all without names. Globs search the given space only.
pub fn verify(
    names: Option<&[String]>,
    space: Option<Space>,
    context: &Context,
) -> Result<Batch, Failure> {
    let library = context.library()?;
    let within = |other: Space| space.is_none_or(|only| only == other);
    let targets = match names {
        Some(names) => Targets::named(library, names, within),
        None => Targets::all_signed(library, within),
    };

    let failures = targets.failures.into_iter();
    let mut rows: Vec<_> = failures
        .map(|(word, failure)| Row::failed(word, failure))
        .collect();
    let trust = library.trust();
    let outside = targets.outside.iter();
    rows.extend(outside.map(|path| verify_external_file(library, path, &trust)));
    let total = Some(targets.items.len());
    let progress = context.reporter().progress("verifying", total);
    let items = targets.items.clone();
    let checked = library.verify_batch(targets.items, &|done| progress.set(done));
    drop(progress);
    rows.extend(failed_manifests(library, &items, &trust, context));
    rows.extend(
        checked
            .into_iter()
            .map(|(found, outcome)| row(&found, outcome)),
    );
    Ok(Batch {
        success_states: &["verified", "partial"],
        not_done: "do not verify",
        detail_heading: "SIGNED BY",
        rows,
    })
}

/// Verifies the directories from which tools load code; returns a row for each failure.
fn failed_manifests(
    library: &Library,
    items: &[ItemFile<'_>],
    trust: &Trust<'_>,
    context: &Context,
) -> Vec<Row> {
    // A tool that does not verify has its own row.
    let directories = code_directories(library, items, context.settings.project(), |_, _| {});
    let rows = directories.into_iter().filter_map(|(found, scope)| {
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
        let verified = library.verify_dependencies(found.root, &scope, owner, trust);
        verified
            .err()
            .map(|error| Row::failed(scope.dir.clone(), error.into()))
    });
    rows.collect()
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
