//! Tokenizes documents and counts their words.

use std::collections::HashMap;

use super::super::bytes::{checksum, to_u32, to_usize};
use super::super::document::Document;
use super::super::tokenize::{self, joined};
use super::postings::{Counts, Field};
use super::record::{self, RECORD_LEN, Record, Timestamps};
use crate::id::{ItemId, ItemKind};
use crate::space::FileIdentity;

/// Indexed bytes of a body: enough for any hand-written text.
const MAX_BODY_LEN: usize = 64 << 10;

/// A tokenized document, ready to be added to a segment.
#[derive(Debug)]
pub(in super::super) struct AnalysedDocument {
    pub(super) fixed: [u8; RECORD_LEN],
    pub(super) texts: Vec<u8>,
    /// Occurrences per word; words are numbered by the lexicon.
    pub(super) counts: Vec<(u32, Counts)>,
}

impl AnalysedDocument {
    /// Whether a record describes the same state of the file with the same content.
    pub(in super::super) fn matches_record(&self, record: &Record<'_>) -> bool {
        Record::read(&self.fixed, &self.texts).is_some_and(|read| {
            read.digest == record.digest
                && read.identity == record.identity
                && read.timestamps == record.timestamps
        })
    }
}

/// Assigns numbers to the words of a set of documents.
#[derive(Debug, Default)]
pub(in super::super) struct Lexicon {
    numbers: HashMap<Box<str>, u32>,
    /// Per word: the document that last contained it, and its index in that document's
    /// counts.
    seen: Vec<(u32, u32)>,
    documents: u32,
}

impl Lexicon {
    /// The words with their numbers, in arbitrary order.
    pub(super) fn words(&self) -> impl Iterator<Item = (&str, u32)> {
        self.numbers.iter().map(|(word, number)| (&**word, *number))
    }

    pub(super) fn len(&self) -> usize {
        self.seen.len()
    }

    /// Tokenizes a document.
    pub(in super::super) fn analyse(
        &mut self,
        kind: ItemKind,
        id: &ItemId,
        path: &str,
        document: &Document,
        timestamps: Timestamps,
        identity: Option<&FileIdentity>,
    ) -> AnalysedDocument {
        self.documents += 1;
        let body = &document.body[..document.body.floor_char_boundary(MAX_BODY_LEN)];
        let mut counting = TermCounter {
            lexicon: self,
            counts: Vec::new(),
        };
        let name = counting.identifier(id.name(), Field::Name);
        for segment in id.dir().split('/') {
            counting.identifier(segment, Field::Path);
        }
        if let Some(category) = document.category.as_deref().filter(|c| *c != id.dir()) {
            counting.text(category, Field::Path);
        }
        counting.text(&document.title, Field::Label);
        for tag in &document.tags {
            counting.identifier(tag, Field::Label);
        }
        let description = counting.text(&document.description, Field::Description);
        for parameter in &document.parameters {
            counting.identifier(parameter, Field::Parameter);
        }
        let length = counting.text(body, Field::Body);
        let counts = counting.counts;
        let texts = record::texts(path, id, document);
        let intact = document.signature.as_ref().is_some_and(|c| c.intact);
        let flags = u64::from(intact) | u64::from(document.runnable) << 1;
        let digest = checksum(&texts) ^ checksum(body.as_bytes()).rotate_left(1) ^ flags;
        let lengths = [name, description, length];
        AnalysedDocument {
            fixed: record::fixed(kind, document, timestamps, lengths, digest, identity),
            texts,
            counts,
        }
    }

    fn number(&mut self, word: &str) -> u32 {
        if let Some(&number) = self.numbers.get(word) {
            return number;
        }
        let number = to_u32(self.seen.len());
        self.numbers.insert(word.into(), number);
        self.seen.push((0, 0));
        number
    }
}

struct TermCounter<'a> {
    lexicon: &'a mut Lexicon,
    counts: Vec<(u32, Counts)>,
}

impl TermCounter<'_> {
    /// Counts the words of a text and returns how many there are.
    fn text(&mut self, text: &str, field: Field) -> u16 {
        let mut length: u16 = 0;
        tokenize::runs(text, |run| {
            for part in run.parts() {
                length = length.saturating_add(1);
                self.word(part, field);
            }
            if run.is_joined() {
                self.word(run.whole(), field);
            }
        });
        length
    }

    /// The same for identifiers, which are also indexed as one word.
    fn identifier(&mut self, text: &str, field: Field) -> u16 {
        let length = self.text(text, field);
        if let Some(whole) = joined(text) {
            self.word(&whole, field);
        }
        length
    }

    fn word(&mut self, word: &str, field: Field) {
        let number = self.lexicon.number(word);
        let document = self.lexicon.documents;
        let seen = &mut self.lexicon.seen[to_usize(number)];
        if seen.0 != document {
            *seen = (document, to_u32(self.counts.len()));
            self.counts.push((number, [0; Field::COUNT]));
        }
        let count = &mut self.counts[to_usize(seen.1)].1[field as usize];
        *count = count.saturating_add(1);
    }
}
