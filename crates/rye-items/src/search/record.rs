//! What the index knows of one file.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher as _};

use serde::{Deserialize, Serialize};

use super::document::Document;
use super::postings::{Counts, Field};
use super::scan::ScannedItem;
use super::tokenize::{self, joined};
use crate::id::ItemKind;
use crate::space::FileIdentity;

/// Indexed bytes of a body: enough for any hand-written text.
const MAX_BODY_LEN: usize = 64 << 10;

/// The record of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) kind: ItemKind,
    pub(super) id: Box<str>,
    /// Relative to `.ai/`.
    pub(super) path: Box<str>,
    /// The state of the file; none for an embedded file.
    pub(super) identity: Option<FileIdentity>,
    /// Whether every change of the file must alter that state, and the file could be read.
    pub(super) is_reliable: bool,
    pub(super) runnable: bool,
    /// The key fingerprint in the signature line, as an integer.
    pub(super) signer: Option<u64>,
    /// Word counts of name, description and body.
    pub(super) lengths: [u16; 3],
    pub(super) category: Box<str>,
    pub(super) risk: Box<str>,
    /// Hash of the indexed body.
    body: u64,
    /// The encoded [`DisplayTexts`].
    display: Box<[u8]>,
}

/// The parts of a document that are only displayed.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct DisplayTexts {
    pub(super) title: String,
    pub(super) description: String,
    pub(super) version: Option<String>,
    /// The signature line, and whether its hash matches the content.
    pub(super) signature: Option<(String, bool)>,
    pub(super) problem: Option<String>,
    pub(super) tags: Vec<String>,
    pub(super) parameters: Vec<String>,
}

impl Record {
    /// Sort key.
    pub(super) fn order(&self) -> (ItemKind, &str, &str) {
        (self.kind, &self.id, &self.path)
    }

    /// The id up to the last slash.
    pub(super) fn dir(&self) -> &str {
        self.id.rsplit_once('/').map_or("", |(dir, _)| dir)
    }

    /// The id after the last slash.
    pub(super) fn name(&self) -> &str {
        self.id.rsplit('/').next().unwrap_or(&self.id)
    }

    /// The displayed parts; none if the cache file was forged.
    pub(super) fn display(&self) -> Option<DisplayTexts> {
        postcard::from_bytes(&self.display).ok()
    }
}

/// A file that was read: its record and its words.
#[derive(Debug)]
pub(super) struct AnalysedFile {
    pub(super) record: Record,
    pub(super) words: HashMap<Box<str>, Counts>,
}

impl AnalysedFile {
    /// Tokenizes a document.
    pub(super) fn new(
        file: &ScannedItem,
        document: Document,
        identity: Option<FileIdentity>,
        is_reliable: bool,
    ) -> Self {
        let id = &file.id;
        let body = &document.body[..document.body.floor_char_boundary(MAX_BODY_LEN)];
        let mut words = WordCounter::default();
        let name = words.identifier(id.name(), Field::Name);
        for segment in id.dir().split('/') {
            words.identifier(segment, Field::Path);
        }
        if let Some(category) = document.category.as_deref().filter(|c| *c != id.dir()) {
            words.text(category, Field::Path);
        }
        words.text(&document.title, Field::Label);
        for tag in &document.tags {
            words.identifier(tag, Field::Label);
        }
        let description = words.text(&document.description, Field::Description);
        for parameter in &document.parameters {
            words.identifier(parameter, Field::Parameter);
        }
        let lengths = [name, description, words.text(body, Field::Body)];
        let mut hasher = DefaultHasher::new();
        hasher.write(body.as_bytes());
        let claim = document.signature;
        let signer = claim.as_ref().map(|claim| claim.line.fingerprint);
        let display = DisplayTexts {
            title: document.title,
            description: document.description,
            version: document.version,
            signature: claim.map(|claim| (claim.line.to_string(), claim.intact)),
            problem: document.problem,
            tags: document.tags,
            parameters: document.parameters,
        };
        let record = Record {
            kind: file.kind,
            id: id.as_str().into(),
            path: file.path.as_str().into(),
            identity,
            is_reliable,
            runnable: document.runnable,
            signer: signer.map(|signer| signer_number(&signer.to_string())),
            lengths,
            category: document.category.unwrap_or_default().into(),
            risk: document.risk.unwrap_or_default().into(),
            body: hasher.finish(),
            display: postcard::to_allocvec(&display).unwrap_or_default().into(),
        };
        Self {
            record,
            words: words.0,
        }
    }
}

/// Converts a hexadecimal fingerprint to an integer.
pub(super) fn signer_number(fingerprint: &str) -> u64 {
    u64::from_str_radix(fingerprint, 16).unwrap_or_default()
}

#[derive(Default)]
struct WordCounter(HashMap<Box<str>, Counts>);

impl WordCounter {
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
        let counts = match self.0.get_mut(word) {
            Some(counts) => counts,
            None => self.0.entry(word.into()).or_default(),
        };
        let count = &mut counts[field as usize];
        *count = count.saturating_add(1);
    }
}
