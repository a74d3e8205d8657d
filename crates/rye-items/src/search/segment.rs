//! A segment: the index of all files of one root.
//!
//! It has a record per file, ordered by kind, id and path, and a posting list per word. Its
//! content depends only on the files, not on previous segments.

use std::collections::HashMap;
use std::ops::Range;

use lillux::Hash;
use serde::{Deserialize, Serialize};

use super::postings::{self, Counts, Postings};
use super::record::{AnalysedFile, Record};

/// Changes with the layout and with the tokenizer.
const MAGIC: &[u8; 8] = b"ryeidx\x00\x02";
/// Magic, key and checksum of the cache file.
const HEADER_LEN: usize = 8 + 32 + 4;

/// The index of one root.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Segment {
    pub(super) records: Vec<Record>,
    /// All words, in order.
    pub(super) terms: Vec<Term>,
    /// The letters of all words.
    letters: String,
    #[serde(with = "serde_bytes")]
    postings: Vec<u8>,
}

/// A word of a segment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Term {
    letters: Range<usize>,
    postings: Range<usize>,
    /// The number of files that contain the word.
    pub(super) files: u32,
}

impl Term {
    /// Length in bytes.
    pub(super) fn len(&self) -> usize {
        self.letters.len()
    }
}

impl Segment {
    /// Decodes a cache file. None if it is damaged or was written under a different key.
    pub(super) fn from_bytes(bytes: &[u8], key: &Hash) -> Option<Self> {
        let (header, content) = bytes.split_at_checked(HEADER_LEN)?;
        let intact = header == Self::header(key, content);
        intact.then(|| postcard::from_bytes(content).ok())?
    }

    /// Encodes a cache file.
    pub(super) fn to_bytes(&self, key: &Hash) -> Vec<u8> {
        let content = postcard::to_allocvec(self).unwrap_or_default();
        [Self::header(key, &content), content].concat()
    }

    fn header(key: &Hash, content: &[u8]) -> Vec<u8> {
        // Detects accidental damage. Who can write the file can also write its checksum.
        let sum = crc32fast::hash(content).to_le_bytes();
        [MAGIC.as_slice(), key.as_bytes(), &sum].concat()
    }

    /// Number of files.
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.records.len()).unwrap_or(u32::MAX)
    }

    /// The letters of a word. Empty in a forged segment with wrong offsets.
    pub(super) fn word(&self, term: &Term) -> &str {
        self.letters.get(term.letters.clone()).unwrap_or_default()
    }

    /// The files that contain a word.
    pub(super) fn postings(&self, term: &Term) -> Postings<'_> {
        Postings::new(self.postings.get(term.postings.clone()).unwrap_or_default())
    }

    /// The index of a word.
    pub(super) fn find(&self, word: &str) -> Option<usize> {
        let found = self
            .terms
            .binary_search_by(|term| self.word(term).cmp(word));
        found.ok()
    }

    /// The indices of all words with this prefix.
    pub(super) fn with_prefix(&self, prefix: &str) -> Range<usize> {
        let start = self.terms.partition_point(|term| self.word(term) < prefix);
        let rest = &self.terms[start..];
        start..start + rest.partition_point(|term| self.word(term).starts_with(prefix))
    }

    fn add_term(&mut self, word: &str, files: &[(u32, Counts)]) {
        let (letters, first) = (self.letters.len(), self.postings.len());
        let (mut next, mut count) = (0, 0);
        for (file, counts) in files {
            // Only forged segments have files out of order.
            let Some(gap) = file.checked_sub(next) else {
                continue;
            };
            postings::put(&mut self.postings, gap, counts);
            next = file.saturating_add(1);
            count += 1;
        }
        if count > 0 {
            self.letters.push_str(word);
            self.terms.push(Term {
                letters: letters..self.letters.len(),
                postings: first..self.postings.len(),
                files: count,
            });
        }
    }
}

/// Where a file of a new segment comes from.
#[derive(Debug)]
pub(super) enum Source {
    /// Copied from the old segment; its number there.
    Kept(u32),
    Read(Box<AnalysedFile>),
}

/// Builds a segment from files of the old segment and newly read ones, in the order of the new
/// segment. Copied files keep their relative order.
pub(super) fn build(old: Option<&Segment>, sources: &[Source]) -> Segment {
    let empty = Segment::default();
    let old = old.unwrap_or(&empty);
    let mut segment = Segment::default();
    let mut renumbered = vec![None; old.records.len()];
    let mut fresh: HashMap<&str, Vec<(u32, Counts)>> = HashMap::new();
    for (number, source) in (0..).zip(sources) {
        match source {
            Source::Kept(before) => {
                let before = usize::try_from(*before).unwrap_or(usize::MAX);
                let Some(record) = old.records.get(before) else {
                    continue;
                };
                renumbered[before] = Some(number);
                segment.records.push(record.clone());
            }
            Source::Read(file) => {
                segment.records.push(file.record.clone());
                for (word, counts) in &file.words {
                    fresh.entry(word).or_default().push((number, *counts));
                }
            }
        }
    }
    let mut words: Vec<&str> = old.terms.iter().map(|term| old.word(term)).collect();
    words.extend(fresh.keys());
    #[expect(
        clippy::stable_sort_primitive,
        reason = "a stable sort is faster for a long sorted list with some additions"
    )]
    words.sort();
    words.dedup();
    let mut before = old.terms.iter().peekable();
    let mut files = Vec::new();
    for word in words {
        files.clear();
        if let Some(term) = before.next_if(|term| old.word(term) == word) {
            files.extend(old.postings(term).filter_map(|(number, found)| {
                let number = renumbered.get(usize::try_from(number).ok()?)?;
                Some(((*number)?, found.counts()))
            }));
        }
        if let Some(added) = fresh.get(word) {
            files.extend_from_slice(added);
            files.sort_unstable_by_key(|(number, _)| *number);
        }
        segment.add_term(word, &files);
    }
    segment
}
