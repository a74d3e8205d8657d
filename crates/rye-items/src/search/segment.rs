//! A segment: the index of all files of one root.
//!
//! A single byte buffer with the same layout in memory and in the cache file, read in
//! place:
//!
//! ```text
//! header    magic, checksum, key, counts and section lengths
//! records   one fixed-size record per file, ordered by kind, id, path
//! texts     the strings of each record
//! terms     one fixed-size entry per term, in order
//! letters   the terms themselves, concatenated
//! postings  for each term the files that contain it, with counts per field
//! ```
//!
//! The content depends only on the files, not on previous segments.

mod analyse;
mod build;
mod postings;
mod record;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use lillux::Hash;

use super::bytes::{Cursor, checksum, to_u32, to_usize};

pub(super) use analyse::{AnalysedDocument, Lexicon};
pub(super) use build::{Source, build};
pub(super) use postings::{Counts, Field, Occurrence, Postings};
pub(super) use record::{Record, Timestamps, identity_bytes, signer};

use record::RECORD_LEN;

/// Changes with the layout and with the tokenizer.
const MAGIC: &[u8; 8] = b"ryeidx\x00\x01";
/// A term entry: end of its postings, end of its letters, document frequency.
const TERM_ENTRY_LEN: usize = 16;
/// Magic, checksum, key and seven integers.
const HEADER_LEN: usize = 8 + 8 + 32 + 7 * 8;

/// Serial number of the next segment of this process.
static SERIAL: AtomicU64 = AtomicU64::new(0);

/// The index of one root.
#[derive(Debug)]
pub(super) struct Segment {
    bytes: Vec<u8>,
    /// Unique within this process; distinguishes segments without comparing them.
    serial: u64,
    documents: usize,
    terms: usize,
    /// Total word counts of all descriptions and of all bodies.
    lengths: [u64; 2],
    parts: Parts,
}

/// A term of a segment.
pub(super) struct TermEntry<'a> {
    pub(super) index: usize,
    pub(super) letters: &'a [u8],
    /// Document frequency.
    pub(super) document_frequency: u64,
    pub(super) postings: Postings<'a>,
}

/// A term entry: end offsets of its letters and postings, and its document frequency.
#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    letters: usize,
    postings: usize,
    document_frequency: u32,
}

impl Entry {
    fn read(bytes: &[u8; TERM_ENTRY_LEN]) -> Self {
        let (postings, rest) = bytes.split_at(8);
        let number = |bytes: &[u8]| Cursor(bytes).u32().unwrap_or_default();
        let postings = Cursor(postings).u64().unwrap_or_default();
        Self {
            letters: to_usize(number(&rest[..4])),
            // A value that does not fit lies beyond every section and reads as empty.
            postings: usize::try_from(postings).unwrap_or(usize::MAX),
            document_frequency: number(&rest[4..]),
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
    /// Opens a serialised segment. Returns `None` if the bytes are damaged or were
    /// written under a different key.
    pub(super) fn open(bytes: Vec<u8>, key: &Hash) -> Option<Self> {
        let mut head = Cursor(bytes.get(..HEADER_LEN)?);
        let mark = head.array()?;
        let sum = head.u64()?;
        let written: &[u8; 32] = head.array()?;
        if mark != MAGIC || written != key.as_bytes() || checksum(bytes.get(16..)?) != sum {
            return None;
        }
        let mut size = || usize::try_from(head.u64()?).ok();
        let (documents, terms) = (size()?, size()?);
        let (texts, letters, postings) = (size()?, size()?, size()?);
        let lengths = [head.u64()?, head.u64()?];
        let mut end = HEADER_LEN;
        let mut part = |length: usize| {
            let start = end;
            end = start.checked_add(length)?;
            Some(start..end)
        };
        let parts = Parts {
            records: part(documents.checked_mul(RECORD_LEN)?)?,
            texts: part(texts)?,
            words: part(terms.checked_mul(TERM_ENTRY_LEN)?)?,
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

    /// Number of files.
    pub(super) fn documents(&self) -> u32 {
        to_u32(self.documents)
    }

    /// Number of terms.
    pub(super) fn terms(&self) -> usize {
        self.terms
    }

    /// Total word counts of all descriptions and of all bodies.
    pub(super) fn lengths(&self) -> [u64; 2] {
        self.lengths
    }

    fn part(&self, part: &Range<usize>) -> &[u8] {
        self.bytes.get(part.clone()).unwrap_or_default()
    }

    fn fixed(&self, document: u32) -> Option<&[u8; RECORD_LEN]> {
        let (records, _) = self.part(&self.parts.records).as_chunks::<RECORD_LEN>();
        records.get(to_usize(document))
    }

    /// The record of a file.
    pub(super) fn record(&self, document: u32) -> Option<Record<'_>> {
        Record::read(self.fixed(document)?, self.texts_of(document)?)
    }

    /// Word counts of a file's name, description and body.
    pub(super) fn lengths_of(&self, document: u32) -> [u16; 3] {
        self.fixed(document)
            .map(record::lengths)
            .unwrap_or_default()
    }

    /// Whether a file can be executed.
    pub(super) fn is_runnable(&self, document: u32) -> bool {
        self.fixed(document).is_some_and(record::is_runnable)
    }

    fn texts_of(&self, document: u32) -> Option<&[u8]> {
        let start = match document.checked_sub(1) {
            Some(before) => record::texts_end(self.fixed(before)?)?,
            None => 0,
        };
        let end = record::texts_end(self.fixed(document)?)?;
        self.part(&self.parts.texts).get(start..end)
    }

    /// A range of terms, in order.
    pub(super) fn term_entries(&self, range: Range<usize>) -> impl Iterator<Item = TermEntry<'_>> {
        let (entries, _) = self.part(&self.parts.words).as_chunks::<TERM_ENTRY_LEN>();
        let before = range.start.checked_sub(1).and_then(|at| entries.get(at));
        let mut start = before.map(Entry::read).unwrap_or_default();
        let letters = self.part(&self.parts.letters);
        let postings = self.part(&self.parts.postings);
        let count = range.len();
        let here = entries.iter().skip(range.start).take(count);
        here.zip(range).map(move |(entry, index)| {
            let entry = Entry::read(entry);
            let range = start.letters..entry.letters;
            let files = start.postings..entry.postings;
            start = entry;
            TermEntry {
                index,
                letters: letters.get(range).unwrap_or_default(),
                document_frequency: u64::from(entry.document_frequency).min(self.documents as u64),
                postings: Postings::new(postings.get(files).unwrap_or_default()),
            }
        })
    }

    fn term_entry(&self, term: usize) -> Option<TermEntry<'_>> {
        self.term_entries(term..term.saturating_add(1)).next()
    }

    /// The letters of a term.
    pub(super) fn term(&self, term: usize) -> &[u8] {
        self.term_entry(term).map_or(&[], |entry| entry.letters)
    }

    /// The document frequency of a term.
    pub(super) fn frequency(&self, term: usize) -> u64 {
        self.term_entry(term)
            .map_or(0, |entry| entry.document_frequency)
    }

    /// The files that contain a term.
    pub(super) fn postings(&self, term: usize) -> Postings<'_> {
        self.term_entry(term)
            .map_or(Postings::new(&[]), |entry| entry.postings)
    }

    /// The index of a term.
    pub(super) fn find(&self, word: &str) -> Option<usize> {
        let index = self.partition_point(0, |letters| letters < word.as_bytes());
        (index < self.terms && self.term(index) == word.as_bytes()).then_some(index)
    }

    /// The indices of all terms with this prefix.
    pub(super) fn with_prefix(&self, beginning: &[u8]) -> Range<usize> {
        let start = self.partition_point(0, |letters| letters < beginning);
        start..self.partition_point(start, |letters| letters.starts_with(beginning))
    }

    /// Binary search for the first term from `low` on for which `holds` is false.
    fn partition_point(&self, mut low: usize, holds: impl Fn(&[u8]) -> bool) -> usize {
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
