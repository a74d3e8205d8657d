//! Searches items and checks the signatures of the results.

use rye_items::search::{Hit, Location, Query, SearchIndex, SearchResults};
use rye_items::signature::SignatureError;
use rye_items::{IntegrityProblem, ItemKind};
use serde_json::{Value, json};

use crate::context::Context;
use crate::failure::Failure;

/// Kinds to search by default: all but configuration.
const DEFAULT_KINDS: [ItemKind; 3] = [ItemKind::Tool, ItemKind::Directive, ItemKind::Knowledge];

/// Searches items. A query without kinds searches all but configuration; without a limit, the
/// setting applies.
pub fn search(
    mut query: Query,
    limit: Option<u32>,
    context: &Context,
    index: &SearchIndex,
) -> Result<VerifiedResults, Failure> {
    let library = context.library()?;
    let limit = limit.unwrap_or(context.settings.search_limit.value);
    query.limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if query.kinds.is_empty() {
        query.kinds = DEFAULT_KINDS.to_vec();
    }
    let progress = context.reporter().progress("reading items", None);
    let results = index.search(library.spaces(), library, &query);
    drop(progress);
    for unread in &results.errors {
        context
            .reporter()
            .warn(&unread.message, unread.hint.as_deref());
    }
    let trust = library.trust();
    let verify = |hit| library.verify_hit(hit, &trust).map(drop);
    Ok(VerifiedResults {
        verdicts: results.hits.iter().map(verify).collect(),
        results,
    })
}

/// Search results with the states of their signatures.
pub struct VerifiedResults {
    /// The results.
    pub results: SearchResults,
    /// The state of the signature, for each hit.
    pub verdicts: Vec<Result<(), IntegrityProblem>>,
}

impl VerifiedResults {
    /// The results as JSON.
    pub fn json(&self) -> Value {
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
}

/// The state of a signature in one word.
pub fn signature_state(hit: &Hit, verdict: &Result<(), IntegrityProblem>) -> &'static str {
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
