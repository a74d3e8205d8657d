//! The words of a query as words of the index: the word itself, its other forms,
//! words that begin with it, and where there is none of these, words like it.
//!
//! What a word stands for depends on all segments together, never on how files
//! are spread over them.

use std::collections::{BTreeMap, HashSet};

use super::forms::forms;
use super::query::Word;
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
/// How many words one may stand for; the more frequent ones are kept.
const MOST: usize = 64;
/// How many files those may be in together, as a multiple of all files.
const MOST_FILES: u64 = 4;
const FEW_FILES: u64 = 1000;

/// A word of a query, and what it stands for.
#[derive(Debug)]
pub(super) struct Wanted {
    /// How much it says: the rarer, the more.
    pub(super) rarity: f32,
    /// The words of the index, ordered.
    pub(super) terms: Vec<Term>,
}

/// A word of the index that a word of a query stands for.
#[derive(Debug, Clone)]
pub(super) struct Term {
    pub(super) weight: f32,
    /// It is the word that was asked for, or a form of it.
    pub(super) full: bool,
    /// Its place in each segment that has it.
    pub(super) places: Vec<(usize, usize)>,
    frequency: u64,
}

/// What the words stand for. One that is like nothing at all is left out.
pub(super) fn resolve(view: &View, words: &[Word]) -> Vec<Wanted> {
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
        .filter_map(|(at, (unit, parts))| wanted_for(view, unit, parts, at == last))
        .collect()
}

fn is_known(view: &View, word: &str) -> bool {
    view.segments.iter().any(|s| s.find(word).is_some())
}

fn wanted_for(view: &View, word: &str, parts: &[String], is_last: bool) -> Option<Wanted> {
    let mut terms: BTreeMap<Vec<u8>, Term> = BTreeMap::new();
    add(&mut terms, view, word, &Term::new(EXACT, true));
    let exact = terms.values().map(|term| term.frequency).max();
    for form in forms(word) {
        add(&mut terms, view, &form, &Term::new(FORM, true));
    }
    for part in parts {
        add(&mut terms, view, part, &Term::new(PART, false));
    }
    let longer = match () {
        () if terms.is_empty() => ONLY_LONGER,
        () if is_last => LONGER_LAST,
        () => LONGER,
    };
    if word.chars().count() >= SHORTEST_BEGINNING {
        let found = beginning_with(view, word, longer);
        for (letters, term) in most_frequent(view, found) {
            terms.entry(letters).or_insert(term);
        }
    }
    if terms.is_empty() {
        terms.extend(most_frequent(view, like(view, word)));
    }
    let frequency = exact.or_else(|| terms.values().map(|term| term.frequency).max())?;
    Some(Wanted {
        rarity: rarity(view.len() as u64, frequency),
        terms: terms.into_values().collect(),
    })
}

fn add(terms: &mut BTreeMap<Vec<u8>, Term>, view: &View, word: &str, new: &Term) {
    for (at, segment) in view.segments.iter().enumerate() {
        if let Some(place) = segment.find(word) {
            let term = terms.entry(word.into()).or_insert_with(|| new.clone());
            term.add(at, place, segment.frequency(place));
        }
    }
}

impl Term {
    fn new(weight: f32, full: bool) -> Self {
        Self {
            weight,
            full,
            places: Vec::new(),
            frequency: 0,
        }
    }

    fn add(&mut self, segment: usize, place: usize, frequency: u64) {
        self.places.push((segment, place));
        self.frequency += frequency;
    }
}

/// All longer words with this beginning; the longer, the less they count.
fn beginning_with(view: &View, word: &str, weight: f32) -> BTreeMap<Vec<u8>, Term> {
    let mut found: BTreeMap<Vec<u8>, Term> = BTreeMap::new();
    for (at, segment) in view.segments.iter().enumerate() {
        let start = segment.lower_bound(word.as_bytes());
        let places = (start..segment.terms()).map(|place| (place, segment.term(place)));
        let places = places.take_while(|(_, letters)| letters.starts_with(word.as_bytes()));
        for (place, letters) in places.filter(|(_, letters)| letters.len() > word.len()) {
            let new = || Term::new(weight * share(word.len(), letters.len()), false);
            let term = found.entry(letters.into()).or_insert_with(new);
            term.add(at, place, segment.frequency(place));
        }
    }
    found
}

/// All words that differ in a letter or two.
fn like(view: &View, word: &str) -> BTreeMap<Vec<u8>, Term> {
    let most = typo::allowed(word);
    let mut found: BTreeMap<Vec<u8>, Term> = BTreeMap::new();
    if most == 0 {
        return found;
    }
    for (at, segment) in view.segments.iter().enumerate() {
        let near = typo::near(word, most, segment.terms(), |place| segment.term(place));
        for (place, mistakes) in near {
            let weight = MISTAKES.get(mistakes).copied().unwrap_or_default();
            let term = found.entry(segment.term(place).into());
            let term = term.or_insert(Term::new(weight, false));
            term.add(at, place, segment.frequency(place));
        }
    }
    found
}

/// As many of the words as a query can look through at once: the nearest, and
/// of those the most frequent.
fn most_frequent(view: &View, found: BTreeMap<Vec<u8>, Term>) -> Vec<(Vec<u8>, Term)> {
    let mut found: Vec<_> = found.into_iter().collect();
    // The sort is stable: words of one frequency stay in their order.
    found.sort_by_key(|(_, term)| std::cmp::Reverse(term.frequency));
    let mut left = (MOST_FILES * view.len() as u64).max(FEW_FILES);
    let fits = |(_, term): &(_, Term)| {
        let fits = term.frequency <= left;
        left = left.saturating_sub(term.frequency);
        fits
    };
    found.into_iter().take(MOST).filter(fits).collect()
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
