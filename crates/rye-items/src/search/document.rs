//! The searchable content of a file, and the trait that extracts it.

use lillux::Hash;

use crate::id::{ItemId, ItemKind};
use crate::signature::SignatureLine;
use crate::space::Root;

/// The parts of a file that are searched or displayed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Document {
    /// The heading; empty if the file has none.
    pub title: String,
    /// What the item is for.
    pub description: String,
    /// Author-chosen keywords.
    pub tags: Vec<String>,
    /// Parameter names.
    pub parameters: Vec<String>,
    /// Category path, separated by slashes. Defaults to the directory of the id.
    pub category: Option<String>,
    /// `low`, `medium`, `high` or `critical`, as declared in the file.
    pub risk: Option<String>,
    /// Version, as declared in the file.
    pub version: Option<String>,
    /// Whether the item can be executed; a library next to tools cannot.
    pub runnable: bool,
    /// The signature line, if there is one. Not verified.
    pub signature: Option<SignatureClaim>,
    /// Full text. Only the first 64 KiB are indexed.
    pub body: String,
    /// Why the metadata could not be parsed. The item is still found by its id.
    pub problem: Option<String>,
}

/// The signature line of a file and whether its hash matches the content. It does not
/// say whether the key is trusted or the signature is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignatureClaim {
    /// The parsed signature line.
    pub line: SignatureLine,
    /// Whether the hash in the line matches the content.
    pub intact: bool,
}

/// A file that has been identified as an item.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// The root that contains the file.
    pub root: &'a Root,
    /// The kind, derived from the directory.
    pub kind: ItemKind,
    /// The id, derived from the path.
    pub id: &'a ItemId,
    /// Path relative to the root's `.ai/`.
    pub path: &'a str,
}

/// Extracts documents from files. Called from several threads at once.
pub trait Reader: Sync {
    /// Identifies the extraction logic. Must change whenever the same file could give a
    /// different id or document; cached documents of other versions are ignored.
    fn version(&self) -> Hash;

    /// Derives the id of an item from its path below the directory of its kind. Returns
    /// `None` if the file is not an item.
    fn identify(&self, kind: ItemKind, path: &str) -> Option<ItemId>;

    /// Extracts the document of a file. If the file cannot be parsed, sets `problem`.
    fn read(&self, candidate: &Candidate<'_>, bytes: &[u8]) -> Document;
}
