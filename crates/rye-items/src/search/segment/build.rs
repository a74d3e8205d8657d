//! Builds a segment from the records of unchanged files in the previous segment and the
//! newly read documents.

use lillux::Hash;

use super::super::bytes::{checksum, to_u32, to_usize};
use super::analyse::{AnalysedDocument, Lexicon};
use super::postings::{self, Counts};
use super::record::{RECORD_LEN, lengths, texts_end, with_texts_end};
use super::{HEADER_LEN, MAGIC, Segment, TERM_ENTRY_LEN};

/// Where a file of the new segment comes from.
#[derive(Debug)]
pub(in super::super) enum Source {
    /// Copied from the old segment; its number there.
    Kept(u32),
    /// Newly read; the number of the lexicon that numbered its words.
    Read(Box<AnalysedDocument>, usize),
}

/// Marks files of the old segment that the new one does not contain.
const DROPPED: u32 = u32::MAX;

/// Builds a segment. `sources` are in the order of the new segment; copied files keep
/// their relative order.
pub(in super::super) fn build(
    key: &Hash,
    old: Option<&Segment>,
    sources: &[Source],
    lexicons: &[Lexicon],
) -> Segment {
    let mut parts = SegmentBuilder::default();
    parts.files(old, sources);
    let fresh = NewTerms::new(sources, lexicons);
    parts.words(old, &renumbered(old, sources), &fresh);
    let bytes = parts.bytes(key);
    Segment::open(bytes, key).unwrap_or_else(|| unreachable!("a segment reads back as written"))
}

/// Maps each file of the old segment to its number in the new one.
fn renumbered(old: Option<&Segment>, sources: &[Source]) -> Vec<u32> {
    let mut renumbered = vec![DROPPED; old.map_or(0, |old| old.documents)];
    for (new, source) in sources.iter().enumerate() {
        if let Source::Kept(number) = source
            && let Some(index) = renumbered.get_mut(to_usize(*number))
        {
            *index = to_u32(new);
        }
    }
    renumbered
}

/// The sorted words of the newly read files with their postings.
struct NewTerms<'a> {
    words: Vec<&'a str>,
    /// Start of each word's postings; has one more element than `words`.
    starts: Vec<usize>,
    postings: Vec<(u32, Counts)>,
}

impl<'a> NewTerms<'a> {
    fn new(sources: &[Source], lexicons: &'a [Lexicon]) -> Self {
        let mut words: Vec<_> = lexicons
            .iter()
            .flat_map(|lexicon| lexicon.words().map(|(word, _)| word))
            .collect();
        words.sort_unstable();
        words.dedup();
        let ranks: Vec<_> = lexicons.iter().map(|l| ranks(l, &words)).collect();
        // Counting first allows writing each posting directly to its final position:
        // the documents come in order.
        let mut starts = vec![0; words.len() + 1];
        let read = || {
            let numbered = sources.iter().enumerate();
            numbered.filter_map(|(document, source)| match source {
                Source::Read(analysed, lexicon) => Some((document, analysed, &ranks[*lexicon])),
                Source::Kept(_) => None,
            })
        };
        for (_, analysed, ranks) in read() {
            for (word, _) in &analysed.counts {
                starts[ranks[to_usize(*word)] + 1] += 1;
            }
        }
        for index in 1..starts.len() {
            starts[index] += starts[index - 1];
        }
        let mut next = starts.clone();
        let total = starts.last().copied().unwrap_or_default();
        let mut postings = vec![(0, Counts::default()); total];
        for (document, analysed, ranks) in read() {
            for (word, counts) in &analysed.counts {
                let index = &mut next[ranks[to_usize(*word)]];
                postings[*index] = (to_u32(document), *counts);
                *index += 1;
            }
        }
        Self {
            words,
            starts,
            postings,
        }
    }

    fn postings(&self, word: usize) -> &[(u32, Counts)] {
        &self.postings[self.starts[word]..self.starts[word + 1]]
    }
}

/// Maps each number of a lexicon to the index of its word in the sorted list.
fn ranks(lexicon: &Lexicon, words: &[&str]) -> Vec<usize> {
    let mut ranks = vec![0; lexicon.len()];
    for (word, number) in lexicon.words() {
        ranks[to_usize(number)] = words.partition_point(|other| *other < word);
    }
    ranks
}

#[derive(Default)]
struct SegmentBuilder {
    records: Vec<u8>,
    texts: Vec<u8>,
    words: Vec<u8>,
    letters: Vec<u8>,
    postings: Vec<u8>,
    lengths: [u64; 2],
}

impl SegmentBuilder {
    fn files(&mut self, old: Option<&Segment>, sources: &[Source]) {
        for source in sources {
            match source {
                Source::Read(analysed, _) => self.file(&analysed.fixed, &analysed.texts),
                Source::Kept(number) => {
                    if let Some(old) = old
                        && let Some(fixed) = old.fixed(*number)
                        && let Some(texts) = old.texts_of(*number)
                    {
                        self.file(fixed, texts);
                    }
                }
            }
        }
    }

    fn file(&mut self, fixed: &[u8; RECORD_LEN], texts: &[u8]) {
        let [_, description, body] = lengths(fixed);
        self.lengths[0] += u64::from(description);
        self.lengths[1] += u64::from(body);
        self.texts.extend_from_slice(texts);
        let fixed = with_texts_end(*fixed, self.texts.len());
        debug_assert_eq!(texts_end(&fixed), Some(self.texts.len()));
        self.records.extend_from_slice(&fixed);
    }

    /// Merges the sorted terms of the old segment and of the new files.
    fn words(&mut self, old: Option<&Segment>, renumbered: &[u32], fresh: &NewTerms<'_>) {
        let old = old.filter(|_| renumbered.iter().any(|&new| new != DROPPED));
        let count = old.map_or(0, |old| old.terms);
        let (mut ours, mut theirs) = (0, 0);
        loop {
            let old_word = old.filter(|_| ours < count).map(|old| old.term(ours));
            let new_word = fresh.words.get(theirs).map(|word| word.as_bytes());
            let word = match (old_word, new_word) {
                (None, None) => break,
                (Some(word), None) | (None, Some(word)) => word,
                (Some(one), Some(other)) => one.min(other),
            };
            let before = old
                .filter(|_| old_word == Some(word))
                .map(|old| old.postings(ours));
            let before = before.into_iter().flatten().filter_map(|posting| {
                let (number, counts) = posting.counts();
                let new = renumbered.get(to_usize(number)).copied().unwrap_or(DROPPED);
                (new != DROPPED).then_some((new, counts))
            });
            let added = if new_word == Some(word) {
                fresh.postings(theirs)
            } else {
                &[]
            };
            self.word(word, merged(before, added));
            ours += usize::from(old_word == Some(word));
            theirs += usize::from(new_word == Some(word));
        }
    }

    /// Adds a term, unless no file contains it any more.
    fn word(&mut self, word: &[u8], files: impl Iterator<Item = (u32, Counts)>) {
        let (mut next, mut count) = (0, 0_u32);
        for (document, counts) in files {
            // Only forged segments have documents out of order.
            let Some(gap) = document.checked_sub(next) else {
                continue;
            };
            postings::put(&mut self.postings, gap, &counts);
            next = document + 1;
            count += 1;
        }
        if count > 0 {
            self.letters.extend_from_slice(word);
            let end = self.postings.len() as u64;
            self.words.extend_from_slice(&end.to_le_bytes());
            for number in [to_u32(self.letters.len()), count] {
                self.words.extend_from_slice(&number.to_le_bytes());
            }
        }
    }

    fn bytes(self, key: &Hash) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_LEN + self.postings.len() + self.texts.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(key.as_bytes());
        let sizes = [
            self.records.len() / RECORD_LEN,
            self.words.len() / TERM_ENTRY_LEN,
            self.texts.len(),
            self.letters.len(),
            self.postings.len(),
        ];
        for number in sizes
            .map(|size| size as u64)
            .into_iter()
            .chain(self.lengths)
        {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for part in [
            self.records,
            self.texts,
            self.words,
            self.letters,
            self.postings,
        ] {
            bytes.extend_from_slice(&part);
        }
        let sum = checksum(&bytes[16..]);
        bytes[8..16].copy_from_slice(&sum.to_le_bytes());
        bytes
    }
}

/// Merges two sorted lists of documents that have none in common.
fn merged(
    one: impl Iterator<Item = (u32, Counts)>,
    other: &[(u32, Counts)],
) -> impl Iterator<Item = (u32, Counts)> {
    let mut one = one.peekable();
    let mut other = other.iter().copied().peekable();
    std::iter::from_fn(move || match (one.peek(), other.peek()) {
        (Some((first, _)), Some((second, _))) if first < second => one.next(),
        (Some(_), None) => one.next(),
        _ => other.next(),
    })
}
