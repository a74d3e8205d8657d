//! What SQLite says, in the store's words.

use std::path::Path;

use rusqlite::{Connection, Error, ErrorCode, OpenFlags};
use rye_engine::store::StoreError;

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
        let error = match self {
            Self::Store(error) => return error,
            Self::Sql(error) => error,
        };
        let place = path.display();
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => {
                StoreError::Unreadable(format!("{place} is no database: {error}"))
            }
            Some(ErrorCode::DatabaseCorrupt) => {
                let findings = findings(path);
                StoreError::Unreadable(format!(
                    "{place} is damaged: {error}. {findings} Nothing was changed. Keep a copy \
                     with the files beside it, then try `sqlite3 {place} .recover`"
                ))
            }
            // What it was asked makes no sense to it: another has changed the tables.
            Some(ErrorCode::Unknown) | None => StoreError::Unreadable(format!("{place}: {error}")),
            Some(_) => StoreError::Unavailable(format!("{place}: {error}")),
        }
    }
}

fn is_damage(error: &Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(
        code,
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
    )
}

/// What is wrong with a file, as far as SQLite can tell. Only read.
fn findings(path: &Path) -> String {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let look = || -> rusqlite::Result<Vec<String>> {
        let db = Connection::open_with_flags(path, flags)?;
        let mut check = db.prepare("PRAGMA quick_check(3)")?;
        let lines = check.query_map([], |row| row.get(0))?;
        lines.collect()
    };
    match look() {
        Ok(lines) if lines == ["ok"] => "A check found nothing, so try again first.".to_owned(),
        Ok(lines) => format!("A check found: {}.", lines.join("; ").replace('\n', " ")),
        Err(error) => format!("It cannot even be checked: {error}."),
    }
}
