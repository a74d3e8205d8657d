//! Finds items by file system path.

use std::path::{Path, PathBuf};

use lillux::PathContext as _;

use super::{ItemError, Library};
use crate::comment::CommentStyle;
use crate::id::ItemKind;
use crate::integrity::{IntegrityError, IntegrityProblem};
use crate::lookup::{self, ItemFile};
use crate::metadata::Extractors;
use crate::signature::SignatureError;
use crate::space::{LARGEST_FILE, SpaceError};
use crate::trust::Trust;
use crate::verify::{self, SignatureFormat, VerifiedLine};

/// The items at a path.
#[derive(Debug)]
pub enum PathItem<'a> {
    /// Items of a space: one file, or all files below a directory.
    Items(Vec<ItemFile<'a>>),
    /// A regular file outside all spaces.
    External(PathBuf),
}

impl Library {
    /// The item at a path, or the items below a directory. Files that cannot be read are returned
    /// as separate errors.
    pub fn items_at_path(
        &self,
        path: &Path,
    ) -> Result<(PathItem<'_>, Vec<SpaceError>), SpaceError> {
        let absolute = std::path::absolute(path).at("read the metadata of", path)?;
        let metadata = absolute
            .symlink_metadata()
            .at("read the metadata of", path)?;
        let resolved = resolve_parent(&absolute);
        for root in self.spaces.roots() {
            let Some(dir) = root.as_dir() else {
                continue;
            };
            let real = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
            let Ok(inner) = resolved.strip_prefix(&real) else {
                continue;
            };
            let Some(inner) = inner.to_str() else {
                return Err(SpaceError::NonUtf8Name(absolute));
            };
            let (mut items, mut errors) = (Vec::new(), Vec::new());
            for kind in ItemKind::ALL {
                for listed in lookup::list(root, kind, &self.extractors) {
                    match listed {
                        Ok(item_file) if is_at_or_below(&item_file.relative, inner) => {
                            items.push(item_file);
                        }
                        Err(error) if error.path().starts_with(root.path_to(inner)) => {
                            errors.push(error);
                        }
                        Ok(_) | Err(_) => {}
                    }
                }
            }
            if items.is_empty() && errors.is_empty() && !metadata.is_dir() {
                // Fails for a dangling link.
                let is_file = absolute
                    .metadata()
                    .at("read the metadata of", path)?
                    .is_file();
                return Err(if is_file {
                    SpaceError::NotAnItem(absolute)
                } else {
                    SpaceError::NotAFile(absolute)
                });
            }
            return Ok((PathItem::Items(items), errors));
        }
        if absolute.is_dir() {
            return Err(SpaceError::OutsideSpaces(absolute));
        }
        Ok((PathItem::External(absolute), Vec::new()))
    }

    /// Verifies a file outside all spaces. If its extension is unknown, all comment styles are
    /// tried.
    pub fn verify_external_file(
        &self,
        path: &Path,
        trust: &Trust<'_>,
    ) -> Result<VerifiedLine, ItemError> {
        let size = path.metadata().at("read the metadata of", path)?;
        if !size.is_file() {
            return Err(SpaceError::NotAFile(path.to_owned()))?;
        }
        if size.len() > LARGEST_FILE {
            let (path, size) = (path.to_owned(), size.len());
            return Err(SpaceError::TooLarge { path, size })?;
        }
        let bytes = std::fs::read(path).at("read", path)?;
        check_any_style(&bytes, path, &self.extractors, trust).map_err(|problem| {
            let item = path.display().to_string();
            let error = IntegrityError::new(item, path.to_owned(), None, problem, Some(&bytes));
            ItemError::Integrity(Box::new(error))
        })
    }
}

/// Verifies with the comment style of the extension, or with all known styles if the extension is
/// unknown.
fn check_any_style(
    bytes: &[u8],
    path: &Path,
    extractors: &Extractors,
    trust: &Trust<'_>,
) -> Result<VerifiedLine, IntegrityProblem> {
    let extension = path
        .extension()
        .map(|e| format!(".{}", e.to_string_lossy()));
    let rule = extension.and_then(|extension| extractors.rule(&extension));
    let styles = match rule {
        Some(rule) => vec![rule.comment.clone()],
        None => extractors.comment_styles(),
    };
    let format = |comment: CommentStyle| SignatureFormat {
        partial: comment.suffix.is_some(),
        comment,
        binding: None,
    };
    let mut outcome = Err(IntegrityProblem::Line(SignatureError::Unsigned));
    for comment in styles {
        outcome = verify::check(bytes, &format(comment), trust);
        match &outcome {
            Err(IntegrityProblem::Line(SignatureError::WrongComment { .. })) => {}
            _ => break,
        }
    }
    outcome
}

/// Resolves all links but the last component. The space decides whether that one may be followed.
fn resolve_parent(path: &Path) -> PathBuf {
    let real = path.parent().and_then(|parent| parent.canonicalize().ok());
    match (real, path.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => path.canonicalize().unwrap_or_else(|_| path.to_owned()),
    }
}

fn is_at_or_below(path: &str, dir: &str) -> bool {
    dir.is_empty()
        || path
            .strip_prefix(dir)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
