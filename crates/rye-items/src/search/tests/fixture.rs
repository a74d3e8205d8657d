//! Temporary spaces to search in, and a reader for a simple format.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use lillux::Hash;
use tempfile::TempDir;

use crate::comment::CommentStyle;
use crate::id::{ItemId, ItemKind};
use crate::search::{
    Candidate, Document, Query, Reader, SearchIndex, SearchResults, SignatureClaim,
};
use crate::signature::split;
use crate::space::{EmbeddedBundle, FileClock, FileIdentity, Spaces};

/// A project, a user space and a cache in a temporary directory.
pub(super) struct Fixture {
    dir: TempDir,
    pub(super) bundles: Vec<PathBuf>,
    pub(super) embedded: &'static EmbeddedBundle,
}

impl Fixture {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["project", "user", "cache"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        Self {
            dir,
            bundles: Vec::new(),
            embedded: &EmbeddedBundle::EMPTY,
        }
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    pub(super) fn cache(&self) -> PathBuf {
        self.path("cache")
    }

    /// Writes a file below the project's `.ai`.
    pub(super) fn put(&self, path: &str, text: &str) {
        self.put_in("project", path, text);
    }

    /// Writes a file below the `.ai` of `project`, `user` or a bundle.
    pub(super) fn put_in(&self, space: &str, path: &str, text: &str) {
        let path = self.path(space).join(".ai").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(super) fn item(&self, path: &str) -> PathBuf {
        self.path("project/.ai").join(path)
    }

    pub(super) fn spaces(&self) -> Spaces {
        let (project, user) = (self.path("project"), self.path("user"));
        Spaces::open(Some(&project), Some(&user), &self.bundles, self.embedded).unwrap()
    }

    /// Searches with an existing index.
    pub(super) fn search(&self, catalogue: &SearchIndex, query: &Query) -> SearchResults {
        catalogue.search(&self.spaces(), &Lines::default(), query)
    }

    /// Searches with a new index.
    pub(super) fn search_fresh(&self, query: &Query) -> SearchResults {
        self.search(&SearchIndex::new(None), query)
    }

    /// The ids of the hits for a text.
    pub(super) fn ids(&self, text: &str) -> Vec<String> {
        ids(&self.search_fresh(&Query::new(text)))
    }
}

/// Waits until no file below a directory has racy timestamps.
pub(super) fn wait_until_reliable(dir: &Path) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            wait_until_reliable(&path);
        }
        let identity = FileIdentity::from_stat(&rustix::fs::lstat(&path).unwrap());
        while !identity.has_reliable_times(FileClock::now()) {
            std::thread::yield_now();
        }
    }
}

/// The ids of the hits, in order.
pub(super) fn ids(answer: &SearchResults) -> Vec<String> {
    let hits = answer.hits.iter();
    hits.map(|hit| hit.reference.id.to_string()).collect()
}

/// Reads files that begin with lines such as `# tags: one, two`; the rest is the body.
/// Counts the files it reads.
#[derive(Default)]
pub(super) struct Lines {
    pub(super) read: AtomicUsize,
    /// Number of paths it identified; zero if nothing was walked.
    pub(super) shown: AtomicUsize,
    pub(super) version: u32,
}

impl Reader for Lines {
    fn version(&self) -> Hash {
        Hash::digest(format!("lines {}", self.version))
    }

    fn identify(&self, kind: ItemKind, path: &str) -> Option<ItemId> {
        self.shown.fetch_add(1, Ordering::Relaxed);
        let (id, extension) = path.rsplit_once('.')?;
        let known = match kind {
            ItemKind::Tool => ["py", "yaml"].contains(&extension),
            _ => extension == "md",
        };
        known.then(|| id.parse().ok())?
    }

    fn read(&self, candidate: &Candidate<'_>, bytes: &[u8]) -> Document {
        self.read.fetch_add(1, Ordering::Relaxed);
        let extension = Path::new(candidate.path).extension();
        let comment = match extension.and_then(|e| e.to_str()) {
            Some("md") => CommentStyle::MARKUP,
            _ => CommentStyle::HASH,
        };
        let signed = split(bytes, &comment).ok();
        let signature = signed.as_ref().map(|split| SignatureClaim {
            line: split.line.clone(),
            intact: split.hash() == split.line.hash,
        });
        let text = signed.map_or(bytes, |split| split.after);
        let text = String::from_utf8_lossy(text);
        let mut document = Document {
            signature,
            ..Document::default()
        };
        for line in text.lines() {
            let field = line.strip_prefix("# ").and_then(|l| l.split_once(": "));
            let list = |text: &str| text.split(", ").map(str::to_owned).collect();
            match field {
                Some(("title", text)) => text.clone_into(&mut document.title),
                Some(("description", text)) => text.clone_into(&mut document.description),
                Some(("tags", text)) => document.tags = list(text),
                Some(("parameters", text)) => document.parameters = list(text),
                Some(("category", text)) => document.category = Some(text.to_owned()),
                Some(("risk", text)) => document.risk = Some(text.to_owned()),
                Some(("version", text)) => document.version = Some(text.to_owned()),
                Some(("problem", text)) => document.problem = Some(text.to_owned()),
                _ => {
                    document.body.push_str(line);
                    document.body.push('\n');
                }
            }
        }
        document
    }
}
