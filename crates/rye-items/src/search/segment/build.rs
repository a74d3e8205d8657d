//! Putting a segment together: from what the last one knew of unchanged files,
//! and what was read of the others.

use lillux::Hash;

use super::super::bytes::{checksum, narrow, wide};
use super::analyse::{Analysed, Lexicon};
use super::postings::{self, Counts};
use super::record::{FIXED, ending_at, lengths, texts_end};
use super::{ENTRY, HEAD, MARK, Segment};

/// Where a file of the new segment comes from.
#[derive(Debug)]
pub(in super::super) enum Source {
    /// From the old segment: its number there.
    Kept(u32),
    /// It was read, with the lexicon of this number.
    Read(Box<Analysed>, usize),
}

/// No file of the new segment.
const GONE: u32 = u32::MAX;

/// Puts a segment together. The sources are in the order of the new segment's
/// files, in which those that are kept have the order that they had.
pub(in super::super) fn build(
    key: &Hash,
    old: Option<&Segment>,
    sources: &[Source],
    lexicons: &[Lexicon],
) -> Segment {
    let mut parts = Building::default();
    parts.files(old, sources);
    let fresh = Fresh::of(sources, lexicons);
    parts.words(old, &kept(old, sources), &fresh);
    let bytes = parts.bytes(key);
    Segment::open(bytes, key).unwrap_or_else(|| unreachable!("a segment reads back as written"))
}

/// For each file of the old segment its number in the new one.
fn kept(old: Option<&Segment>, sources: &[Source]) -> Vec<u32> {
    let mut kept = vec![GONE; old.map_or(0, |old| old.documents)];
    for (new, source) in sources.iter().enumerate() {
        if let Source::Kept(number) = source
            && let Some(place) = kept.get_mut(wide(*number))
        {
            *place = narrow(new);
        }
    }
    kept
}

/// The words of the files that were read, ordered, and for each the files it is in.
struct Fresh<'a> {
    words: Vec<&'a str>,
    /// Where the postings of each word begin; one more than there are words.
    starts: Vec<usize>,
    postings: Vec<(u32, Counts)>,
}

impl<'a> Fresh<'a> {
    fn of(sources: &[Source], lexicons: &'a [Lexicon]) -> Self {
        let mut words: Vec<_> = lexicons
            .iter()
            .flat_map(|lexicon| lexicon.words().map(|(word, _)| word))
            .collect();
        words.sort_unstable();
        words.dedup();
        let ranks: Vec<_> = lexicons.iter().map(|l| ranks(l, &words)).collect();
        // Each word's postings are counted first, so that each posting can be put
        // straight in its place: the files come in order.
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
                starts[ranks[wide(*word)] + 1] += 1;
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
                let place = &mut next[ranks[wide(*word)]];
                postings[*place] = (narrow(document), *counts);
                *place += 1;
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

/// For each number of a lexicon the place of its word in the ordered list.
fn ranks(lexicon: &Lexicon, words: &[&str]) -> Vec<usize> {
    let mut ranks = vec![0; lexicon.len()];
    for (word, number) in lexicon.words() {
        ranks[wide(number)] = words.partition_point(|other| *other < word);
    }
    ranks
}

#[derive(Default)]
struct Building {
    records: Vec<u8>,
    texts: Vec<u8>,
    words: Vec<u8>,
    letters: Vec<u8>,
    postings: Vec<u8>,
    lengths: [u64; 2],
}

impl Building {
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

    fn file(&mut self, fixed: &[u8; FIXED], texts: &[u8]) {
        let [_, description, body] = lengths(fixed);
        self.lengths[0] += u64::from(description);
        self.lengths[1] += u64::from(body);
        self.texts.extend_from_slice(texts);
        let fixed = ending_at(*fixed, self.texts.len());
        debug_assert_eq!(texts_end(&fixed), Some(self.texts.len()));
        self.records.extend_from_slice(&fixed);
    }

    /// Goes through the words of both sides in order, as one merges two lists.
    fn words(&mut self, old: Option<&Segment>, kept: &[u32], fresh: &Fresh<'_>) {
        let old = old.filter(|_| kept.iter().any(|&new| new != GONE));
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
                let new = kept.get(wide(number)).copied().unwrap_or(GONE);
                (new != GONE).then_some((new, counts))
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

    /// A word that is in no file any more is left out.
    fn word(&mut self, word: &[u8], files: impl Iterator<Item = (u32, Counts)>) {
        let (mut next, mut count) = (0, 0_u32);
        for (document, counts) in files {
            // Out of order only in a segment that somebody made up.
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
            for number in [narrow(self.letters.len()), count] {
                self.words.extend_from_slice(&number.to_le_bytes());
            }
        }
    }

    fn bytes(self, key: &Hash) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD + self.postings.len() + self.texts.len());
        bytes.extend_from_slice(MARK);
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(key.as_bytes());
        let sizes = [
            self.records.len() / FIXED,
            self.words.len() / ENTRY,
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

/// Two lists of files as one, in order; no file is in both.
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
