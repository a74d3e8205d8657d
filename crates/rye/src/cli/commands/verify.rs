//! `rye verify`

use std::path::Path;

use rye_items::trust::{Trust, TrustedKey};
use rye_items::{Coverage, Found, Good, ItemError, ItemKind, Library, Space};
use serde_json::{Map, Value, json};

use crate::cli::args::VerifyArgs;
use crate::cli::batch::{Batch, Row};
use crate::cli::context::Context;
use crate::cli::printer::Outcome;
use crate::cli::progress::Progress;
use crate::cli::targets::Targets;

pub(crate) fn run(args: &VerifyArgs, context: &Context) -> Outcome {
    let library = context.library()?;
    let within = |space: Space| args.space.is_none_or(|only| Space::from(only) == space);
    let targets = if args.all {
        all(&library, within)
    } else {
        Targets::named(&library, &args.targets, within)
    };

    let failures = targets.failures.into_iter();
    let mut rows: Vec<_> = failures
        .map(|(word, failure)| Row::failed(word, failure))
        .collect();
    let trust = library.trust();
    let outside = targets.outside.iter();
    rows.extend(outside.map(|path| verify_outside(&library, path, &trust)));
    rows.extend(targets.beside.iter().map(|(root, relative)| {
        let mut fields = Map::new();
        fields.insert("space".into(), json!(root.space()));
        fields.insert(
            "path".into(),
            json!(root.path_of(relative).to_string_lossy()),
        );
        match library.verify_beside(root, relative, &trust) {
            Ok(good) => {
                let hash = good.hash.to_string();
                verified(relative.clone(), fields, good.coverage, &hash, &good.signer)
            }
            Err(error) => Row {
                fields,
                ..Row::failed(relative.clone(), error.into())
            },
        }
    }));
    let progress = Progress::new(context.printer, "verifying", targets.items.len());
    let checked = library.verify_many(targets.items, &|done| progress.reach(done));
    drop(progress);
    rows.extend(
        checked
            .into_iter()
            .map(|(found, outcome)| row(&found, outcome)),
    );
    Ok(Box::new(Batch {
        good: &["verified", "partial"],
        not_done: "do not verify",
        about: "SIGNED BY",
        rows,
    }))
}

/// All that must verify: the user's own configuration counts as it is.
pub(super) fn all(library: &Library, within: impl Fn(Space) -> bool) -> Targets<'_> {
    let mut targets = Targets::all(library, within);
    targets.items.retain(|(_, found)| {
        found.root.space() != Space::User || found.reference.kind != ItemKind::Config
    });
    targets
}

fn row(found: &Found<'_>, outcome: Result<Good, ItemError>) -> Row {
    let item = found.reference.to_string();
    let mut fields = Map::new();
    fields.insert("space".into(), json!(found.root.space()));
    fields.insert("path".into(), json!(found.path().to_string_lossy()));
    match outcome {
        Ok(good) => verified(
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

fn verify_outside(library: &Library, path: &Path, trust: &Trust<'_>) -> Row {
    let item = path.display().to_string();
    let mut fields = Map::new();
    fields.insert("path".into(), item.as_str().into());
    match library.verify_outside(path, trust) {
        Ok(signed) => {
            let hash = signed.line.hash.to_string();
            verified(item, fields, signed.coverage, &hash, &signed.key)
        }
        Err(error) => Row {
            fields,
            ..Row::failed(item, error.into())
        },
    }
}

fn verified(
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
        about: match &signer.owner {
            Some(owner) => format!("{fingerprint} {owner}"),
            None => fingerprint.to_string(),
        },
        fields,
        failure: None,
    }
}
