//! Why the record of a run cannot be used.

use lillux::durable::WriteError;
use rye_engine::store::StoreError;
use rye_protocol::short_id;

/// Why the record of a run cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The run does not exist.
    #[error("run {0} not found")]
    NotFound(String),
    /// The session store cannot be used.
    #[error(transparent)]
    Store(StoreError),
    /// Another process runs it.
    #[error("run {0} is in use by another process")]
    InUse(String),
    /// The cache of results cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The cache of results cannot be used.
    #[error(transparent)]
    Cache(#[from] lillux::cas::CasError),
    /// The record was modified.
    #[error("the record of run {run} was modified: {why}")]
    Altered {
        /// Id of the run.
        run: String,
        /// Explanation for the user.
        why: String,
    },
    /// The record is not signed, so modifications cannot be detected.
    #[error("the record of run {0} is not signed and cannot be resumed")]
    Unsigned(String),
    /// The record is signed with a key that is not trusted.
    #[error("the record of run {run} is not trusted: {why}")]
    UntrustedKey {
        /// Id of the run.
        run: String,
        /// Explanation for the user.
        why: String,
    },
    /// The record is signed, but there is no key to sign further steps.
    #[error("the record of run {0} is signed, but you have no signing key to continue it")]
    NoKey(String),
}

impl From<StoreError> for RecordError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::InUse { session, .. } => Self::InUse(session.to_string()),
            other => Self::Store(other),
        }
    }
}

impl RecordError {
    /// Stable error code for scripts.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "run_not_found",
            Self::InUse(_) => "run_in_use",
            Self::Altered { .. } => "record_altered",
            Self::Unsigned(_) => "record_unsigned",
            Self::UntrustedKey { .. } => "record_untrusted",
            Self::NoKey(_) => "no_key",
            Self::Store(StoreError::Fenced(_)) => "fenced",
            Self::Store(_) => "store",
            Self::Write(_) | Self::Cache(_) => "io",
        }
    }

    /// Advice on how to fix the error.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotFound(_) => Some("rye run list".to_owned()),
            Self::InUse(run) => Some(format!("rye run tail {} --follow", short_id(run))),
            Self::Altered { run, .. } => Some(format!("rye session verify {}", short_id(run))),
            Self::Unsigned(run) => Some(format!(
                "start a new run with rye graph run GRAPH; rye run rm {} removes this one",
                short_id(run)
            )),
            Self::UntrustedKey { .. } => Some(
                "ask its owner for the key (`rye keys show`), then: rye keys trust FILE".to_owned(),
            ),
            Self::NoKey(_) => Some("rye init".to_owned()),
            Self::Store(_) | Self::Write(_) | Self::Cache(_) => None,
        }
    }

    /// Whether the store or disk failed, so that the run can be resumed later.
    pub(crate) fn is_io(&self) -> bool {
        matches!(self, Self::Store(_) | Self::Write(_) | Self::Cache(_))
    }
}
