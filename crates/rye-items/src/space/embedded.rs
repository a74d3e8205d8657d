//! A bundle of files embedded in the binary.

/// A bundle of the system space that is part of the binary, signed at build time. Its files are
/// read in place, without unpacking.
#[derive(Debug)]
pub struct EmbeddedBundle {
    /// The bundle's name. A bundle on disk with the same name replaces this one.
    pub name: &'static str,
    /// SHA-256 in hex over all files; differs between builds with different content.
    pub hash: &'static str,
    /// The files, sorted by path.
    pub files: &'static [EmbeddedFile],
}

/// A file of an embedded bundle.
#[derive(Debug)]
pub struct EmbeddedFile {
    /// Relative to `.ai/`, with slashes.
    pub path: &'static str,
    /// The content, including the signature line.
    pub bytes: &'static [u8],
}

impl EmbeddedBundle {
    /// A bundle without files, for programs that provide their own items.
    pub const EMPTY: Self = Self {
        name: "",
        hash: "",
        files: &[],
    };

    /// The file at a path relative to `.ai/`.
    pub fn get(&self, path: &str) -> Option<&'static EmbeddedFile> {
        let index = self
            .files
            .binary_search_by(|file| file.path.cmp(path))
            .ok()?;
        self.files.get(index)
    }

    /// The files whose paths start with a prefix. A prefix that ends with a slash selects a
    /// directory.
    pub fn with_prefix(&self, prefix: &str) -> &'static [EmbeddedFile] {
        let start = self.files.partition_point(|file| file.path < prefix);
        let rest = &self.files[start..];
        let end = rest.partition_point(|file| file.path.starts_with(prefix));
        &rest[..end]
    }
}
