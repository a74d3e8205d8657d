//! A tree of files inside the binary.

/// A bundle of the system space that is part of the program, signed when it was
/// built. It is found and read without being unpacked.
#[derive(Debug)]
pub struct EmbeddedBundle {
    /// The bundle's name; a bundle on the disk of the same name replaces it.
    pub name: &'static str,
    /// SHA-256, in hex, over all of it: tells one build's bundle from another's.
    pub hash: &'static str,
    /// The files, ordered by path.
    pub files: &'static [EmbeddedFile],
}

/// A file of an embedded tree.
#[derive(Debug)]
pub struct EmbeddedFile {
    /// Relative to `.ai/`, with slashes.
    pub path: &'static str,
    /// As signed.
    pub bytes: &'static [u8],
}

impl EmbeddedBundle {
    /// A bundle without files, for programs that bring their own.
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

    /// The files whose paths begin so: with a slash at its end, those below a folder.
    pub fn below(&self, beginning: &str) -> &'static [EmbeddedFile] {
        let start = self.files.partition_point(|file| file.path < beginning);
        let rest = &self.files[start..];
        let end = rest.partition_point(|file| file.path.starts_with(beginning));
        &rest[..end]
    }
}
