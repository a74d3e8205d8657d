//! Search over all items of the spaces.
//!
//! Ranked as BM25 ranks, over name, path, tags, title, description, parameter
//! names and body, each with a weight of its own. The beginning of a word finds
//! it, and where nothing begins so, a word with a letter or two wrong does. The
//! same files and the same query give the same answer, in the same order.
//!
//! There is no index to build or to forget. What is known of each folder (a
//! *segment*) is kept in memory and in a cache file, and is used again only for
//! those files that are as they were: same inode, size and times, and those
//! times old enough that a later change would show in them. Deleting the cache
//! at any moment changes nothing but the time that the next search takes.
//!
//! In a process that stays, the folders are watched ([`Catalogue::watching`]):
//! where nothing happened since the last search, no file is looked at. What the
//! kernel tells no watcher (a mapping that is written to and still open, a write
//! through a name of the file that was made outside meanwhile, a mount) is seen
//! within a minute.
//!
//! ```
//! use rye_items::search::{Candidate, Catalogue, Document, Query, Reader};
//! use rye_items::space::{Embedded, Spaces};
//! use rye_items::{ItemId, ItemKind};
//!
//! struct Lines;
//!
//! impl Reader for Lines {
//!     fn version(&self) -> lillux::Hash {
//!         lillux::Hash::of("lines 1")
//!     }
//!     fn identify(&self, kind: ItemKind, path: &str) -> Option<ItemId> {
//!         let id = path.strip_suffix(".md")?;
//!         (kind == ItemKind::Knowledge).then(|| id.parse().ok())?
//!     }
//!     fn read(&self, _: &Candidate<'_>, bytes: &[u8]) -> Document {
//!         let body = String::from_utf8_lossy(bytes).into_owned();
//!         Document { body, ..Document::default() }
//!     }
//! }
//!
//! # let folder = tempfile::tempdir()?;
//! # let project = folder.path();
//! std::fs::create_dir_all(project.join(".ai/knowledge/garden"))?;
//! std::fs::write(project.join(".ai/knowledge/garden/roses.md"), "When to prune them.")?;
//! let spaces = Spaces::open(Some(project), None, &[], &Embedded::EMPTY)?;
//! let answer = Catalogue::new(None).search(&spaces, &Lines, &Query::new("pruning"));
//! assert_eq!(answer.hits[0].reference.to_string(), "knowledge:garden/roses");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bytes;
mod catalogue;
mod document;
mod forms;
mod held;
mod hit;
mod list;
mod query;
mod rank;
mod resolve;
mod scan;
mod segment;
mod settled;
mod store;
mod typo;
mod update;
mod view;
mod watch;
mod words;

pub use catalogue::Catalogue;
pub use document::{Candidate, Claim, Document, Reader};
pub use hit::{Answer, Hit, Place, Unread};
pub use query::Query;

#[cfg(test)]
mod tests;
