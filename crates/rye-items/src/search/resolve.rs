//! The words of a query as words of the index: the word itself, its other forms,
//! words that begin with it, and where there is none of these, words like it.
//!
//! What a word stands for, and how much it says, depends on all segments
//! together, never on how files are spread over them.

use std::collections::HashSet;
use std::ops::Range;

use super::forms::forms;
use super::query::Word;
use super::segment::{Postings, Segment};
use super::typo;
use super::view::View;

const EXACT: f32 = 1.0;
const FORM: f32 = 0.8;
/// `create` for `createIssue`.
const PART: f32 = 0.4;
/// A longer word, where nothing is exactly the word that was asked for.
const ONLY_LONGER: f32 = 0.7;
/// A longer word beside exact ones: the last word of a query may be half typed.
const LONGER_LAST: f32 = 0.5;
const LONGER: f32 = 0.25;
const MISTAKES: [f32; 3] = [EXACT, 0.6, 0.35];

/// Letters from which on the beginning of a word stands for it.
const SHORTEST_BEGINNING: usize = 2;

/// A word of a query, and what it stands for.
#[derive(Debug)]
pub(super) struct Wanted {
    /// How much it says: the rarer, the more.
    pub(super) rarity: f32,
    /// For each segment, the words of it that are meant.
    meant: Vec<Meant>,
}

/// A word of a segment that a word of a query stands for.
pub(super) struct Term<'a> {
    pub(super) weight: f32,
    /// It is the word that was asked for, or a form of it.
    pub(super) full: bool,
    pub(super) postings: Postings<'a>,
}

/// What a word stands for in one segment.
#[derive(Debug, Default)]
struct Meant {
    single: Vec<Single>,
    longer: Longer,
}

#[derive(Debug, Clone, Copy)]
struct Single {
    place: usize,
    weight: f32,
    full: bool,
}

/// All words with the same beginning, which are neighbours.
#[derive(Debug, Default)]
struct Longer {
    places: Range<usize>,
    weight: f32,
    beginning: usize,
}

impl Wanted {
    /// The words of a segment that are meant, always in the same order.
    pub(super) fn terms<'a>(
        &'a self,
        at: usize,
        segment: &'a Segment,
    ) -> impl Iterator<Item = Term<'a>> {
        let Meant { single, longer } = &self.meant[at];
        let singles = single.iter().map(|term| Term {
            weight: term.weight,
            full: term.full,
            postings: segment.postings(term.place),
        });
        let others = segment.listed(longer.places.clone());
        let others = others
            .filter(|listed| single.iter().all(|term| term.place != listed.place))
            .map(|listed| Term {
                weight: longer.weight * share(longer.beginning, listed.letters.len()),
                full: false,
                postings: listed.postings,
            });
        singles.chain(others)
    }
}

/// What the words stand for. One that is like nothing at all is left out.
pub(super) fn resolve(view: &View, words: &[&Word]) -> Vec<Wanted> {
    let mut units: Vec<(&str, &[String])> = Vec::new();
    for Word { whole, parts } in words {
        if parts.is_empty() || is_known(view, whole) {
            units.push((whole, parts));
        } else {
            units.extend(parts.iter().map(|part| (part.as_str(), &[][..])));
        }
    }
    let mut seen = HashSet::new();
    units.retain(|(unit, _)| seen.insert(*unit));
    units.truncate(u32::BITS as usize);
    let last = units.len().saturating_sub(1);
    let wanted = units.into_iter().enumerate();
    wanted
        .filter_map(|(at, (unit, parts))| Resolving::new(view).wanted(unit, parts, at == last))
        .collect()
}

fn is_known(view: &View, word: &str) -> bool {
    view.segments.iter().any(|s| s.find(word).is_some())
}

struct Resolving<'a> {
    view: &'a View,
    meant: Vec<Meant>,
    /// In how many files the words are, each word by itself.
    files: u64,
}

impl<'a> Resolving<'a> {
    fn new(view: &'a View) -> Self {
        Self {
            view,
            meant: view.segments.iter().map(|_| Meant::default()).collect(),
            files: 0,
        }
    }

    fn wanted(mut self, word: &str, parts: &[String], is_last: bool) -> Option<Wanted> {
        self.add(word, EXACT, true);
        let exact = self.files;
        for form in forms(word) {
            self.add(&form, FORM, true);
        }
        for part in parts {
            self.add(part, PART, false);
        }
        let longer = match () {
            () if self.files == 0 => ONLY_LONGER,
            () if is_last => LONGER_LAST,
            () => LONGER,
        };
        if word.chars().count() >= SHORTEST_BEGINNING {
            self.add_longer(word, longer);
        }
        if self.files == 0 {
            self.add_like(word);
        }
        let all = self.view.len() as u64;
        let files = if exact > 0 {
            exact
        } else {
            self.files.min(all)
        };
        (files > 0).then(|| Wanted {
            rarity: rarity(all, files),
            meant: self.meant,
        })
    }

    fn add(&mut self, word: &str, weight: f32, full: bool) {
        for (segment, meant) in self.view.segments.iter().zip(&mut self.meant) {
            if let Some(place) = segment.find(word)
                && meant.single.iter().all(|term| term.place != place)
            {
                self.files += segment.frequency(place);
                meant.single.push(Single {
                    place,
                    weight,
                    full,
                });
            }
        }
    }

    /// All longer words with this beginning; the longer, the less they count.
    fn add_longer(&mut self, word: &str, weight: f32) {
        for (segment, meant) in self.view.segments.iter().zip(&mut self.meant) {
            let places = segment.beginning_with(word.as_bytes());
            let listed = segment.listed(places.clone());
            self.files += listed.map(|listed| listed.files).sum::<u64>();
            meant.longer = Longer {
                places,
                weight,
                beginning: word.len(),
            };
        }
    }

    /// All words that differ in a letter or two.
    fn add_like(&mut self, word: &str) {
        let most = typo::allowed(word);
        if most == 0 {
            return;
        }
        for (segment, meant) in self.view.segments.iter().zip(&mut self.meant) {
            let near = typo::near(word, most, segment.terms(), |place| segment.term(place));
            for (place, mistakes) in near {
                let weight = MISTAKES.get(mistakes).copied().unwrap_or_default();
                self.files += segment.frequency(place);
                meant.single.push(Single {
                    place,
                    weight,
                    full: false,
                });
            }
        }
    }
}

/// What part of a longer word its beginning is, in bytes.
fn share(beginning: usize, whole: usize) -> f32 {
    let small = |n: usize| f32::from(u16::try_from(n).unwrap_or(u16::MAX));
    small(beginning) / small(whole.max(1))
}

/// The inverse document frequency of BM25.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "counts of files; a weight has no more use for exactness"
)]
fn rarity(documents: u64, frequency: u64) -> f32 {
    let (documents, frequency) = (documents as f64, frequency as f64);
    let odds = (documents - frequency + 0.5).max(0.5) / (frequency + 0.5);
    odds.ln_1p() as f32
}
