//! RunStore, written down: a folder for each below `.ai/state/graphs/`, which outlives all
//! processes.
//!
//! ```text
//! events.jsonl     what happened, line by line, each with the hash of all before it
//! process          who walks it
//! snapshot         the hash of the newest snapshot, which is in ../store
//! gates/N.json     questions to people, and N.answer.json their answers
//! ```
//!
//! A line is written before what it tells of is acted on, and flushed to the disk before
//! anything that must not happen twice. So whoever is killed loses nothing, and what a
//! power cut can lose is only what may be repeated.

mod journal;
mod replay;
mod runs;
mod trust;
mod verify;

pub(crate) use journal::Journal;
pub use journal::disk_syncs;
pub(crate) use replay::{At, HookState, ItemState, Replayed};
pub use runs::{RunHandle, RunRecord, RunState, RunStore};
pub(crate) use trust::SingleKey;
pub use trust::TrustPolicy;
pub use verify::{Finding, FindingKind, VerifyReport};

use std::io::ErrorKind;

use lillux::durable::{CreateDirError, WriteError};
use lillux::keys::Purpose;
use lillux::{Hash, PathError, hash::Hasher};
use rye_protocol::short_id;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The purpose of the signatures in a run's journal.
const JOURNAL: Purpose = Purpose::new("graph-journal");

/// A line as it is in the file.
#[derive(Serialize, Deserialize)]
struct Written<'l> {
    seq: u64,
    at: i64,
    #[serde(borrow)]
    event: &'l RawValue,
    hash: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signature: Option<String>,
}

/// The hash of a line that follows one with another hash; none for the first.
fn line_hash(before: &str, seq: u64, at: i64, event: &str) -> Hash {
    let mut hasher = Hasher::default();
    hasher.update(format!("rye graph event 1\n{before}\n{seq}\n{at}\n").as_bytes());
    hasher.update(event.as_bytes());
    hasher.finish().0
}

/// Why a record cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// There is no such run.
    #[error("there is no run {0}")]
    NotFound(String),
    /// More than one begins so.
    #[error("{1} runs have ids that begin with {0}")]
    Ambiguous(String, usize),
    /// Another process is at it.
    #[error("the run {0} is being walked by another process")]
    InUse(String),
    /// A file cannot be used.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A link leads to another folder than that of the runs.
    #[error(transparent)]
    Link(CreateDirError),
    /// A file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The content store cannot be used.
    #[error(transparent)]
    Store(#[from] lillux::cas::CasError),
    /// It is not what was written.
    #[error("the record of the run {run} is not as it was written: {}{why}", place(*line))]
    Altered {
        /// Which run.
        run: String,
        /// Which line; 0 is all of it.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// Nobody can tell whether it is what was written.
    #[error(
        "nobody signed the record of the run {0}, so whether it is as it was cannot be told, and nothing goes on with it"
    )]
    Unsigned(String),
    /// Those who wrote it are not trusted.
    #[error("the record of the run {run} does not count: line {line}: {why}")]
    UntrustedKey {
        /// Which run.
        run: String,
        /// Which line.
        line: usize,
        /// Whose it is.
        why: String,
    },
    /// It is signed, and what would follow would not be.
    #[error("the record of the run {0} is signed, and there is no key here to go on with it")]
    NoKey(String),
}

impl From<CreateDirError> for RecordError {
    fn from(error: CreateDirError) -> Self {
        match error {
            CreateDirError::Path(error) => Self::Path(error),
            link @ CreateDirError::LinkLeavesRoot { .. } => Self::Link(link),
        }
    }
}

fn place(line: usize) -> String {
    match line {
        0 => String::new(),
        line => format!("line {line}: "),
    }
}

impl RecordError {
    /// A stable word for scripts.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "run_not_found",
            Self::Ambiguous(..) => "ambiguous",
            Self::InUse(_) => "run_in_use",
            Self::Altered { .. } => "record_altered",
            Self::Unsigned(_) => "record_unsigned",
            Self::UntrustedKey { .. } => "record_untrusted",
            Self::NoKey(_) => "no_key",
            Self::Link(_) => "leaves_project",
            Self::Path(_) | Self::Write(_) | Self::Store(_) => match self.path() {
                Some(error) if error.is_permission() => "permission",
                Some(error) if error.source.kind() == ErrorKind::StorageFull => "disk_full",
                _ => "io",
            },
        }
    }

    /// The file that could not be used.
    fn path(&self) -> Option<&PathError> {
        match self {
            Self::Path(error) | Self::Write(WriteError::Path(error)) => Some(error),
            _ => None,
        }
    }

    /// The next command, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotFound(_) | Self::Ambiguous(..) => Some("rye run list".to_owned()),
            Self::Link(error) => error.hint(),
            Self::InUse(run) => Some(format!("rye run tail {} --follow", short_id(run))),
            Self::Altered { run, .. } => Some(format!("rye run verify {}", short_id(run))),
            Self::Unsigned(run) => Some(format!(
                "start a new run with rye graph run GRAPH; rye run rm {} removes this one",
                short_id(run)
            )),
            Self::UntrustedKey { .. } => Some(
                "its owner shows the key with `rye keys show`; then: rye keys trust FILE"
                    .to_owned(),
            ),
            Self::NoKey(_) => Some("rye init".to_owned()),
            _ => None,
        }
    }

    /// Whether the disk was in the way, and the same would go on once it is not.
    pub(crate) fn is_of_the_disk(&self) -> bool {
        matches!(self.code(), "permission" | "disk_full" | "io")
    }
}
