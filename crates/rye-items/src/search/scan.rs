//! Which files of a root are items, and what they look like now.

use crate::id::{ItemId, ItemKind};
use crate::space::{FileIdentity, Observer, Root};

use super::document::Reader;
use super::hit::Unread;

/// The kinds that are searched. Configuration is not: nobody looks for it by words.
pub(super) const KINDS: [ItemKind; 3] = [ItemKind::Tool, ItemKind::Directive, ItemKind::Knowledge];

/// A file that is an item.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) kind: ItemKind,
    pub(super) id: ItemId,
    /// Relative to `.ai/`.
    pub(super) path: String,
    pub(super) identity: Option<FileIdentity>,
    /// It can change without its folder being told.
    pub(super) linked: bool,
}

impl Found {
    /// What files are ordered by.
    pub(super) fn order(&self) -> (ItemKind, &str, &str) {
        (self.kind, self.id.as_str(), &self.path)
    }
}

/// All files of a root that are items, ordered by kind, id and path; and what
/// could not be looked at.
pub(super) fn scan(
    root: &Root,
    reader: &dyn Reader,
    observer: &mut dyn Observer,
) -> (Vec<Found>, Vec<Unread>) {
    let (mut found, mut unread) = (Vec::new(), Vec::new());
    for kind in KINDS {
        for entry in root.observed_walk(kind.folder(), observer) {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    unread.push(Unread::from(&error));
                    continue;
                }
            };
            let below = entry.path.strip_prefix(kind.folder());
            let below = below.and_then(|rest| rest.strip_prefix('/'));
            if let Some(id) = below.and_then(|path| reader.identify(kind, path)) {
                found.push(Found {
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
    (found, unread)
}
