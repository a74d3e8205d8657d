//! `rye sign`

use std::path::Path;

use lillux::shell_word;
use rye_items::{Found, Library, SignError, SignOutcome, Space};
use serde_json::{Map, json};

use crate::cli::args::SignArgs;
use crate::cli::batch::{Batch, Row};
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::printer::Outcome;
use crate::cli::progress::Progress;
use crate::cli::targets::Targets;

pub(crate) fn run(args: &SignArgs, context: &Context) -> Outcome {
    let library = context.library()?;
    let key = context.own_keys()?.signing()?;
    let fingerprint = key.public().fingerprint();
    if library.trust().standing(fingerprint).is_err() {
        let text = format!("your key {fingerprint} is not trusted: what it signs will not verify");
        context.printer.warn(&text, Some("rye doctor"));
    }
    let space = args.space.map_or_else(|| own_space(&library), Space::from);
    let within = |other: Space| other == space;
    let targets = if args.all {
        Targets::all(&library, within)
    } else {
        Targets::named(&library, &args.targets, within)
    };

    let failures = targets.failures.into_iter();
    let mut rows: Vec<_> = failures
        .map(|(word, failure)| Row::failed(word, failure))
        .collect();
    rows.extend(targets.outside.into_iter().map(|path| {
        let failure = Failure::failed("outside", "a file in none of the spaces is not signed")
            .at(&path)
            .hint(copy_command(&path, context));
        Row::failed(path.display().to_string(), failure)
    }));
    rows.extend(targets.beside.into_iter().map(|(root, relative)| {
        let path = root.path_of(&relative).display().to_string();
        match library.sign_beside(root, &relative, &key) {
            Ok(()) => {
                let mut fields = Map::new();
                fields.insert("space".into(), json!(root.space()));
                fields.insert("path".into(), path.as_str().into());
                fields.insert("signature".into(), format!("{path}.sig").into());
                Row {
                    state: "signed",
                    item: relative,
                    about: format!("{path}.sig"),
                    fields,
                    failure: None,
                }
            }
            Err(error) => Row::failed(relative, error.into()),
        }
    }));
    let items: Vec<_> = targets.items.into_iter().map(|(_, found)| found).collect();
    let progress = Progress::new(context.printer, "signing", items.len());
    let provenance = args.provenance.as_deref();
    let outcomes = library.sign_many(&items, &key, provenance, &|done| progress.reach(done));
    drop(progress);
    rows.extend(
        items
            .iter()
            .zip(outcomes)
            .map(|(found, outcome)| row(found, outcome)),
    );
    Ok(Box::new(Batch {
        good: &["signed", "unchanged"],
        not_done: "were not signed",
        about: "FILE",
        rows,
    }))
}

/// What puts a file into the project, in the folder of its kind.
fn copy_command(path: &Path, context: &Context) -> String {
    let markdown = path.extension().is_some_and(|extension| extension == "md");
    let folder = if markdown { "knowledge" } else { "tools" };
    let folder = context.settings.project().join(".ai").join(folder);
    format!("cp {} {}/", shell_word(path), shell_word(&folder))
}

/// The project's space, or the user's where there is none.
fn own_space(library: &Library) -> Space {
    match library.spaces().of(Space::Project).next() {
        Some(_) => Space::Project,
        None => Space::User,
    }
}

fn row(found: &Found<'_>, outcome: Result<SignOutcome, SignError>) -> Row {
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
        about: path,
        fields,
        failure,
    }
}
