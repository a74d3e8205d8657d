//! A document as the words in it.

use std::collections::HashMap;

use super::super::bytes::{checksum, narrow, wide};
use super::super::document::Document;
use super::super::words::{self, joined};
use super::postings::{Counts, Field};
use super::record::{self, FIXED, Record, Settled};
use crate::id::{ItemId, ItemKind};
use crate::space::FileIdentity;

/// How much of a body is searched: enough for any text a person wrote.
const BODY: usize = 64 << 10;

/// A document, ready to be put into a segment.
#[derive(Debug)]
pub(in super::super) struct Analysed {
    pub(super) fixed: [u8; FIXED],
    pub(super) texts: Vec<u8>,
    /// The words in it, as numbers of the lexicon.
    pub(super) counts: Vec<(u32, Counts)>,
}

impl Analysed {
    /// Whether a record says the same of the same state of a file.
    pub(in super::super) fn is_as(&self, record: &Record<'_>) -> bool {
        Record::read(&self.fixed, &self.texts).is_some_and(|read| {
            read.digest == record.digest
                && read.identity == record.identity
                && read.settled == record.settled
        })
    }
}

/// All words of some documents, numbered as they come.
#[derive(Debug, Default)]
pub(in super::super) struct Lexicon {
    numbers: HashMap<Box<str>, u32>,
    /// For each word the document it was last seen in, and where in its counts.
    seen: Vec<(u32, u32)>,
    documents: u32,
}

impl Lexicon {
    /// The words, in no order, with their numbers.
    pub(super) fn words(&self) -> impl Iterator<Item = (&str, u32)> {
        self.numbers.iter().map(|(word, number)| (&**word, *number))
    }

    pub(super) fn len(&self) -> usize {
        self.seen.len()
    }

    /// Takes a document apart.
    pub(in super::super) fn analyse(
        &mut self,
        kind: ItemKind,
        id: &ItemId,
        path: &str,
        document: &Document,
        settled: Settled,
        identity: Option<&FileIdentity>,
    ) -> Analysed {
        self.documents += 1;
        let body = &document.body[..document.body.floor_char_boundary(BODY)];
        let mut counting = Counting {
            lexicon: self,
            counts: Vec::new(),
        };
        let name = counting.identifier(id.name(), Field::Name);
        for segment in id.folder().split('/') {
            counting.identifier(segment, Field::Path);
        }
        if let Some(category) = document.category.as_deref().filter(|c| *c != id.folder()) {
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
        let flags = u64::from(intact) | u64::from(document.runs) << 1;
        let digest = checksum(&texts) ^ checksum(body.as_bytes()).rotate_left(1) ^ flags;
        let lengths = [name, description, length];
        Analysed {
            fixed: record::fixed(kind, document, settled, lengths, digest, identity),
            texts,
            counts,
        }
    }

    fn number(&mut self, word: &str) -> u32 {
        if let Some(&number) = self.numbers.get(word) {
            return number;
        }
        let number = narrow(self.seen.len());
        self.numbers.insert(word.into(), number);
        self.seen.push((0, 0));
        number
    }
}

struct Counting<'a> {
    lexicon: &'a mut Lexicon,
    counts: Vec<(u32, Counts)>,
}

impl Counting<'_> {
    /// Counts the words of a text; how many they are.
    fn text(&mut self, text: &str, field: Field) -> u16 {
        let mut length: u16 = 0;
        words::runs(text, |run| {
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

    /// The same for a text that people also write in one word.
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
        let seen = &mut self.lexicon.seen[wide(number)];
        if seen.0 != document {
            *seen = (document, narrow(self.counts.len()));
            self.counts.push((number, [0; Field::COUNT]));
        }
        let count = &mut self.counts[wide(seen.1)].1[field as usize];
        *count = count.saturating_add(1);
    }
}
