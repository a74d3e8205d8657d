//! From a view and a query to an answer.

use std::ops::Range;

use lillux::keys::Fingerprint;

use super::hit::{Answer, Hit, Place, hit};
use super::query::{Query, Word, saying_something};
use super::rank::{Match, rank};
use super::resolve::resolve;
use super::scan::KINDS;
use super::segment::{Record, signer};
use super::view::View;
use super::words::joined;
use crate::id::ItemRef;
use crate::space::Root;

/// What comes before any score: the item that was named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Tier {
    Id,
    Name,
    Words,
}

/// A file that fits.
#[derive(Debug, Clone, Copy)]
struct Fit {
    tier: Tier,
    score: f32,
    rank: u32,
}

impl Fit {
    /// Best first; those that are equal in the order of their ids.
    fn order(&self, other: &Self) -> std::cmp::Ordering {
        let tier = self.tier.cmp(&other.tier);
        let score = || other.score.total_cmp(&self.score);
        tier.then_with(score)
            .then_with(|| self.rank.cmp(&other.rank))
    }
}

/// Answers a query. The roots are those of the view's segments.
pub(super) fn answer(view: &View, roots: &[&Root], query: &Query) -> Answer {
    let shown: Vec<_> = roots
        .iter()
        .map(|root| query.spaces.is_empty() || query.spaces.contains(&root.space()))
        .collect();
    let filter = Filter::of(view, query);
    let passes = |document: &u32| {
        shown[view.segment_of(*document)]
            && filter.passes(view, *document)
            && !view.is_hidden(*document, &shown)
    };
    let mut fits: Vec<_> = if query.looked_at().trim().is_empty() {
        let listed = view.ordered().filter(passes);
        listed.map(|document| Fit::listed(view, document)).collect()
    } else {
        fitting(view, query, &shown, passes)
    };
    let total = fits.len();
    if query.limit < total {
        if let Some(last) = query.limit.checked_sub(1) {
            fits.select_nth_unstable_by(last, Fit::order);
        }
        fits.truncate(query.limit);
    }
    fits.sort_unstable_by(Fit::order);
    let hits = fits.iter().filter_map(|fit| shown_hit(view, roots, fit));
    Answer {
        hits: hits.collect(),
        total,
        searched: view.len(),
        unread: Vec::new(),
    }
}

impl Fit {
    fn listed(view: &View, document: u32) -> Self {
        Self {
            tier: Tier::Words,
            score: 0.0,
            rank: view.rank(document),
        }
    }
}

/// All files in which something of the text is, and that pass.
fn fitting(view: &View, query: &Query, shown: &[bool], passes: impl Fn(&u32) -> bool) -> Vec<Fit> {
    let asked = query.words();
    let wanted = resolve(view, &saying_something(&asked));
    let (matches, mut found) = rank(view, &wanted, shown);
    let named = named(view, query.looked_at().trim());
    for &document in &named {
        if !matches.get(document as usize).is_some_and(Match::is_any) {
            found.push(document);
        }
    }
    let fit = |document: u32| {
        let here = matches.get(document as usize).copied().unwrap_or_default();
        let in_name = !wanted.is_empty() && here.is_in_name(wanted.len());
        let tier = if named.contains(&document) {
            Tier::Id
        } else if in_name && is_name(view, document, &asked, wanted.len()) {
            Tier::Name
        } else {
            Tier::Words
        };
        Fit {
            tier,
            score: here.score,
            rank: view.rank(document),
        }
    };
    found.retain(passes);
    found.into_iter().map(fit).collect()
}

/// All files whose id is the text, or whose kind and id it is.
fn named(view: &View, text: &str) -> Vec<u32> {
    let kinds = match text.split_once(':') {
        Some(_) => &KINDS[..1],
        None => &KINDS[..],
    };
    let references = kinds.iter().map(|kind| ItemRef::parse_as(*kind, text));
    references
        .flatten()
        .filter_map(|item| view.find(item.kind, item.id.as_str()))
        .flat_map(|document| view.namesakes(document).iter().copied())
        .collect()
}

/// Whether a name that has all words of a query has no others.
fn is_name(view: &View, document: u32, asked: &[Word], words: usize) -> bool {
    if view.name_length(document) == words {
        return true;
    }
    let whole: String = asked.iter().map(|word| word.whole.as_str()).collect();
    let name = view.record(document).map(|record| record.name());
    name.and_then(joined).is_some_and(|name| name == whole)
}

/// What a hit must be beside fitting the words.
struct Filter<'a> {
    query: &'a Query,
    /// Where the files of the kinds asked for are in the order.
    places: Vec<Range<u32>>,
    category: Option<&'a str>,
    signer: Option<u64>,
    /// Whether a file has to be read for it.
    is_any: bool,
}

impl<'a> Filter<'a> {
    fn of(view: &View, query: &'a Query) -> Self {
        let category = query.category.as_deref().map(|c| c.trim_matches('/'));
        let category = category.filter(|category| !category.is_empty());
        let number = |fingerprint: Fingerprint| signer(&fingerprint.to_string());
        Self {
            query,
            places: query.kinds.iter().map(|it| view.places_of(*it)).collect(),
            category,
            signer: query.signer.map(number),
            is_any: category.is_some() || query.signer.is_some() || query.risk.is_some(),
        }
    }

    fn passes(&self, view: &View, document: u32) -> bool {
        let is_of_kind = |places: &Range<u32>| places.contains(&view.rank(document));
        let fits = |record: Record<'_>| self.fits(&record);
        (self.query.kinds.is_empty() || self.places.iter().any(is_of_kind))
            && (!self.query.runs || view.runs(document))
            && (!self.is_any || view.record(document).is_some_and(fits))
    }

    fn fits(&self, record: &Record<'_>) -> bool {
        let Query { risk, .. } = self.query;
        self.category
            .is_none_or(|wanted| is_below(category(record), wanted))
            && (self.signer.is_none() || self.signer == record.signer)
            && risk
                .as_ref()
                .is_none_or(|risk| risk.eq_ignore_ascii_case(record.risk))
    }
}

/// The category that a file says, or the folder of its id.
fn category<'a>(record: &Record<'a>) -> &'a str {
    match record.category {
        "" => record.folder(),
        category => category,
    }
}

/// Whether a category is the other or below it.
fn is_below(category: &str, wanted: &str) -> bool {
    let rest = category.trim_matches('/').strip_prefix(wanted);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The hit, with the files of the same name.
fn shown_hit(view: &View, roots: &[&Root], fit: &Fit) -> Option<Hit> {
    let document = view.at(fit.rank);
    let own = view.segment_of(document);
    let mut hit = hit(roots.get(own)?, &view.record(document)?, fit.score)?;
    for &other in view.namesakes(document) {
        let segment = view.segment_of(other);
        let (root, record) = (roots.get(segment)?, view.record(other)?);
        if segment > own {
            hit.shadows.push(Place::of(root, record.path));
        } else if segment < own {
            let first = || Place::of(root, record.path);
            hit.shadowed_by.get_or_insert_with(first);
        } else if other != document {
            hit.twins.push(root.path_of(record.path));
        }
    }
    Some(hit)
}
