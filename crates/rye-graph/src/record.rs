//! Durable records of runs: one directory per run below `.ai/state/graphs/`.
//!
//! ```text
//! events.jsonl     journal; each line contains a hash over all lines before it
//! process          handle of the process that executes the run
//! snapshot         hash of the latest snapshot, which is in ../store
//! gates/N.json     gates, with resolutions in N.answer.json
//! ```
//!
//! Each event is written before it takes effect, and flushed to disk before any call that must
//! not be repeated. So a killed process loses nothing, and a power failure can only lose steps
//! that may be repeated.

mod journal;
mod replay;
mod runs;
mod trust;
mod verify;

pub(crate) use journal::Journal;
pub use journal::disk_syncs;
pub(crate) use replay::{HookState, ItemState, Position, Replay};
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

/// Purpose of the signatures in a journal.
const JOURNAL: Purpose = Purpose::new("graph-journal");

/// A journal line in its file format.
#[derive(Serialize, Deserialize)]
struct StoredLine<'l> {
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

/// Hash of a line; `previous` is the hash of the line before, empty for the first.
fn line_hash(previous: &str, seq: u64, at: i64, event: &str) -> Hash {
    let mut hasher = Hasher::default();
    hasher.update(format!("rye graph event 1\n{previous}\n{seq}\n{at}\n").as_bytes());
    hasher.update(event.as_bytes());
    hasher.finish().0
}

/// Why the record of a run cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The run does not exist.
    #[error("run {0} not found")]
    NotFound(String),
    /// Several runs match the prefix.
    #[error("run id {0} is ambiguous: {1} runs match")]
    Ambiguous(String, usize),
    /// Another process runs it.
    #[error("run {0} is in use by another process")]
    InUse(String),
    /// A file cannot be read or written.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A symbolic link leads out of the project.
    #[error(transparent)]
    Symlink(CreateDirError),
    /// A file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The content store cannot be used.
    #[error(transparent)]
    Store(#[from] lillux::cas::CasError),
    /// The record was modified.
    #[error("the record of run {run} was modified: {}{why}", line_prefix(*line))]
    Altered {
        /// Id of the run.
        run: String,
        /// Line number from 1; 0 for the whole record.
        line: usize,
        /// Explanation for the user.
        why: String,
    },
    /// The record is not signed, so modifications cannot be detected.
    #[error("the record of run {0} is not signed and cannot be resumed")]
    Unsigned(String),
    /// The record is signed with a key that is not trusted.
    #[error("the record of run {run} is not trusted: line {line}: {why}")]
    UntrustedKey {
        /// Id of the run.
        run: String,
        /// Line number from 1.
        line: usize,
        /// Explanation for the user.
        why: String,
    },
    /// The record is signed, but there is no key to sign further lines.
    #[error("the record of run {0} is signed, but you have no signing key to continue it")]
    NoKey(String),
}

impl From<CreateDirError> for RecordError {
    fn from(error: CreateDirError) -> Self {
        match error {
            CreateDirError::Path(error) => Self::Path(error),
            link @ CreateDirError::LinkLeavesRoot { .. } => Self::Symlink(link),
        }
    }
}

fn line_prefix(line: usize) -> String {
    match line {
        0 => String::new(),
        line => format!("line {line}: "),
    }
}

impl RecordError {
    /// Stable error code for scripts.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "run_not_found",
            Self::Ambiguous(..) => "ambiguous",
            Self::InUse(_) => "run_in_use",
            Self::Altered { .. } => "record_altered",
            Self::Unsigned(_) => "record_unsigned",
            Self::UntrustedKey { .. } => "record_untrusted",
            Self::NoKey(_) => "no_key",
            Self::Symlink(_) => "leaves_project",
            Self::Path(_) | Self::Write(_) | Self::Store(_) => match self.path() {
                Some(error) if error.is_permission() => "permission",
                Some(error) if error.source.kind() == ErrorKind::StorageFull => "disk_full",
                _ => "io",
            },
        }
    }

    /// The file that caused the error.
    fn path(&self) -> Option<&PathError> {
        match self {
            Self::Path(error) | Self::Write(WriteError::Path(error)) => Some(error),
            _ => None,
        }
    }

    /// Advice on how to fix the error.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotFound(_) | Self::Ambiguous(..) => Some("rye run list".to_owned()),
            Self::Symlink(error) => error.hint(),
            Self::InUse(run) => Some(format!("rye run tail {} --follow", short_id(run))),
            Self::Altered { run, .. } => Some(format!("rye run verify {}", short_id(run))),
            Self::Unsigned(run) => Some(format!(
                "start a new run with rye graph run GRAPH; rye run rm {} removes this one",
                short_id(run)
            )),
            Self::UntrustedKey { .. } => Some(
                "ask its owner for the key (`rye keys show`), then: rye keys trust FILE".to_owned(),
            ),
            Self::NoKey(_) => Some("rye init".to_owned()),
            _ => None,
        }
    }

    /// Whether an I/O error stopped the run, so that it can be resumed later.
    pub(crate) fn is_io(&self) -> bool {
        matches!(self.code(), "permission" | "disk_full" | "io")
    }
}
