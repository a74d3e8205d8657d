//! An in-memory file tree.

use std::collections::BTreeMap;
use std::sync::Arc;

use rye_engine::sandbox::{FileInfo, SandboxError};

use crate::path::{join, split};

/// Limits of the in-memory sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Total size of all files, in bytes.
    pub bytes: usize,
    /// Number of files and directories.
    pub files: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: 64 * 1024 * 1024,
            files: 10_000,
        }
    }
}

/// A tree of files. Paths are resolved; the workspace itself always exists.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    nodes: BTreeMap<String, Node>,
    bytes: usize,
    /// Number of writes so far; serves as the modification time.
    writes: u64,
    limits: Limits,
}

#[derive(Debug, Clone)]
enum Node {
    Dir,
    File { bytes: Arc<Vec<u8>>, written: u64 },
}

impl Files {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            nodes: BTreeMap::new(),
            bytes: 0,
            writes: 0,
            limits,
        }
    }

    pub(crate) fn is_dir(&self, path: &str) -> bool {
        path.is_empty() || matches!(self.nodes.get(path), Some(Node::Dir))
    }

    pub(crate) fn is_file(&self, path: &str) -> bool {
        matches!(self.nodes.get(path), Some(Node::File { .. }))
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        path.is_empty() || self.nodes.contains_key(path)
    }

    /// The bytes of a file, shared copy-on-write.
    pub(crate) fn read(&self, path: &str) -> Result<Arc<Vec<u8>>, SandboxError> {
        match self.nodes.get(path) {
            Some(Node::File { bytes, .. }) => Ok(Arc::clone(bytes)),
            None if !path.is_empty() => Err(SandboxError::NotFound(path.to_owned())),
            _ => Err(unusable(path, "is a directory")),
        }
    }

    /// Replaces a file. Its directory must exist.
    pub(crate) fn write(&mut self, path: &str, bytes: &[u8]) -> Result<(), SandboxError> {
        self.check_write(path, bytes.len(), self.size(path))?;
        self.bytes = self.bytes - self.size(path) + bytes.len();
        self.writes += 1;
        let (bytes, written) = (Arc::new(bytes.to_vec()), self.writes);
        let node = Node::File { bytes, written };
        self.nodes.insert(path.to_owned(), node);
        Ok(())
    }

    /// Appends to a file, creating it if needed.
    pub(crate) fn append(&mut self, path: &str, bytes: &[u8]) -> Result<(), SandboxError> {
        self.check_write(path, bytes.len(), 0)?;
        self.bytes += bytes.len();
        self.writes += 1;
        let node = self.nodes.entry(path.to_owned());
        let empty = || Node::File {
            bytes: Arc::default(),
            written: 0,
        };
        if let Node::File {
            bytes: file,
            written,
        } = node.or_insert_with(empty)
        {
            Arc::make_mut(file).extend_from_slice(bytes);
            *written = self.writes;
        }
        Ok(())
    }

    /// Checks that a file may exist at `path` and the tree may grow by `more - less`
    /// bytes.
    fn check_write(&self, path: &str, more: usize, less: usize) -> Result<(), SandboxError> {
        if self.is_dir(path) {
            return Err(unusable(path, "is a directory"));
        }
        self.check_parent(path)?;
        if (self.bytes - less).saturating_add(more) > self.limits.bytes {
            return Err(unusable(path, "the sandbox is full"));
        }
        self.check_count(path)
    }

    fn check_parent(&self, path: &str) -> Result<(), SandboxError> {
        match split(path) {
            Some((parent, _)) if self.is_dir(parent) => Ok(()),
            Some((parent, _)) if self.exists(parent) => Err(unusable(parent, "not a directory")),
            Some((parent, _)) => Err(SandboxError::NotFound(parent.to_owned())),
            None => Ok(()),
        }
    }

    fn check_count(&self, path: &str) -> Result<(), SandboxError> {
        if self.nodes.len() >= self.limits.files && !self.exists(path) {
            return Err(unusable(path, "the sandbox contains too many files"));
        }
        Ok(())
    }

    /// Creates a directory. Its parent must exist.
    pub(crate) fn mkdir(&mut self, path: &str) -> Result<(), SandboxError> {
        if self.exists(path) {
            return Err(unusable(path, "already exists"));
        }
        self.check_parent(path)?;
        self.check_count(path)?;
        self.nodes.insert(path.to_owned(), Node::Dir);
        Ok(())
    }

    /// Creates a directory and its missing parents.
    pub(crate) fn mkdir_all(&mut self, path: &str) -> Result<(), SandboxError> {
        let ends = path.match_indices('/').map(|(end, _)| end);
        for end in ends.chain([path.len()]) {
            let dir = &path[..end];
            if self.is_file(dir) {
                return Err(unusable(dir, "not a directory"));
            }
            if !self.exists(dir) {
                self.mkdir(dir)?;
            }
        }
        Ok(())
    }

    /// Removes a file, or a directory with its contents.
    pub(crate) fn remove(&mut self, path: &str) -> Result<(), SandboxError> {
        if path.is_empty() {
            return Err(unusable("the workspace", "cannot be removed"));
        }
        if !self.exists(path) {
            return Err(SandboxError::NotFound(path.to_owned()));
        }
        let mut removed = self.below(path);
        removed.push(path.to_owned());
        for path in removed {
            self.bytes -= self.size(&path);
            self.nodes.remove(&path);
        }
        Ok(())
    }

    /// Removes an empty directory.
    pub(crate) fn remove_empty(&mut self, path: &str) -> Result<(), SandboxError> {
        if self.exists(path) && !(self.is_dir(path) && self.names(path).is_empty()) {
            return Err(unusable(path, "is no empty directory"));
        }
        self.remove(path)
    }

    /// All paths below a directory, at any depth, in order.
    pub(crate) fn below(&self, dir: &str) -> Vec<String> {
        let prefix = join(dir, "");
        let all = self.nodes.range(prefix.clone()..);
        let below = all.take_while(|(path, _)| path.starts_with(&prefix));
        below.map(|(path, _)| path.clone()).collect()
    }

    /// The names in a directory, in order.
    pub(crate) fn names(&self, dir: &str) -> Vec<String> {
        let skip = if dir.is_empty() { 0 } else { dir.len() + 1 };
        let below = self.below(dir).into_iter();
        let mut names: Vec<_> = below
            .map(|path| path[skip..].to_owned())
            .filter(|name| !name.contains('/'))
            .collect();
        names.sort();
        names
    }

    pub(crate) fn size(&self, path: &str) -> usize {
        match self.nodes.get(path) {
            Some(Node::File { bytes, .. }) => bytes.len(),
            _ => 0,
        }
    }

    pub(crate) fn info(&self, path: &str) -> Result<FileInfo, SandboxError> {
        if !self.exists(path) {
            return Err(SandboxError::NotFound(path.to_owned()));
        }
        Ok(FileInfo {
            path: path.to_owned(),
            is_dir: self.is_dir(path),
            size: self.size(path) as u64,
            modified: match self.nodes.get(path) {
                Some(Node::File { written, .. }) => *written,
                _ => 0,
            },
            ..FileInfo::default()
        })
    }
}

pub(crate) fn unusable(path: &str, reason: &str) -> SandboxError {
    SandboxError::Unusable {
        path: path.to_owned(),
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_hold_and_removal_frees_space() {
        let mut files = Files::new(Limits {
            bytes: 10,
            files: 2,
        });
        files.write("a", b"123456").unwrap();
        files.append("a", b"7890").unwrap();
        assert!(files.append("a", b"x").is_err());
        assert!(files.write("b", b"x").is_err());
        files.write("a", b"0123456789").unwrap();
        files.remove("a").unwrap();
        files.mkdir("d").unwrap();
        files.write("d/b", b"0123456789").unwrap();
        assert!(files.mkdir("e").is_err());
        files.remove("d").unwrap();
        files.write("c", b"0123456789").unwrap();
        assert_eq!(files.bytes, 10);
    }

    #[test]
    fn sibling_with_a_common_prefix_is_not_a_child() {
        let mut files = Files::new(Limits::default());
        for dir in ["a", "a-b", "a/c"] {
            files.mkdir(dir).unwrap();
        }
        assert_eq!(files.names(""), ["a", "a-b"]);
        assert_eq!(files.names("a"), ["c"]);
        files.remove("a").unwrap();
        assert_eq!(files.names(""), ["a-b"]);
    }
}
