//! What is answered.

use std::path::PathBuf;

use crate::id::ItemRef;
use crate::space::{Root, Space, SpaceError};

use super::document::Claim;
use super::segment::Record;

/// The answer to a query.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    /// The best hits, best first.
    pub hits: Vec<Hit>,
    /// How many items fit, shown or not.
    pub total: usize,
    /// How many files were searched, shadowed ones among them.
    pub searched: usize,
    /// Files and folders that could not be looked at, and so were not searched.
    pub unread: Vec<Unread>,
}

/// An item that fits a query.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// What it is called.
    pub reference: ItemRef,
    /// Where it is.
    pub place: Place,
    /// Its heading, where it has one.
    pub title: String,
    /// What it is for.
    pub description: String,
    /// Words that somebody chose for it.
    pub tags: Vec<String>,
    /// The names of what it takes.
    pub parameters: Vec<String>,
    /// Where it belongs, as the file says.
    pub category: Option<String>,
    /// Its risk, as the file says.
    pub risk: Option<String>,
    /// Its version, as the file says.
    pub version: Option<String>,
    /// Who says to have signed it.
    pub signature: Option<Claim>,
    /// The items of the same name that this one hides, nearest first.
    pub shadows: Vec<Place>,
    /// The item of the same name that is used in place of this one.
    pub shadowed_by: Option<Place>,
    /// Other files of the same id beside this one: none of them can be used.
    pub twins: Vec<PathBuf>,
    /// How well it fits; only to be compared within one answer.
    pub score: f32,
    /// Why the file could not be understood.
    pub problem: Option<String>,
}

/// Where an item is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The space.
    pub space: Space,
    /// The bundle, in the system space.
    pub bundle: Option<String>,
    /// The file; `embedded:NAME/…` for one inside the binary.
    pub path: PathBuf,
}

impl Place {
    pub(super) fn of(root: &Root, relative: &str) -> Self {
        Self {
            space: root.space(),
            bundle: root.bundle().map(str::to_owned),
            path: root.path_of(relative),
        }
    }
}

/// Something that could not be looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread {
    /// What is wrong, with the path.
    pub message: String,
    /// What to do about it, where that is one thing.
    pub hint: Option<String>,
}

impl From<&SpaceError> for Unread {
    fn from(error: &SpaceError) -> Self {
        Self {
            message: error.to_string(),
            hint: error.hint(),
        }
    }
}

/// The hit that a record of the index becomes. None where the record names no
/// item, which no record that was written does.
pub(super) fn hit(root: &Root, record: &Record<'_>, score: f32) -> Option<Hit> {
    let rest = record.rest()?;
    Some(Hit {
        reference: ItemRef::new(record.kind, record.id.parse().ok()?),
        place: Place::of(root, record.path),
        title: rest.title.to_owned(),
        description: rest.description.to_owned(),
        tags: rest.tags,
        parameters: rest.parameters,
        category: filled(record.category),
        risk: filled(record.risk),
        version: filled(rest.version),
        signature: match rest.signature {
            "" => None,
            line => Some(Claim {
                line: line.parse().ok()?,
                intact: record.intact,
            }),
        },
        shadows: Vec::new(),
        shadowed_by: None,
        twins: Vec::new(),
        score,
        problem: filled(rest.problem),
    })
}

fn filled(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}
