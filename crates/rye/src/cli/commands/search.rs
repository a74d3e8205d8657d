//! `rye search`

use rye_items::search::{Hit, Location, Query, SearchIndex, SearchResults};
use rye_items::signature::SignatureError;
use rye_items::trust::Trust;
use rye_items::{IntegrityProblem, ItemKind, Library, Space};
use serde_json::{Value, json};

use crate::cli::args::SearchArgs;
use crate::cli::context::Context;
use crate::cli::page::{BAD, DIM, GOOD, Page, WARN, paint};
use crate::cli::printer::{Outcome, Report};
use crate::cli::progress::Waiting;
use crate::cli::table::{Cell, Table};

/// What people search for where they do not say: configuration is no use to them.
const USUAL: [ItemKind; 3] = [ItemKind::Tool, ItemKind::Directive, ItemKind::Knowledge];

pub(crate) fn run(args: &SearchArgs, context: &Context) -> Outcome {
    found(args, context, &SearchIndex::new(context.cache()))
}

/// What a search finds, with what the catalogue remembers of earlier ones.
pub(crate) fn found(args: &SearchArgs, context: &Context, catalogue: &SearchIndex) -> Outcome {
    let library = context.library()?;
    let limit = args.limit.unwrap_or(context.settings.search_limit.value);
    let kinds = match args.kinds.as_slice() {
        [] => USUAL.to_vec(),
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
    let waiting = Waiting::new(context.printer, "reading items");
    let answer = catalogue.search(library.spaces(), &library, &query);
    drop(waiting);
    for unread in &answer.errors {
        context
            .printer
            .warn(&unread.message, unread.hint.as_deref());
    }
    let trust = library.trust();
    let judged = answer.hits.iter().map(|hit| judged(hit, &library, &trust));
    Ok(Box::new(Found {
        judged: judged.collect(),
        answer,
    }))
}

/// What a hit's signature is worth: trusted by whom, or what is wrong with it.
fn judged(hit: &Hit, library: &Library, trust: &Trust<'_>) -> Result<(), IntegrityProblem> {
    library.verify_hit(hit, trust).map(drop)
}

/// The space, and those in which it hides an item of the same name.
fn where_from(hit: &Hit) -> String {
    let mut text = hit.location.space.as_str().to_owned();
    let mut before = " over ";
    for shadow in &hit.shadows {
        text = text + before + shadow.space.as_str();
        before = ", ";
    }
    text
}

/// One word for people.
fn word(hit: &Hit, judged: &Result<(), IntegrityProblem>) -> &'static str {
    match judged {
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

struct Found {
    answer: SearchResults,
    /// For each hit.
    judged: Vec<Result<(), IntegrityProblem>>,
}

impl Report for Found {
    fn json(&self) -> Value {
        let hits = self.answer.hits.iter().zip(&self.judged);
        let hits: Vec<_> = hits.map(|(hit, judged)| described(hit, judged)).collect();
        let unread = self.answer.errors.iter();
        let unread: Vec<_> = unread
            .map(|unread| json!({ "message": unread.message, "hint": unread.hint }))
            .collect();
        json!({
            "total": self.answer.total,
            "searched": self.answer.searched,
            "hits": hits,
            "errors": unread,
        })
    }

    fn show(&self, page: &mut Page) {
        let SearchResults { hits, total, .. } = &self.answer;
        if hits.is_empty() {
            page.line("no item fits");
            return;
        }
        let mut table = Table::new(["ITEM", "SPACE", "STATE", "DESCRIPTION"]);
        for (hit, judged) in hits.iter().zip(&self.judged) {
            let style = match judged {
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
                where_from(hit).into(),
                Cell::styled(style, word(hit, judged)),
                about(hit),
            ]);
        }
        page.table(&table);
        if *total > hits.len() {
            let more = format!("{} of {total}; --limit N shows more", hits.len());
            page.line(paint(DIM, more));
        }
    }
}

fn about(hit: &Hit) -> Cell {
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

fn described(hit: &Hit, judged: &Result<(), IntegrityProblem>) -> Value {
    let twins: Vec<_> = hit
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
            "state": word(hit, judged),
            "signer": hit.signature.as_ref().map(|claim| claim.line.fingerprint),
            "time": hit.signature.as_ref().map(|claim| &claim.line.time),
        },
        "shadows": hit.shadows.iter().map(place).collect::<Vec<_>>(),
        "shadowed_by": hit.shadowed_by.as_ref().map(place),
        "duplicates": twins,
        "problem": hit.problem,
    })
}

fn place(place: &Location) -> Value {
    json!({ "space": place.space, "path": place.path.to_string_lossy() })
}
