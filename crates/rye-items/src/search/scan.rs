//! Lists the items of a root with their current file identity.

use crate::id::{ItemId, ItemKind};
use crate::space::{FileIdentity, Observer, Root};

use super::document::Reader;
use super::results::ScanError;

/// The kinds that are indexed. Configuration is not searchable.
pub(super) const KINDS: [ItemKind; 3] = [ItemKind::Tool, ItemKind::Directive, ItemKind::Knowledge];

/// A file identified as an item.
#[derive(Debug)]
pub(super) struct ScannedItem {
    pub(super) kind: ItemKind,
    pub(super) id: ItemId,
    /// Path relative to `.ai/`.
    pub(super) path: String,
    pub(super) identity: Option<FileIdentity>,
    /// The path leads through a symlink, so changes cause no event in its directory.
    pub(super) linked: bool,
}

impl ScannedItem {
    /// Sort key.
    pub(super) fn order(&self) -> (ItemKind, &str, &str) {
        (self.kind, self.id.as_str(), &self.path)
    }
}

/// Lists all items of a root, ordered by kind, id and path, and the files and directories
/// that could not be read.
pub(super) fn scan(
    root: &Root,
    reader: &dyn Reader,
    observer: &mut dyn Observer,
) -> (Vec<ScannedItem>, Vec<ScanError>) {
    let (mut found, mut errors) = (Vec::new(), Vec::new());
    for kind in KINDS {
        for entry in root.observed_walk(kind.dir(), observer) {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    errors.push(ScanError::from(&error));
                    continue;
                }
            };
            let below = entry.path.strip_prefix(kind.dir());
            let below = below.and_then(|rest| rest.strip_prefix('/'));
            if let Some(id) = below.and_then(|path| reader.identify(kind, path)) {
                found.push(ScannedItem {
                    kind,
                    id,
                    path: entry.path,
                    identity: entry.identity,
                    linked: entry.linked,
                });
            }
        }
    }
    found.sort_unstable_by(|one, other| one.order().cmp(&other.order()));
    (found, errors)
}
