//! What the index knows of a file, and who reads it.

use lillux::Hash;

use crate::id::{ItemId, ItemKind};
use crate::signature::SignatureLine;
use crate::space::Root;

/// What one file says, as far as it can be searched for or is shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Document {
    /// A heading, where the file has one.
    pub title: String,
    /// What the item is for.
    pub description: String,
    /// Words that somebody chose for it.
    pub tags: Vec<String>,
    /// The names of what it takes.
    pub parameters: Vec<String>,
    /// Where it belongs, with slashes. Without one, the folder of its id counts.
    pub category: Option<String>,
    /// `low`, `medium`, `high` or `critical`, as the file says.
    pub risk: Option<String>,
    /// Its version, as the file says.
    pub version: Option<String>,
    /// Whether something runs it: a library beside tools is a file that nothing does.
    pub runs: bool,
    /// Who says to have signed it.
    pub signature: Option<Claim>,
    /// The text to search through. Only its beginning is looked at.
    pub body: String,
    /// Why the file could not be understood; it is found by its id nevertheless.
    pub problem: Option<String>,
}

/// The signature line of a file, and whether it fits the file's bytes. Says
/// nothing about whether the key is trusted or the signature is right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The line.
    pub line: SignatureLine,
    /// Whether the hash in it is that of the bytes it covers.
    pub intact: bool,
}

/// A file that is an item.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// Where it was found.
    pub root: &'a Root,
    /// What it is.
    pub kind: ItemKind,
    /// Its id.
    pub id: &'a ItemId,
    /// Its path, relative to the root's `.ai/`.
    pub path: &'a str,
}

/// Who understands files. Called from several threads at once.
pub trait Reader: Sync {
    /// Changes whenever the same file could give another id or document. What
    /// was read under another version is not used.
    fn version(&self) -> Hash;

    /// The id of the item that a file is, told from its path below the folder
    /// of its kind; none for a file that is no item.
    fn identify(&self, kind: ItemKind, path: &str) -> Option<ItemId>;

    /// What a file says. One that cannot be understood has a `problem`.
    fn read(&self, candidate: &Candidate<'_>, bytes: &[u8]) -> Document;
}
