//! What can be wrong with a space or a file in it, before its bytes matter.

use std::path::{Path, PathBuf};

use lillux::{PathError, shell_word};

/// A file or folder of a space that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpaceError {
    /// `.ai` is there, and is a file.
    #[error("{} is not a directory", .0.display())]
    NotADirectory(PathBuf),
    /// A bundle was named, and there is no `.ai` in it.
    #[error("{} is not a bundle: it has no `.ai` directory", .0.display())]
    NoBundle(PathBuf),
    /// A link on the way leads out of the space.
    #[error("{} resolves to a path outside its space", .0.display())]
    LeavesSpace(PathBuf),
    /// Links that lead to each other.
    #[error("{} is a loop of symbolic links", .0.display())]
    LinkLoop(PathBuf),
    /// Nested deeper than any tree that was made on purpose.
    #[error("{} is nested too deeply; its content is skipped", .0.display())]
    TooDeep(PathBuf),
    /// Links to folders full of links: there is no end to the paths through them.
    #[error("links lead to too many files; those from {} on are left out", .0.display())]
    TooManyLinks(PathBuf),
    /// A folder, a pipe or a device.
    #[error("{} is not a regular file", .0.display())]
    NotAFile(PathBuf),
    /// Larger than an item can be.
    #[error("{} has {size} bytes; the limit for an item is {} MiB", path.display(), super::LARGEST_FILE >> 20)]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        size: u64,
    },
    /// Somebody is writing to it.
    #[error("{} changed while it was read", .0.display())]
    ChangedWhileReading(PathBuf),
    /// A file of a space that is no item: not in a folder of one, or of an unknown kind.
    #[error("{} is not an item: unknown extension, or not in tools, directives, knowledge or config", .0.display())]
    NotAnItem(PathBuf),
    /// A folder that belongs to no space.
    #[error("{} is not in any space", .0.display())]
    OutsideSpaces(PathBuf),
    /// The name of a file is not UTF-8.
    #[error("the name of {} is not UTF-8", .0.display())]
    NonUtf8Name(PathBuf),
    /// The operating system refused.
    #[error(transparent)]
    Path(#[from] PathError),
}

impl SpaceError {
    /// The file or folder.
    pub fn path(&self) -> &Path {
        match self {
            Self::NotADirectory(path)
            | Self::NoBundle(path)
            | Self::LeavesSpace(path)
            | Self::LinkLoop(path)
            | Self::TooDeep(path)
            | Self::TooManyLinks(path)
            | Self::NotAFile(path)
            | Self::TooLarge { path, .. }
            | Self::ChangedWhileReading(path)
            | Self::NotAnItem(path)
            | Self::OutsideSpaces(path)
            | Self::NonUtf8Name(path) => path,
            Self::Path(error) => &error.path,
        }
    }

    /// What to do about it, where that is one thing.
    pub fn hint(&self) -> Option<String> {
        let path = shell_word(self.path());
        Some(match self {
            Self::NotADirectory(_) => format!("mv {path} {path}.old && rye init"),
            Self::NoBundle(_) => "rye system export DIR # creates a bundle".to_owned(),
            Self::LeavesSpace(_) => {
                format!("readlink -f {path} # then replace the link by a copy")
            }
            Self::LinkLoop(_) => format!("rm {path}"),
            Self::TooLarge { path: file, .. } => {
                let above = file
                    .ancestors()
                    .find(|folder| folder.file_name().is_some_and(|name| name == ".ai"))?;
                let elsewhere = shell_word(above.parent()?);
                format!("if it is data, let a tool read it elsewhere: mv {path} {elsewhere}")
            }
            Self::ChangedWhileReading(_) => {
                "run the same command again when the writer is done".to_owned()
            }
            Self::Path(error) if error.is_permission() => format!("chmod u+rX {path}"),
            _ => return None,
        })
    }
}
