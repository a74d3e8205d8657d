//! What SQLite says, in the store's words.

use std::path::Path;

use rusqlite::{Error, ErrorCode};
use rye_engine::store::StoreError;

use super::{damage, queue};

/// Why a piece of work on the database ended.
#[derive(Debug)]
pub(super) enum Failure {
    /// As the work decided.
    Store(StoreError),
    /// As SQLite did.
    Sql(Error),
}

pub(super) type Outcome<T> = Result<T, Failure>;

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Sql(error)
    }
}

impl Failure {
    /// Whether the file itself is at fault.
    pub(super) fn is_damage(&self) -> bool {
        matches!(self, Self::Sql(error) if is_damage(error))
    }

    /// For those who use the store of this file.
    pub(super) fn explain(self, path: &Path) -> StoreError {
        if self.is_damage() {
            return self.explain_damage(path, false);
        }
        let error = match self {
            Self::Store(error) => return error,
            Self::Sql(error) => error,
        };
        let place = path.display();
        match error.sqlite_error_code() {
            // What it was asked makes no sense to it: another has changed the tables.
            Some(ErrorCode::DatabaseBusy | ErrorCode::FileLockingProtocolFailed) => {
                queue::locked(path)
            }
            Some(ErrorCode::Unknown) | None => StoreError::Unreadable(format!("{place}: {error}")),
            Some(_) => StoreError::Unavailable(format!("{place}: {error}")),
        }
    }

    /// The same of a file that is at fault, to which something was or was not written before
    /// that was found.
    pub(super) fn explain_damage(self, path: &Path, written: bool) -> StoreError {
        let error = match self {
            Self::Store(error) => return error,
            Self::Sql(error) => error,
        };
        let place = path.display();
        if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) {
            return StoreError::Unreadable(format!("{place} is no database: {error}"));
        }
        let changed = if written {
            "Nothing more is written to it."
        } else {
            "Nothing was changed."
        };
        let findings = damage::findings(path);
        StoreError::Unreadable(format!(
            "{place} is damaged: {error}. {findings} {changed} Keep a copy with the files beside \
             it, then try `sqlite3 {place} .recover`"
        ))
    }
}

fn is_damage(error: &Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(
        code,
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
    )
}
