//! Errors when opening a space or reading a file in it.

use std::path::{Path, PathBuf};

use lillux::{PathError, shell_word};

/// A file or directory of a space cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpaceError {
    /// `.ai`, or the directory of a kind, is not a directory.
    #[error("{} is not a directory", .0.display())]
    NotADirectory(PathBuf),
    /// A bundle directory has no `.ai`.
    #[error("{} is not a bundle: it has no `.ai` directory", .0.display())]
    NoBundle(PathBuf),
    /// A symbolic link in the path leaves the space.
    #[error("{} resolves to a path outside its space", .0.display())]
    LeavesSpace(PathBuf),
    /// The path contains a loop of symbolic links.
    #[error("{} is a loop of symbolic links", .0.display())]
    LinkLoop(PathBuf),
    /// The directory is nested deeper than the limit.
    #[error("{} is nested too deeply; its content is skipped", .0.display())]
    TooDeep(PathBuf),
    /// Too many files are reachable through symbolic links.
    #[error("too many files are reached through symbolic links; {} and later ones are skipped", .0.display())]
    TooManyLinks(PathBuf),
    /// The path is a directory, a pipe or a device.
    #[error("{} is not a regular file", .0.display())]
    NotAFile(PathBuf),
    /// The file exceeds the size limit of items.
    #[error("{} has {size} bytes; the limit for an item is {} MiB", path.display(), super::LARGEST_FILE >> 20)]
    TooLarge {
        /// The path to display.
        path: PathBuf,
        /// The size in bytes.
        size: u64,
    },
    /// Another process writes to the file.
    #[error("{} changed while it was read", .0.display())]
    ChangedWhileReading(PathBuf),
    /// The file has an unknown extension, or is not in the directory of a kind.
    #[error("{} is not an item: unknown extension, or not in tools, directives, knowledge or config", .0.display())]
    NotAnItem(PathBuf),
    /// The directory is outside all spaces.
    #[error("{} is not in any space", .0.display())]
    OutsideSpaces(PathBuf),
    /// The name of a file is not UTF-8.
    #[error("the name of {} is not UTF-8", .0.display())]
    NonUtf8Name(PathBuf),
    /// A file operation failed.
    #[error(transparent)]
    Path(#[from] PathError),
}

impl SpaceError {
    /// The affected file or directory.
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

    /// A command that helps to fix it.
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
                    .find(|dir| dir.file_name().is_some_and(|name| name == ".ai"))?;
                let target = shell_word(above.parent()?);
                format!("mv {path} {target} # if it is data that a tool reads")
            }
            Self::ChangedWhileReading(_) => "run the command again".to_owned(),
            Self::Path(error) if error.is_permission() => format!("chmod u+rX {path}"),
            _ => return None,
        })
    }
}
