//! Errors of database operations, and their translation to store errors.

use std::path::Path;

use rusqlite::{Error, ErrorCode};
use rye_engine::store::StoreError;

use super::{integrity, writer_queue};

/// Why a database operation failed.
#[derive(Debug)]
pub(super) enum DbError {
    /// The operation violates a rule of the store.
    Store(StoreError),
    /// SQLite reported an error.
    Sql(Error),
}

pub(super) type DbResult<T> = Result<T, DbError>;

impl From<StoreError> for DbError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<Error> for DbError {
    fn from(error: Error) -> Self {
        Self::Sql(error)
    }
}

impl DbError {
    /// Whether the file is damaged.
    pub(super) fn is_damage(&self) -> bool {
        matches!(self, Self::Sql(error) if is_damage(error))
    }

    /// The error for users of the store.
    pub(super) fn explain(self, path: &Path) -> StoreError {
        if self.is_damage() {
            return self.explain_damage(path, false);
        }
        let error = match self {
            Self::Store(error) => return error,
            Self::Sql(error) => error,
        };
        let file = path.display();
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::FileLockingProtocolFailed) => {
                writer_queue::stalled_error(path)
            }
            // SQLite rejects a statement if another program has changed the tables.
            Some(ErrorCode::Unknown) | None => StoreError::Damaged(format!("{file}: {error}")),
            Some(_) => StoreError::Unavailable(format!("{file}: {error}")),
        }
    }

    /// The error for a damaged file. `written` says whether this process has already written to
    /// the file.
    pub(super) fn explain_damage(self, path: &Path, written: bool) -> StoreError {
        let error = match self {
            Self::Store(error) => return error,
            Self::Sql(error) => error,
        };
        let file = path.display();
        if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) {
            return StoreError::Damaged(format!("{file} is not a database: {error}"));
        }
        let changed = if written {
            "Rye no longer writes to it."
        } else {
            "Nothing was changed."
        };
        let findings = integrity::describe_damage(path);
        StoreError::Damaged(format!(
            "{file} is damaged: {error}. {findings} {changed} Copy the file and the ones \
             next to it, then try `sqlite3 {file} .recover`"
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
