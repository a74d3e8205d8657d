//! What is known of all files of one root: records, words, and where each word is.
//!
//! One run of bytes, the same in memory and in the cache file, read in place:
//!
//! ```text
//! mark  checksum  key  counts and lengths of the parts
//! records   one for each file, all of one size, ordered by kind, id, path
//! texts     the texts of each record
//! words     one entry for each word, all of one size, ordered
//! letters   the words themselves, in a row
//! postings  for each word the files it is in, and how often in which field
//! ```
//!
//! The order and the bytes depend on the files alone, not on what was known of
//! them before.

mod analyse;
mod build;
mod postings;
mod record;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use lillux::Hash;

use super::bytes::{Cursor, checksum, narrow, wide};

pub(super) use analyse::{Analysed, Lexicon};
pub(super) use build::{Source, build};
pub(super) use postings::{Counts, Field, Occurs, Postings};
pub(super) use record::{Record, Settled, identity_bytes, signer};

use record::FIXED;

/// Changes with the layout, and with how text becomes words.
const MARK: &[u8; 8] = b"ryeidx\x00\x01";
/// An entry of the words: end of its postings, end of its letters, number of files.
const ENTRY: usize = 16;
/// Mark, checksum, key, seven numbers.
const HEAD: usize = 8 + 8 + 32 + 7 * 8;

/// The next segment's number in this process.
static SERIAL: AtomicU64 = AtomicU64::new(0);

/// What is known of one root.
#[derive(Debug)]
pub(super) struct Segment {
    bytes: Vec<u8>,
    /// Of this process; tells one segment from another without comparing them.
    serial: u64,
    documents: usize,
    terms: usize,
    /// All words of all descriptions, and of all bodies.
    lengths: [u64; 2],
    parts: Parts,
}

/// A word of a segment.
pub(super) struct Listed<'a> {
    pub(super) place: usize,
    pub(super) letters: &'a [u8],
    /// In how many files it is.
    pub(super) files: u64,
    pub(super) postings: Postings<'a>,
}

/// Where the letters of a word end, and its postings; in how many files it is.
#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    letters: usize,
    postings: usize,
    files: u32,
}

impl Entry {
    fn read(bytes: &[u8; ENTRY]) -> Self {
        let (postings, rest) = bytes.split_at(8);
        let number = |bytes: &[u8]| Cursor(bytes).u32().unwrap_or_default();
        let postings = Cursor(postings).u64().unwrap_or_default();
        Self {
            letters: wide(number(&rest[..4])),
            // What does not fit is beyond any end, and so is nothing.
            postings: usize::try_from(postings).unwrap_or(usize::MAX),
            files: number(&rest[4..]),
        }
    }
}

#[derive(Debug)]
struct Parts {
    records: Range<usize>,
    texts: Range<usize>,
    words: Range<usize>,
    letters: Range<usize>,
    postings: Range<usize>,
}

impl Segment {
    /// Takes bytes that were written under this key; none if they are not such
    /// bytes, or not whole.
    pub(super) fn open(bytes: Vec<u8>, key: &Hash) -> Option<Self> {
        let mut head = Cursor(bytes.get(..HEAD)?);
        let mark = head.array()?;
        let sum = head.u64()?;
        let written: &[u8; 32] = head.array()?;
        if mark != MARK || written != key.as_bytes() || checksum(bytes.get(16..)?) != sum {
            return None;
        }
        let mut size = || usize::try_from(head.u64()?).ok();
        let (documents, terms) = (size()?, size()?);
        let (texts, letters, postings) = (size()?, size()?, size()?);
        let lengths = [head.u64()?, head.u64()?];
        let mut end = HEAD;
        let mut part = |length: usize| {
            let start = end;
            end = start.checked_add(length)?;
            Some(start..end)
        };
        let parts = Parts {
            records: part(documents.checked_mul(FIXED)?)?,
            texts: part(texts)?,
            words: part(terms.checked_mul(ENTRY)?)?,
            letters: part(letters)?,
            postings: part(postings)?,
        };
        (end == bytes.len()).then_some(Self {
            bytes,
            serial: SERIAL.fetch_add(1, Ordering::Relaxed),
            documents,
            terms,
            lengths,
            parts,
        })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn serial(&self) -> u64 {
        self.serial
    }

    /// How many files it knows.
    pub(super) fn documents(&self) -> u32 {
        narrow(self.documents)
    }

    /// How many words it knows.
    pub(super) fn terms(&self) -> usize {
        self.terms
    }

    /// How many words all descriptions have together, and all bodies.
    pub(super) fn lengths(&self) -> [u64; 2] {
        self.lengths
    }

    fn part(&self, part: &Range<usize>) -> &[u8] {
        self.bytes.get(part.clone()).unwrap_or_default()
    }

    fn fixed(&self, document: u32) -> Option<&[u8; FIXED]> {
        let (records, _) = self.part(&self.parts.records).as_chunks::<FIXED>();
        records.get(wide(document))
    }

    /// The record of a file.
    pub(super) fn record(&self, document: u32) -> Option<Record<'_>> {
        Record::read(self.fixed(document)?, self.texts_of(document)?)
    }

    /// How many words the name, the description and the body of a file have.
    pub(super) fn lengths_of(&self, document: u32) -> [u16; 3] {
        self.fixed(document)
            .map(record::lengths)
            .unwrap_or_default()
    }

    /// Whether something runs a file.
    pub(super) fn runs(&self, document: u32) -> bool {
        self.fixed(document).is_some_and(record::runs)
    }

    fn texts_of(&self, document: u32) -> Option<&[u8]> {
        let start = match document.checked_sub(1) {
            Some(before) => record::texts_end(self.fixed(before)?)?,
            None => 0,
        };
        let end = record::texts_end(self.fixed(document)?)?;
        self.part(&self.parts.texts).get(start..end)
    }

    /// Words that are neighbours, in order.
    pub(super) fn listed(&self, places: Range<usize>) -> impl Iterator<Item = Listed<'_>> {
        let (entries, _) = self.part(&self.parts.words).as_chunks::<ENTRY>();
        let before = places.start.checked_sub(1).and_then(|at| entries.get(at));
        let mut start = before.map(Entry::read).unwrap_or_default();
        let letters = self.part(&self.parts.letters);
        let postings = self.part(&self.parts.postings);
        let count = places.len();
        let here = entries.iter().skip(places.start).take(count);
        here.zip(places).map(move |(entry, place)| {
            let entry = Entry::read(entry);
            let range = start.letters..entry.letters;
            let files = start.postings..entry.postings;
            start = entry;
            Listed {
                place,
                letters: letters.get(range).unwrap_or_default(),
                files: u64::from(entry.files).min(self.documents as u64),
                postings: Postings::new(postings.get(files).unwrap_or_default()),
            }
        })
    }

    fn one(&self, term: usize) -> Option<Listed<'_>> {
        self.listed(term..term.saturating_add(1)).next()
    }

    /// The letters of a word.
    pub(super) fn term(&self, term: usize) -> &[u8] {
        self.one(term).map_or(&[], |listed| listed.letters)
    }

    /// In how many files a word is.
    pub(super) fn frequency(&self, term: usize) -> u64 {
        self.one(term).map_or(0, |listed| listed.files)
    }

    /// The files that a word is in.
    pub(super) fn postings(&self, term: usize) -> Postings<'_> {
        self.one(term).map_or(Postings::new(&[]), |l| l.postings)
    }

    /// The place of a word.
    pub(super) fn find(&self, word: &str) -> Option<usize> {
        let place = self.first_not(0, |letters| letters < word.as_bytes());
        (place < self.terms && self.term(place) == word.as_bytes()).then_some(place)
    }

    /// The places of all words with this beginning.
    pub(super) fn beginning_with(&self, beginning: &[u8]) -> Range<usize> {
        let start = self.first_not(0, |letters| letters < beginning);
        start..self.first_not(start, |letters| letters.starts_with(beginning))
    }

    /// The first place from `low` on for whose word something does not hold, that
    /// holds for all words before it.
    fn first_not(&self, mut low: usize, holds: impl Fn(&[u8]) -> bool) -> usize {
        let mut high = self.terms;
        while low < high {
            let middle = low.midpoint(high);
            if holds(self.term(middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}
