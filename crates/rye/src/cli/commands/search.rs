//! `rye search`: finds items.

use rye_items::search::{Hit, Location, Query, SearchIndex, SearchResults};
use rye_items::signature::SignatureError;
use rye_items::trust::Trust;
use rye_items::{IntegrityProblem, ItemKind, Library, Space};
use serde_json::{Value, json};

use crate::cli::args::SearchArgs;
use crate::cli::context::Context;
use crate::cli::page::{BAD, DIM, GOOD, Page, WARN, paint};
use crate::cli::printer::{Outcome, Report};
use crate::cli::progress::Spinner;
use crate::cli::table::{Cell, Table};

/// Kinds to search by default: all but configuration.
const DEFAULT_KINDS: [ItemKind; 3] = [ItemKind::Tool, ItemKind::Directive, ItemKind::Knowledge];

pub(crate) fn run(args: &SearchArgs, context: &Context) -> Outcome {
    search_with(args, context, &SearchIndex::new(context.cache()))
}

/// Searches with an index that may be cached.
pub(crate) fn search_with(args: &SearchArgs, context: &Context, index: &SearchIndex) -> Outcome {
    let library = context.library()?;
    let limit = args.limit.unwrap_or(context.settings.search_limit.value);
    let kinds = match args.kinds.as_slice() {
        [] => DEFAULT_KINDS.to_vec(),
        given => given.to_vec(),
    };
    let query = Query {
        kinds,
        spaces: args
            .spaces
            .iter()
            .map(|space| Space::from(*space))
            .collect(),
        category: args.category.clone(),
        signer: args.signer,
        risk: args.risk.clone(),
        limit: usize::try_from(limit).unwrap_or(usize::MAX),
        ..Query::new(args.words.join(" "))
    };
    let spinner = Spinner::new(context.printer, "reading items");
    let results = index.search(library.spaces(), library, &query);
    drop(spinner);
    for unread in &results.errors {
        context
            .printer
            .warn(&unread.message, unread.hint.as_deref());
    }
    let trust = library.trust();
    let verdicts = results.hits.iter().map(|hit| verify(hit, library, &trust));
    Ok(Box::new(SearchReport {
        verdicts: verdicts.collect(),
        results,
    }))
}

/// Checks the signature of a hit.
fn verify(hit: &Hit, library: &Library, trust: &Trust<'_>) -> Result<(), IntegrityProblem> {
    library.verify_hit(hit, trust).map(drop)
}

/// The space of a hit, and the spaces in which it shadows an item with the same id.
fn describe_space(hit: &Hit) -> String {
    let mut text = hit.location.space.as_str().to_owned();
    let mut separator = " over ";
    for shadow in &hit.shadows {
        text = text + separator + shadow.space.as_str();
        separator = ", ";
    }
    text
}

/// The state of a signature in one word.
fn signature_state(hit: &Hit, verdict: &Result<(), IntegrityProblem>) -> &'static str {
    match verdict {
        Err(IntegrityProblem::Line(SignatureError::Unsigned)) if hit.problem.is_some() => {
            "unreadable"
        }
        Ok(()) => "verified",
        Err(IntegrityProblem::Line(SignatureError::Unsigned) | IntegrityProblem::NoManifest(_)) => {
            "unsigned"
        }
        Err(IntegrityProblem::Line(_) | IntegrityProblem::Manifest(_)) => "malformed",
        Err(IntegrityProblem::Changed { .. } | IntegrityProblem::Files(_)) => "changed",
        Err(IntegrityProblem::Untrusted { .. }) => "untrusted",
        Err(IntegrityProblem::Revoked(_)) => "revoked",
        Err(IntegrityProblem::BadSignature { .. }) => "forged",
        Err(IntegrityProblem::Moved { .. }) => "moved",
        Err(IntegrityProblem::Unbound) => "unbound",
    }
}

struct SearchReport {
    results: SearchResults,
    /// The state of the signature, for each hit.
    verdicts: Vec<Result<(), IntegrityProblem>>,
}

impl Report for SearchReport {
    fn json(&self) -> Value {
        let hits = self.results.hits.iter().zip(&self.verdicts);
        let hits: Vec<_> = hits.map(|(hit, verdict)| hit_json(hit, verdict)).collect();
        let unreadable = self.results.errors.iter();
        let unreadable: Vec<_> = unreadable
            .map(|error| json!({ "message": error.message, "hint": error.hint }))
            .collect();
        json!({
            "total": self.results.total,
            "searched": self.results.searched,
            "hits": hits,
            "errors": unreadable,
        })
    }

    fn show(&self, page: &mut Page) {
        let SearchResults { hits, total, .. } = &self.results;
        if hits.is_empty() {
            page.line("no items found");
            return;
        }
        let mut table = Table::new(["ITEM", "SPACE", "STATE", "DESCRIPTION"]);
        for (hit, verdict) in hits.iter().zip(&self.verdicts) {
            let style = match verdict {
                Ok(()) => GOOD,
                Err(
                    IntegrityProblem::Line(_)
                    | IntegrityProblem::Untrusted { .. }
                    | IntegrityProblem::Unbound,
                ) => WARN,
                Err(_) => BAD,
            };
            table.row([
                hit.reference.to_string().into(),
                describe_space(hit).into(),
                Cell::styled(style, signature_state(hit, verdict)),
                description(hit),
            ]);
        }
        page.table(&table);
        if *total > hits.len() {
            let more = format!(
                "{} of {total} items; use --limit N to show more",
                hits.len()
            );
            page.line(paint(DIM, more));
        }
    }
}

fn description(hit: &Hit) -> Cell {
    if let Some(problem) = &hit.problem {
        return Cell::styled(BAD, problem);
    }
    if let Some(shadow) = &hit.shadowed_by {
        let text = format!("shadowed by {}", shadow.path.display());
        return Cell::styled(DIM, text);
    }
    let first = [&hit.description, &hit.title];
    Cell::new(
        first
            .into_iter()
            .find(|text| !text.is_empty())
            .map_or("", |text| text),
    )
}

fn hit_json(hit: &Hit, verdict: &Result<(), IntegrityProblem>) -> Value {
    let duplicates: Vec<_> = hit
        .duplicates
        .iter()
        .map(|path| path.to_string_lossy())
        .collect();
    json!({
        "item": hit.reference,
        "id": hit.reference.id,
        "type": hit.reference.kind,
        "space": hit.location.space,
        "bundle": hit.location.bundle,
        "path": hit.location.path.to_string_lossy(),
        "title": hit.title,
        "description": hit.description,
        "tags": hit.tags,
        "parameters": hit.parameters,
        "category": hit.category,
        "risk": hit.risk,
        "version": hit.version,
        "signature": {
            "state": signature_state(hit, verdict),
            "signer": hit.signature.as_ref().map(|claim| claim.line.fingerprint),
            "time": hit.signature.as_ref().map(|claim| &claim.line.time),
        },
        "shadows": hit.shadows.iter().map(location_json).collect::<Vec<_>>(),
        "shadowed_by": hit.shadowed_by.as_ref().map(location_json),
        "duplicates": duplicates,
        "problem": hit.problem,
    })
}

fn location_json(location: &Location) -> Value {
    json!({ "space": location.space, "path": location.path.to_string_lossy() })
}
