//! Files in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use rye_engine::sandbox::{FileInfo, SandboxError};

use crate::path::{join, split};

/// How much may be kept in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all files together.
    pub bytes: usize,
    /// Files and folders.
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

/// A tree of files. Paths are resolved; the workspace itself is always there.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    nodes: BTreeMap<String, Node>,
    bytes: usize,
    /// How often something was written: the time, as it is counted here.
    writes: u64,
    limits: Limits,
}

#[derive(Debug, Clone)]
enum Node {
    Folder,
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

    pub(crate) fn is_folder(&self, path: &str) -> bool {
        path.is_empty() || matches!(self.nodes.get(path), Some(Node::Folder))
    }

    pub(crate) fn is_file(&self, path: &str) -> bool {
        matches!(self.nodes.get(path), Some(Node::File { .. }))
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        path.is_empty() || self.nodes.contains_key(path)
    }

    /// The bytes of a file. They are shared until somebody changes them.
    pub(crate) fn read(&self, path: &str) -> Result<Arc<Vec<u8>>, SandboxError> {
        match self.nodes.get(path) {
            Some(Node::File { bytes, .. }) => Ok(Arc::clone(bytes)),
            None if !path.is_empty() => Err(SandboxError::NotFound(path.to_owned())),
            _ => Err(unusable(path, "it is a folder")),
        }
    }

    /// Writes a file, whole. Its folder must be there.
    pub(crate) fn write(&mut self, path: &str, bytes: &[u8]) -> Result<(), SandboxError> {
        self.writable(path, bytes.len(), self.size(path))?;
        self.bytes = self.bytes - self.size(path) + bytes.len();
        self.writes += 1;
        let (bytes, written) = (Arc::new(bytes.to_vec()), self.writes);
        let node = Node::File { bytes, written };
        self.nodes.insert(path.to_owned(), node);
        Ok(())
    }

    /// Adds to the end of a file that may not be there.
    pub(crate) fn append(&mut self, path: &str, bytes: &[u8]) -> Result<(), SandboxError> {
        self.writable(path, bytes.len(), 0)?;
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

    /// Whether a file can be here and grow by `more` bytes, less those that it gives up.
    fn writable(&self, path: &str, more: usize, less: usize) -> Result<(), SandboxError> {
        if self.is_folder(path) {
            return Err(unusable(path, "it is a folder"));
        }
        self.has_folder(path)?;
        if (self.bytes - less).saturating_add(more) > self.limits.bytes {
            return Err(unusable(path, "the sandbox is full"));
        }
        self.has_room(path)
    }

    fn has_folder(&self, path: &str) -> Result<(), SandboxError> {
        match split(path) {
            Some((above, _)) if self.is_folder(above) => Ok(()),
            Some((above, _)) if self.exists(above) => Err(unusable(above, "it is not a folder")),
            Some((above, _)) => Err(SandboxError::NotFound(above.to_owned())),
            None => Ok(()),
        }
    }

    fn has_room(&self, path: &str) -> Result<(), SandboxError> {
        if self.nodes.len() >= self.limits.files && !self.exists(path) {
            return Err(unusable(path, "the sandbox has too many files"));
        }
        Ok(())
    }

    /// Makes a folder. The one above must be there.
    pub(crate) fn mkdir(&mut self, path: &str) -> Result<(), SandboxError> {
        if self.exists(path) {
            return Err(unusable(path, "it is there already"));
        }
        self.has_folder(path)?;
        self.has_room(path)?;
        self.nodes.insert(path.to_owned(), Node::Folder);
        Ok(())
    }

    /// Makes a folder and those above it, where they are not there.
    pub(crate) fn mkdir_all(&mut self, path: &str) -> Result<(), SandboxError> {
        let ends = path.match_indices('/').map(|(end, _)| end);
        for end in ends.chain([path.len()]) {
            let folder = &path[..end];
            if self.is_file(folder) {
                return Err(unusable(folder, "it is not a folder"));
            }
            if !self.exists(folder) {
                self.mkdir(folder)?;
            }
        }
        Ok(())
    }

    /// Removes a file, or a folder with all that is in it.
    pub(crate) fn remove(&mut self, path: &str) -> Result<(), SandboxError> {
        if path.is_empty() {
            return Err(unusable("the workspace", "it is not removed"));
        }
        if !self.exists(path) {
            return Err(SandboxError::NotFound(path.to_owned()));
        }
        let mut gone = self.below(path);
        gone.push(path.to_owned());
        for path in gone {
            self.bytes -= self.size(&path);
            self.nodes.remove(&path);
        }
        Ok(())
    }

    /// All that is below a folder, at any depth, in order.
    pub(crate) fn below(&self, folder: &str) -> Vec<String> {
        let prefix = join(folder, "");
        let all = self.nodes.range(prefix.clone()..);
        let below = all.take_while(|(path, _)| path.starts_with(&prefix));
        below.map(|(path, _)| path.clone()).collect()
    }

    /// The names in a folder, in order.
    pub(crate) fn names(&self, folder: &str) -> Vec<String> {
        let skip = if folder.is_empty() {
            0
        } else {
            folder.len() + 1
        };
        let below = self.below(folder).into_iter();
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
            is_folder: self.is_folder(path),
            size: self.size(path) as u64,
            modified: match self.nodes.get(path) {
                Some(Node::File { written, .. }) => *written,
                _ => 0,
            },
        })
    }
}

pub(crate) fn unusable(path: &str, why: &str) -> SandboxError {
    SandboxError::Unusable {
        path: path.to_owned(),
        why: why.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_grows_beyond_the_limits_and_what_goes_makes_room() {
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
    fn a_folder_whose_name_begins_like_another_is_not_in_it() {
        let mut files = Files::new(Limits::default());
        for folder in ["a", "a-b", "a/c"] {
            files.mkdir(folder).unwrap();
        }
        assert_eq!(files.names(""), ["a", "a-b"]);
        assert_eq!(files.names("a"), ["c"]);
        files.remove("a").unwrap();
        assert_eq!(files.names(""), ["a-b"]);
    }
}
