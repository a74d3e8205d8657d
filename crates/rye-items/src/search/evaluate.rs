//! Evaluates a query against a view: filters, ranks and truncates.

use lillux::keys::Fingerprint;

use super::expand::expand;
use super::query::{Query, Word, without_stop_words};
use super::rank::{Match, rank};
use super::record::{Record, signer_number};
use super::results::{Hit, Location, SearchResults, hit};
use super::scan::KINDS;
use super::tokenize::joined;
use super::view::View;
use crate::id::ItemRef;
use crate::space::Root;

/// Match quality that takes precedence over the score.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Tier {
    Id,
    Name,
    Words,
}

/// A matching file with its sort key.
#[derive(Debug, Clone, Copy)]
struct RankedItem {
    tier: Tier,
    score: f32,
    rank: u32,
}

impl RankedItem {
    /// Orders best first; ties are broken by kind and id.
    fn order(&self, other: &Self) -> std::cmp::Ordering {
        let tier = self.tier.cmp(&other.tier);
        let score = || other.score.total_cmp(&self.score);
        tier.then_with(score)
            .then_with(|| self.rank.cmp(&other.rank))
    }
}

/// Evaluates a query. `roots` are the roots of the view's segments, in the same order.
pub(super) fn evaluate(view: &View, roots: &[&Root], query: &Query) -> SearchResults {
    let shown: Vec<_> = roots
        .iter()
        .map(|root| query.spaces.is_empty() || query.spaces.contains(&root.space()))
        .collect();
    let filter = Filter::new(query);
    let passes = |document: &u32| {
        shown[view.segment_of(*document)]
            && filter.passes(|| view.record(*document))
            && !view.is_hidden(*document, &shown)
    };
    let mut ranked: Vec<_> = if query.used_text().trim().is_empty() {
        let listed = view.ordered().filter(passes);
        let ranked = listed.map(|document| RankedItem {
            tier: Tier::Words,
            score: 0.0,
            rank: view.rank(document),
        });
        ranked.collect()
    } else {
        matching_items(view, query, &shown, passes)
    };
    let total = ranked.len();
    if query.limit < total {
        if let Some(last) = query.limit.checked_sub(1) {
            ranked.select_nth_unstable_by(last, RankedItem::order);
        }
        ranked.truncate(query.limit);
    }
    ranked.sort_unstable_by(RankedItem::order);
    let hits = ranked.iter().filter_map(|fit| build_hit(view, roots, fit));
    SearchResults {
        hits: hits.collect(),
        total,
        searched: view.len(),
        errors: Vec::new(),
    }
}

/// All files that match a word of the query and pass the filters.
fn matching_items(
    view: &View,
    query: &Query,
    shown: &[bool],
    passes: impl Fn(&u32) -> bool,
) -> Vec<RankedItem> {
    let words = query.words();
    let terms = expand(view, &without_stop_words(&words));
    let (matches, mut found) = rank(view, &terms, shown);
    let named = named(view, query.used_text().trim());
    for &document in &named {
        if !matches.get(document as usize).is_some_and(Match::is_any) {
            found.push(document);
        }
    }
    let fit = |document: u32| {
        let here = matches.get(document as usize).copied().unwrap_or_default();
        let in_name = !terms.is_empty() && here.is_in_name(terms.len());
        let tier = if named.contains(&document) {
            Tier::Id
        } else if in_name && is_name(view, document, &words, terms.len()) {
            Tier::Name
        } else {
            Tier::Words
        };
        RankedItem {
            tier,
            score: here.score,
            rank: view.rank(document),
        }
    };
    found.retain(passes);
    found.into_iter().map(fit).collect()
}

/// All files whose id, optionally prefixed with the kind, equals the text.
fn named(view: &View, text: &str) -> Vec<u32> {
    let kinds = match text.split_once(':') {
        Some(_) => &KINDS[..1],
        None => &KINDS[..],
    };
    let references = kinds.iter().map(|kind| ItemRef::parse_as(*kind, text));
    references
        .flatten()
        .filter_map(|item| view.find(item.kind, item.id.as_str()))
        .flat_map(|document| view.same_id(document).iter().copied())
        .collect()
}

/// Whether a name that contains all query words contains no others.
fn is_name(view: &View, document: u32, words: &[Word], term_count: usize) -> bool {
    let record = view.record(document);
    if usize::from(record.lengths[0]) == term_count {
        return true;
    }
    let whole: String = words.iter().map(|word| word.whole.as_str()).collect();
    joined(record.name()).is_some_and(|name| name == whole)
}

/// The non-textual conditions of a query.
struct Filter<'a> {
    query: &'a Query,
    category: Option<&'a str>,
    signer: Option<u64>,
}

impl<'a> Filter<'a> {
    fn new(query: &'a Query) -> Self {
        let category = query.category.as_deref().map(|c| c.trim_matches('/'));
        let number = |fingerprint: Fingerprint| signer_number(&fingerprint.to_string());
        Self {
            query,
            category: category.filter(|category| !category.is_empty()),
            signer: query.signer.map(number),
        }
    }

    /// Whether a file passes. Its record is looked up only if there is a condition.
    fn passes<'r>(&self, record: impl Fn() -> &'r Record) -> bool {
        let Query {
            kinds,
            risk,
            runnable,
            ..
        } = self.query;
        (kinds.is_empty() || kinds.contains(&record().kind))
            && (!runnable || record().runnable)
            && (self.signer.is_none() || self.signer == record().signer)
            && self
                .category
                .is_none_or(|wanted| is_below(category(record()), wanted))
            && risk
                .as_ref()
                .is_none_or(|risk| risk.eq_ignore_ascii_case(&record().risk))
    }
}

/// The declared category, or the directory of the id.
fn category(record: &Record) -> &str {
    match &*record.category {
        "" => record.dir(),
        category => category,
    }
}

/// Whether `category` equals `wanted` or lies below it.
fn is_below(category: &str, wanted: &str) -> bool {
    let rest = category.trim_matches('/').strip_prefix(wanted);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Builds the hit and adds the other files with the same kind and id.
fn build_hit(view: &View, roots: &[&Root], fit: &RankedItem) -> Option<Hit> {
    let document = view.at(fit.rank);
    let own = view.segment_of(document);
    let mut hit = hit(roots.get(own)?, view.record(document), fit.score)?;
    for &other in view.same_id(document) {
        let segment = view.segment_of(other);
        let (root, path) = (roots.get(segment)?, &view.record(other).path);
        if segment > own {
            hit.shadows.push(Location::new(root, path));
        } else if segment < own {
            let first = || Location::new(root, path);
            hit.shadowed_by.get_or_insert_with(first);
        } else if other != document {
            hit.duplicates.push(root.path_to(path));
        }
    }
    Some(hit)
}
