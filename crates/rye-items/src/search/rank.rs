//! How well each file fits the words: BM25 over weighted fields.
//!
//! For each word of the query, what it stands for is counted in each field of a
//! file, weighted, and saturated: a word that is ten times in a file says little
//! more than one that is there twice. Rare words count more than frequent ones,
//! and a file that has all of the words more than one that has some of them
//! often. Sums are taken in one order, so a file's score depends on nothing but
//! the files and the query.

use super::bytes::wide;
use super::resolve::Wanted;
use super::segment::{Counts, Field, Occurs};
use super::view::{Norm, View};

/// Weights of a word in name, path, tags or title, description, parameters.
const WEIGHTS: [f32; Field::COUNT - 1] = [6.0, 2.0, 4.0, 3.0, 2.0];
/// More in one short field says nothing more.
const MOST_IN_FIELD: u16 = 2;
/// What a body can count at most, and how often a word has to be in it for half of that.
const BODY: f32 = 3.0;
const HALF: f32 = 2.0;
/// How fast a word saturates.
const SATURATION: f32 = 1.2;
/// What is left of the score of a file that has none of the words in full.
const SOME: f32 = 0.4;
/// What a word that is there only in part adds to that.
const IN_PART: f32 = 0.5;

/// What is found of the query in one file.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Match {
    pub(super) score: f32,
    /// What the word that is being looked at counts so far.
    weight: f32,
    /// The words that are there in full, a bit for each.
    full: u32,
    /// The words that are there in full or in part.
    any: u32,
    /// The words that are in the name, in full.
    name: u32,
}

impl Match {
    pub(super) fn is_any(&self) -> bool {
        self.any != 0
    }

    /// Whether all words are in the name.
    pub(super) fn is_in_name(&self, words: usize) -> bool {
        wide(self.name.count_ones()) == words
    }
}

/// What is found in each file, and the files in which something is.
pub(super) fn rank(view: &View, wanted: &[Wanted], shown: &[bool]) -> (Vec<Match>, Vec<u32>) {
    let mut matches = vec![Match::default(); view.len()];
    let mut found = Vec::with_capacity(view.len());
    let mut touched = Vec::with_capacity(view.len());
    for (number, word) in wanted.iter().enumerate() {
        let bit = 1 << number;
        let segments = view.segments.iter().enumerate();
        for (at, segment) in segments.filter(|(at, _)| shown[*at]) {
            let base = view.base(at);
            for term in word.terms(at, segment) {
                let full = if term.full { bit } else { 0 };
                for posting in term.postings {
                    let document = base.saturating_add(posting.document);
                    let Some(here) = matches.get_mut(wide(document)) else {
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
                    let norm = view.norms[wide(document)];
                    let weight = match posting.found {
                        Occurs::OnceInBody => in_body(norm.body),
                        Occurs::In(counts) => {
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
            let here = &mut matches[wide(document)];
            here.score += word.rarity * here.weight / (SATURATION + here.weight);
            here.weight = 0.0;
        }
    }
    let all: f32 = wanted.iter().map(|word| word.rarity).sum();
    for &document in &found {
        let here = &mut matches[wide(document)];
        here.score *= SOME + (1.0 - SOME) * covered(here, wanted) / all;
    }
    (matches, found)
}

/// What a word counts in all fields of a file.
fn in_fields(counts: &Counts, norm: Norm) -> f32 {
    let mut sum = 0.0;
    for (field, weight) in WEIGHTS.into_iter().enumerate() {
        if counts[field] > 0 {
            let often = f32::from(counts[field].min(MOST_IN_FIELD));
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

/// What a word counts that is so often in a body of average length.
#[inline]
fn in_body(often: f32) -> f32 {
    BODY * often / (HALF + often)
}

/// How much of what the query says is in a file.
fn covered(here: &Match, wanted: &[Wanted]) -> f32 {
    let mut sum = 0.0;
    for (number, word) in wanted.iter().enumerate() {
        let bit = 1 << number;
        if here.full & bit != 0 {
            sum += word.rarity;
        } else if here.any & bit != 0 {
            sum += word.rarity * IN_PART;
        }
    }
    sum
}
