//! Query expansion: maps each query word to terms of the index. A word expands to
//! itself, its inflected forms and longer words with the same prefix; if there are
//! none, to similar words.
//!
//! Expansion and term weights depend on all segments together, never on how the files
//! are distributed among them.

use std::collections::HashSet;
use std::ops::Range;

use super::fuzzy;
use super::postings::Postings;
use super::query::Word;
use super::segment::Segment;
use super::stemming::forms;
use super::view::View;

const EXACT: f32 = 1.0;
const FORM: f32 = 0.8;
/// Part of a compound: `create` for `createIssue`.
const PART: f32 = 0.4;
/// Longer word with the same prefix, if no term matches exactly.
const PREFIX_ONLY: f32 = 0.7;
/// The same next to exact matches, for the last query word, which may be half typed.
const PREFIX_LAST_WORD: f32 = 0.5;
const PREFIX: f32 = 0.25;
const TYPO_WEIGHTS: [f32; 3] = [EXACT, 0.6, 0.35];

/// Minimum length of a prefix, in characters.
const MIN_PREFIX_LEN: usize = 2;

/// A query word with its expansion.
#[derive(Debug)]
pub(super) struct QueryTerm {
    /// Inverse document frequency.
    pub(super) rarity: f32,
    /// The matching terms, per segment.
    expansions: Vec<Expansion>,
}

/// An index term that a query word expands to.
pub(super) struct Term<'a> {
    pub(super) weight: f32,
    /// Whether the term is the query word or an inflected form of it.
    pub(super) full: bool,
    pub(super) postings: Postings<'a>,
}

/// The expansion of a word in one segment.
#[derive(Debug, Default)]
struct Expansion {
    single: Vec<WeightedTerm>,
    prefix: PrefixRange,
}

#[derive(Debug, Clone, Copy)]
struct WeightedTerm {
    index: usize,
    weight: f32,
    full: bool,
}

/// All terms with a common prefix, which are adjacent in the index.
#[derive(Debug, Default)]
struct PrefixRange {
    range: Range<usize>,
    weight: f32,
    prefix_len: usize,
}

impl QueryTerm {
    /// The matching terms of a segment, in a fixed order.
    pub(super) fn terms<'a>(
        &'a self,
        at: usize,
        segment: &'a Segment,
    ) -> impl Iterator<Item = Term<'a>> {
        let Expansion { single, prefix } = &self.expansions[at];
        let singles = single.iter().map(|term| Term {
            weight: term.weight,
            full: term.full,
            postings: segment.postings(&segment.terms[term.index]),
        });
        let others = prefix.range.clone();
        let others = others
            .filter(|index| single.iter().all(|term| term.index != *index))
            .map(|index| {
                let term = &segment.terms[index];
                Term {
                    weight: prefix.weight * share(prefix.prefix_len, term.len()),
                    full: false,
                    postings: segment.postings(term),
                }
            });
        singles.chain(others)
    }
}

/// Expands the words. Words without any match are dropped.
pub(super) fn expand(view: &View, words: &[&Word]) -> Vec<QueryTerm> {
    let mut units: Vec<(&str, &[String])> = Vec::new();
    for Word { whole, parts } in words {
        if parts.is_empty() || is_indexed(view, whole) {
            units.push((whole, parts));
        } else {
            units.extend(parts.iter().map(|part| (part.as_str(), &[][..])));
        }
    }
    let mut seen = HashSet::new();
    units.retain(|(unit, _)| seen.insert(*unit));
    units.truncate(u32::BITS as usize);
    let last = units.len().saturating_sub(1);
    let units = units.into_iter().enumerate();
    units
        .filter_map(|(at, (unit, parts))| Expander::new(view).expand(unit, parts, at == last))
        .collect()
}

fn is_indexed(view: &View, word: &str) -> bool {
    view.segments.iter().any(|s| s.find(word).is_some())
}

struct Expander<'a> {
    view: &'a View,
    expansions: Vec<Expansion>,
    /// Sum of the document frequencies of all terms found so far.
    matches: u64,
}

impl<'a> Expander<'a> {
    fn new(view: &'a View) -> Self {
        Self {
            view,
            expansions: view.segments.iter().map(|_| Expansion::default()).collect(),
            matches: 0,
        }
    }

    fn expand(mut self, word: &str, parts: &[String], is_last: bool) -> Option<QueryTerm> {
        self.add(word, EXACT, true);
        let exact = self.matches;
        for form in forms(word) {
            self.add(&form, FORM, true);
        }
        for part in parts {
            self.add(part, PART, false);
        }
        let prefix = match () {
            () if self.matches == 0 => PREFIX_ONLY,
            () if is_last => PREFIX_LAST_WORD,
            () => PREFIX,
        };
        if word.chars().count() >= MIN_PREFIX_LEN {
            self.add_prefix(word, prefix);
        }
        if self.matches == 0 {
            self.add_similar(word);
        }
        let all = self.view.len() as u64;
        let files = if exact > 0 {
            exact
        } else {
            self.matches.min(all)
        };
        (files > 0).then(|| QueryTerm {
            rarity: rarity(all, files),
            expansions: self.expansions,
        })
    }

    fn add(&mut self, word: &str, weight: f32, full: bool) {
        for (segment, expansions) in self.view.segments.iter().zip(&mut self.expansions) {
            if let Some(index) = segment.find(word)
                && expansions.single.iter().all(|term| term.index != index)
            {
                self.matches += u64::from(segment.terms[index].files);
                expansions.single.push(WeightedTerm {
                    index,
                    weight,
                    full,
                });
            }
        }
    }

    /// Adds all longer terms with this prefix; the longer the term, the lower its
    /// weight.
    fn add_prefix(&mut self, word: &str, weight: f32) {
        for (segment, expansions) in self.view.segments.iter().zip(&mut self.expansions) {
            let range = segment.with_prefix(word);
            let terms = segment.terms[range.clone()].iter();
            self.matches += terms.map(|term| u64::from(term.files)).sum::<u64>();
            expansions.prefix = PrefixRange {
                range,
                weight,
                prefix_len: word.len(),
            };
        }
    }

    /// Adds all terms within the allowed number of typos.
    fn add_similar(&mut self, word: &str) {
        for (segment, expansions) in self.view.segments.iter().zip(&mut self.expansions) {
            let words = segment.terms.iter().map(|term| segment.word(term));
            let similar = fuzzy::similar(word, words);
            for (index, typos) in similar {
                let weight = TYPO_WEIGHTS.get(typos).copied().unwrap_or_default();
                self.matches += u64::from(segment.terms[index].files);
                expansions.single.push(WeightedTerm {
                    index,
                    weight,
                    full: false,
                });
            }
        }
    }
}

/// The share of a word that its prefix covers, in bytes.
fn share(prefix_len: usize, whole: usize) -> f32 {
    let small = |n: usize| f32::from(u16::try_from(n).unwrap_or(u16::MAX));
    small(prefix_len) / small(whole.max(1))
}

/// BM25's inverse document frequency.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "counts of files; weights do not need the precision"
)]
fn rarity(documents: u64, frequency: u64) -> f32 {
    let (documents, frequency) = (documents as f64, frequency as f64);
    let odds = (documents - frequency + 0.5).max(0.5) / (frequency + 0.5);
    odds.ln_1p() as f32
}
