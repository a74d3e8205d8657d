//! Errors of the database, and their translation to store errors.

use std::fmt;
use std::time::Duration;

use rye_engine::store::StoreError;
use rye_protocol::SessionId;
use tokio_postgres::error::{DbError as ServerError, SqlState};

use crate::invariants::{self, ENTRY, GATE, PROMPT, SESSION, THREAD};

/// Why a database operation failed.
#[derive(Debug)]
pub(super) enum DbError {
    /// The operation violates a rule of the store.
    Store(StoreError),
    /// An entry with this id exists and may differ from the one to append.
    EntryExists(String),
    /// No connection could be made, so nothing was sent.
    NoConnection(String),
    /// The connection broke, so the outcome is unknown.
    Broken(String),
    /// The server refused the statement.
    Refused(Box<ServerError>),
    /// A row does not have the expected form.
    Unreadable(String),
}

pub(super) type DbResult<T> = Result<T, DbError>;

impl From<StoreError> for DbError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<tokio_postgres::Error> for DbError {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(refused) = error.as_db_error() else {
            let text = chain(&error);
            return if error.is_closed() || is_io(&error) {
                Self::Broken(text)
            } else {
                Self::Unreadable(text)
            };
        };
        let kind = refused.table().unwrap_or_default();
        let id = refused.detail().unwrap_or_default().to_owned();
        let kind = [SESSION, THREAD, ENTRY, PROMPT, GATE]
            .into_iter()
            .find(|known| *known == kind)
            .unwrap_or("object");
        match refused.code().code() {
            "RY001" => match id.parse::<SessionId>() {
                Ok(session) => StoreError::Fenced(session).into(),
                Err(error) => Self::Unreadable(error.to_string()),
            },
            "RY002" => invariants::not_found(kind, &id).into(),
            "RY003" => invariants::conflict(kind, &id).into(),
            "RY004" => StoreError::GateClosed(id.into()).into(),
            "RY005" => Self::EntryExists(id),
            // The server ends this connection.
            _ if is_connection_lost(refused.code()) => Self::Broken(refused.to_string()),
            _ => Self::Refused(Box::new(refused.clone())),
        }
    }
}

/// Whether the server has ended the connection or is about to.
fn is_connection_lost(code: &SqlState) -> bool {
    code.code().starts_with("08")
        || *code == SqlState::ADMIN_SHUTDOWN
        || *code == SqlState::CRASH_SHUTDOWN
        || *code == SqlState::CANNOT_CONNECT_NOW
        || *code == SqlState::READ_ONLY_SQL_TRANSACTION
}

/// Whether an input or output error caused this one.
fn is_io(error: &dyn std::error::Error) -> bool {
    let mut next = error.source();
    while let Some(cause) = next {
        if cause.is::<std::io::Error>() {
            return true;
        }
        next = cause.source();
    }
    false
}

/// The message of an error and its causes.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

impl DbError {
    pub(super) fn timeout(limit: Duration) -> Self {
        Self::Broken(format!("no answer within {} s", limit.as_secs()))
    }

    /// Whether the operation may or may not have been applied.
    pub(super) fn is_unknown(&self) -> bool {
        matches!(self, Self::Broken(_))
    }

    /// The error for users of the store. `database` names it.
    pub(super) fn explain(self, database: &dyn fmt::Display) -> StoreError {
        match self {
            Self::Store(error) => error,
            Self::EntryExists(id) => invariants::conflict(ENTRY, &id),
            Self::NoConnection(reason) | Self::Broken(reason) => {
                StoreError::Unavailable(format!("{database}: {reason}"))
            }
            Self::Unreadable(reason) => StoreError::Unreadable(format!("{database}: {reason}")),
            Self::Refused(error) => explain_refusal(&error, database),
        }
    }
}

fn explain_refusal(error: &ServerError, database: &dyn fmt::Display) -> StoreError {
    let code = error.code();
    if *code == SqlState::CHARACTER_NOT_IN_REPERTOIRE {
        let reason = "a text contains a NUL character, which PostgreSQL cannot store";
        return StoreError::Unreadable(format!("{database}: {reason}"));
    }
    let reason = format!("{database}: {}", error.message());
    match code.code().get(..2) {
        // A table or function is missing, or the user may not use it; or data is corrupted.
        Some("42" | "3F" | "XX") => StoreError::Damaged(reason),
        _ => StoreError::Unavailable(reason),
    }
}

impl fmt::Display for DbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::EntryExists(id) => write!(f, "entry {id} exists"),
            Self::NoConnection(reason) | Self::Broken(reason) | Self::Unreadable(reason) => {
                f.write_str(reason)
            }
            Self::Refused(error) => f.write_str(error.message()),
        }
    }
}
