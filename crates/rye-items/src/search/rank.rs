//! Scores files: BM25 over weighted fields.
//!
//! For each query word, the occurrences of its expansions in each field are weighted,
//! summed and saturated: ten occurrences count little more than two. Rare words count
//! more than frequent ones, and a file that contains all words scores higher than one
//! that contains some of them often. Sums are computed in a fixed order, so a score
//! depends only on the files and the query.

use super::expand::QueryTerm;
use super::postings::{Counts, Field, Occurrence};
use super::view::{Norm, View, to_usize};

/// Weights of the fields before the body, in the order of [`Field`].
const WEIGHTS: [f32; Field::COUNT - 1] = [6.0, 2.0, 4.0, 3.0, 2.0];
/// Occurrences per short field that count.
const MAX_PER_FIELD: u16 = 2;
/// Upper bound of the body's weight, and the number of occurrences that give half of
/// it.
const MAX_BODY_WEIGHT: f32 = 3.0;
const HALF_SATURATION: f32 = 2.0;
/// BM25's `k1`: how fast the weight of a word saturates.
const SATURATION: f32 = 1.2;
/// Share of the score that a file keeps if it contains no query word in full.
const MIN_COVERAGE: f32 = 0.4;
/// How much a partial match counts towards coverage, relative to a full one.
const PARTIAL: f32 = 0.5;

/// The match of one file.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Match {
    pub(super) score: f32,
    /// Accumulated weight of the word being processed.
    weight: f32,
    /// Bit set of the words that match in full.
    full: u32,
    /// Bit set of the words that match in full or in part.
    any: u32,
    /// Bit set of the words that match in full in the name.
    name: u32,
}

impl Match {
    pub(super) fn is_any(&self) -> bool {
        self.any != 0
    }

    /// Whether the name contains all words.
    pub(super) fn is_in_name(&self, words: usize) -> bool {
        to_usize(self.name.count_ones()) == words
    }
}

/// Scores all files. Returns the match of each file and the list of matching files.
pub(super) fn rank(view: &View, terms: &[QueryTerm], shown: &[bool]) -> (Vec<Match>, Vec<u32>) {
    let mut matches = vec![Match::default(); view.len()];
    let mut found = Vec::with_capacity(view.len());
    let mut touched = Vec::with_capacity(view.len());
    for (number, word) in terms.iter().enumerate() {
        let bit = 1 << number;
        let segments = view.segments.iter().enumerate();
        for (at, segment) in segments.filter(|(at, _)| shown[*at]) {
            let base = view.base(at);
            for term in word.terms(at, segment) {
                let full = if term.full { bit } else { 0 };
                for (number, occurrence) in term.postings {
                    let document = base.saturating_add(number);
                    let Some(here) = matches.get_mut(to_usize(document)) else {
                        continue;
                    };
                    if here.any & bit == 0 {
                        if here.any == 0 {
                            found.push(document);
                        }
                        touched.push(document);
                    }
                    here.any |= bit;
                    here.full |= full;
                    let norm = view.norms[to_usize(document)];
                    let weight = match occurrence {
                        Occurrence::OnceInBody => in_body(norm.body),
                        Occurrence::In(counts) => {
                            if counts[Field::Name as usize] > 0 {
                                here.name |= full;
                            }
                            in_fields(&counts, norm)
                        }
                    };
                    here.weight += term.weight * weight;
                }
            }
        }
        for document in touched.drain(..) {
            let here = &mut matches[to_usize(document)];
            here.score += word.rarity * here.weight / (SATURATION + here.weight);
            here.weight = 0.0;
        }
    }
    let all: f32 = terms.iter().map(|word| word.rarity).sum();
    for &document in &found {
        let here = &mut matches[to_usize(document)];
        here.score *= MIN_COVERAGE + (1.0 - MIN_COVERAGE) * covered(here, terms) / all;
    }
    (matches, found)
}

/// Weight of a word's occurrences in all fields of a file.
fn in_fields(counts: &Counts, norm: Norm) -> f32 {
    let mut sum = 0.0;
    for (field, weight) in WEIGHTS.into_iter().enumerate() {
        if counts[field] > 0 {
            let often = f32::from(counts[field].min(MAX_PER_FIELD));
            let norm = if field == Field::Description as usize {
                norm.description
            } else {
                1.0
            };
            sum += weight * often * norm;
        }
    }
    sum + in_body(f32::from(counts[Field::Body as usize]) * norm.body)
}

/// Weight of a number of occurrences in a body, normalised to the average length.
#[inline]
fn in_body(often: f32) -> f32 {
    MAX_BODY_WEIGHT * often / (HALF_SATURATION + often)
}

/// How much of the query a file covers, weighted by rarity.
fn covered(here: &Match, terms: &[QueryTerm]) -> f32 {
    let mut sum = 0.0;
    for (number, word) in terms.iter().enumerate() {
        let bit = 1 << number;
        if here.full & bit != 0 {
            sum += word.rarity;
        } else if here.any & bit != 0 {
            sum += word.rarity * PARTIAL;
        }
    }
    sum
}
