//! Resolves item ids to files. Spaces are searched in the order project, user, system; the first
//! match wins.

use std::path::PathBuf;

use lillux::shell_word;

use crate::id::{ItemId, ItemKind, ItemRef};
use crate::metadata::Extractors;
use crate::space::{Root, Space, SpaceError, Spaces};

/// The file of an item. It has not been read yet.
#[derive(Debug, Clone)]
pub struct ItemFile<'a> {
    /// The space or bundle that contains it.
    pub root: &'a Root,
    /// The item's full reference.
    pub reference: ItemRef,
    /// Relative to the root's `.ai/`.
    pub relative: String,
    /// The extension with its dot: `.py`.
    pub extension: String,
}

impl ItemFile<'_> {
    /// The path to display.
    pub fn path(&self) -> PathBuf {
        self.root.path_to(&self.relative)
    }
}

/// An id that resolves to no file, or to more than one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LookupError {
    /// No item has this id.
    #[error("{reference} not found")]
    NotFound {
        /// The id that was looked up.
        reference: ItemRef,
        /// The directories that were searched.
        searched: Vec<PathBuf>,
        /// Existing ids that are similar, the most similar first.
        near: Vec<ItemRef>,
    },
    /// Two files in the same space have this id.
    #[error("{reference} has more than one file: {}; remove all but one", joined(.paths))]
    Duplicate {
        /// The id that was looked up.
        reference: ItemRef,
        /// The files with this id.
        paths: Vec<PathBuf>,
    },
    /// A bare name that several tools of a space have.
    #[error("`{name}` is ambiguous: {}", .candidates.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or "))]
    Ambiguous {
        /// The bare name.
        name: String,
        /// The tools with this name.
        candidates: Vec<ItemRef>,
    },
    /// A file or directory cannot be read.
    #[error(transparent)]
    Space(#[from] SpaceError),
}

impl LookupError {
    /// A command that helps to fix it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotFound {
                reference, near, ..
            } => Some(match near.first() {
                Some(nearest) => format!("rye load {nearest}"),
                None => format!("rye search {}", reference.id.name()),
            }),
            Self::Duplicate { paths, .. } => {
                paths.last().map(|path| format!("rm {}", shell_word(path)))
            }
            Self::Ambiguous { candidates, .. } => {
                candidates.first().map(|item| format!("rye load {item}"))
            }
            Self::Space(error) => error.hint(),
        }
    }
}

fn joined(paths: &[PathBuf]) -> String {
    let shown: Vec<_> = paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    shown.join(" and ")
}

/// Finds the file of an item in the spaces up to `highest`. A tool may also be given by its bare
/// file name.
pub(crate) fn find<'a>(
    spaces: &'a Spaces,
    extractors: &Extractors,
    reference: &ItemRef,
    highest: Space,
) -> Result<ItemFile<'a>, LookupError> {
    let roots = || spaces.roots().filter(|root| root.space() <= highest);
    for root in roots() {
        if let Some(item_file) = find_in(root, extractors, reference)? {
            return Ok(item_file);
        }
    }
    if reference.kind == ItemKind::Tool && reference.id.is_bare() {
        for root in roots() {
            if let Some(item_file) = find_by_name(root, extractors, reference.id.name())? {
                return Ok(item_file);
            }
        }
    }
    Err(not_found(spaces, extractors, reference))
}

/// Finds the file of an item in one space or bundle.
pub(crate) fn find_in<'a>(
    root: &'a Root,
    extractors: &Extractors,
    reference: &ItemRef,
) -> Result<Option<ItemFile<'a>>, LookupError> {
    let stem = format!("{}/{}", reference.kind.dir(), reference.id);
    let mut hits = root.files_with_stem(&stem, extractors.extensions(reference.kind))?;
    if hits.len() > 1 {
        return Err(LookupError::Duplicate {
            reference: reference.clone(),
            paths: hits.iter().map(|hit| root.path_to(hit)).collect(),
        });
    }
    Ok(hits.pop().map(|relative| ItemFile {
        root,
        reference: reference.clone(),
        extension: relative[stem.len()..].to_owned(),
        relative,
    }))
}

/// Finds a tool by its file name alone, in any directory below `tools/`.
fn find_by_name<'a>(
    root: &'a Root,
    extractors: &Extractors,
    name: &str,
) -> Result<Option<ItemFile<'a>>, LookupError> {
    let mut hits: Vec<_> = list(root, ItemKind::Tool, extractors)
        .into_iter()
        .filter_map(Result::ok)
        .filter(|item_file| item_file.reference.id.name() == name)
        .collect();
    if hits.len() > 1 {
        return Err(LookupError::Ambiguous {
            name: name.to_owned(),
            candidates: hits
                .into_iter()
                .map(|item_file| item_file.reference)
                .collect(),
        });
    }
    Ok(hits.pop())
}

/// The items of a kind in one space or bundle, sorted by path. Duplicate ids are not detected.
pub(crate) fn list<'a>(
    root: &'a Root,
    kind: ItemKind,
    extractors: &Extractors,
) -> Vec<Result<ItemFile<'a>, SpaceError>> {
    root.walk(kind.dir())
        .into_iter()
        .filter_map(|entry| match entry {
            Ok(entry) => item_at(root, kind, &entry.path, extractors).map(Ok),
            Err(error) => Some(Err(error)),
        })
        .collect()
}

/// Derives the item from a file's path; none if the path is not that of an item.
pub(crate) fn item_at<'a>(
    root: &'a Root,
    kind: ItemKind,
    relative: &str,
    extractors: &Extractors,
) -> Option<ItemFile<'a>> {
    let inner = relative.strip_prefix(kind.dir())?.strip_prefix('/')?;
    let (id, extension) = split_name(kind, inner, extractors)?;
    Some(ItemFile {
        root,
        reference: ItemRef::new(kind, id),
        relative: relative.to_owned(),
        extension: extension.to_owned(),
    })
}

/// Splits a path inside the directory of a kind into id and extension.
pub(crate) fn split_name<'p>(
    kind: ItemKind,
    path: &'p str,
    extractors: &Extractors,
) -> Option<(ItemId, &'p str)> {
    let name_start = path.rfind('/').map_or(0, |slash| slash + 1);
    let dot = path[name_start..].rfind('.')? + name_start;
    let (stem, extension) = path.split_at(dot);
    let known = extractors.rule(extension)?.kinds.contains(&kind);
    known.then(|| Some((stem.parse().ok()?, extension)))?
}

fn not_found(spaces: &Spaces, extractors: &Extractors, reference: &ItemRef) -> LookupError {
    let kind = reference.kind;
    let mut near: Vec<(usize, ItemRef)> = spaces
        .roots()
        .flat_map(|root| list(root, kind, extractors))
        .filter_map(|entry| Some(entry.ok()?.reference))
        .filter_map(|other| Some((distance(&reference.id, &other.id)?, other)))
        .collect();
    near.sort();
    near.dedup();
    near.truncate(3);
    LookupError::NotFound {
        reference: reference.clone(),
        searched: spaces
            .roots()
            .map(|root| root.path_to(kind.dir()))
            .collect(),
        near: near.into_iter().map(|(_, other)| other).collect(),
    }
}

/// The edit distance between two ids; none if they are not similar.
fn distance(wanted: &ItemId, other: &ItemId) -> Option<usize> {
    let whole = strsim::levenshtein(wanted.as_str(), other.as_str());
    let names = strsim::levenshtein(wanted.name(), other.name()) + 1;
    let has_extra_extension = wanted.name().split('.').next() == Some(other.name());
    let distance = whole.min(names);
    let close = distance * 2 <= wanted.name().len() || has_extra_extension;
    close.then_some(distance)
}
