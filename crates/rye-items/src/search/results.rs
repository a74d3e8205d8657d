//! Search results.

use std::path::PathBuf;

use crate::id::ItemRef;
use crate::space::{Root, Space, SpaceError};

use super::document::SignatureClaim;
use super::record::Record;

/// The results of a query.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SearchResults {
    /// The best hits, best first, at most [`Query::limit`](super::Query::limit).
    pub hits: Vec<Hit>,
    /// Number of matching items, including those beyond the limit.
    pub total: usize,
    /// Number of files searched, including shadowed ones.
    pub searched: usize,
    /// Files and directories that could not be read and therefore were not searched.
    pub errors: Vec<ScanError>,
}

/// An item that matches a query.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// Kind and id.
    pub reference: ItemRef,
    /// The file.
    pub location: Location,
    /// The heading; empty if the file has none.
    pub title: String,
    /// What the item is for.
    pub description: String,
    /// Author-chosen keywords.
    pub tags: Vec<String>,
    /// Parameter names.
    pub parameters: Vec<String>,
    /// Category, as declared in the file.
    pub category: Option<String>,
    /// Risk level, as declared in the file.
    pub risk: Option<String>,
    /// Version, as declared in the file.
    pub version: Option<String>,
    /// The signature line, if there is one. Not verified.
    pub signature: Option<SignatureClaim>,
    /// Items with the same kind and id in later spaces, in lookup order.
    pub shadows: Vec<Location>,
    /// The item with the same kind and id that is used instead of this one.
    pub shadowed_by: Option<Location>,
    /// Other files in the same root with the same id. The id is ambiguous, so none can
    /// be used.
    pub duplicates: Vec<PathBuf>,
    /// Relevance; comparable only within one result list.
    pub score: f32,
    /// Why the metadata could not be parsed.
    pub problem: Option<String>,
}

/// The location of an item's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The space that contains the file.
    pub space: Space,
    /// The bundle, if the file is in the system space.
    pub bundle: Option<String>,
    /// The path; `embedded:NAME/…` for a file inside the binary.
    pub path: PathBuf,
}

impl Location {
    pub(super) fn new(root: &Root, relative: &str) -> Self {
        Self {
            space: root.space(),
            bundle: root.bundle().map(str::to_owned),
            path: root.path_to(relative),
        }
    }
}

/// A file or directory that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanError {
    /// The cause, including the path.
    pub message: String,
    /// A suggested fix.
    pub hint: Option<String>,
}

impl From<&SpaceError> for ScanError {
    fn from(error: &SpaceError) -> Self {
        Self {
            message: error.to_string(),
            hint: error.hint(),
        }
    }
}

/// Converts an index record to a hit. Returns `None` if the record is malformed.
pub(super) fn hit(root: &Root, record: &Record, score: f32) -> Option<Hit> {
    let display = record.display()?;
    let filled = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let claim = |(line, intact): (String, bool)| {
        let line = line.parse().ok()?;
        Some(SignatureClaim { line, intact })
    };
    Some(Hit {
        reference: ItemRef::new(record.kind, record.id.parse().ok()?),
        location: Location::new(root, &record.path),
        title: display.title,
        description: display.description,
        tags: display.tags,
        parameters: display.parameters,
        category: filled(&record.category),
        risk: filled(&record.risk),
        version: display.version,
        signature: display.signature.and_then(claim),
        shadows: Vec::new(),
        shadowed_by: None,
        duplicates: Vec::new(),
        score,
        problem: display.problem,
    })
}
