//! Full-text search over the items of all spaces.
//!
//! Results are ranked by BM25 over name, path, tags, title, description, parameter
//! names and body, each with its own weight. A query word also matches words that start
//! with it; if no word does, it matches words within one or two typos. The same files
//! and the same query always give the same results in the same order.
//!
//! There is no index to build. The index of each root (a *segment*) lives in memory and
//! in a cache file. A cached record is reused only if the file still has the same
//! inode, size and timestamps, and the timestamps are old enough that a later change
//! must alter them. Deleting the cache only makes the next search slower.
//!
//! Long-running processes watch the directories ([`SearchIndex::with_watcher`]): if nothing
//! changed since the last search, no file is examined. Changes that inotify does not
//! report (writes through a memory mapping that is still open, writes through a hard
//! link outside the directories, new mounts) become visible within a minute.
//! ```
//! use rye_items::search::{Candidate, SearchIndex, Document, Query, Reader};
//! use rye_items::space::{EmbeddedBundle, Spaces};
//! use rye_items::{ItemId, ItemKind};
//!
//! struct Lines;
//!
//! impl Reader for Lines {
//!     fn version(&self) -> lillux::Hash {
//!         lillux::Hash::digest("lines 1")
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
//! # let directory = tempfile::tempdir()?;
//! # let project = directory.path();
//! std::fs::create_dir_all(project.join(".ai/knowledge/garden"))?;
//! std::fs::write(project.join(".ai/knowledge/garden/roses.md"), "When to prune them.")?;
//! let spaces = Spaces::open(Some(project), None, &[], &EmbeddedBundle::EMPTY)?;
//! let answer = SearchIndex::new(None).search(&spaces, &Lines, &Query::new("pruning"));
//! assert_eq!(answer.hits[0].reference.to_string(), "knowledge:garden/roses");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod document;
mod evaluate;
mod expand;
mod fuzzy;
mod index;
mod postings;
mod query;
mod rank;
mod record;
mod results;
mod root_cache;
mod scan;
mod segment;
mod stemming;
mod store;
mod tokenize;
mod update;
mod view;
mod watch;

pub use document::{Candidate, Document, Reader, SignatureClaim};
pub use index::SearchIndex;
pub use query::Query;
pub use results::{Hit, Location, ScanError, SearchResults};

#[cfg(test)]
mod tests;
