//! Documents in the session database.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use rusqlite::{OptionalExtension as _, Row, params};
use rye_engine::documents::{Document, DocumentKind, DocumentQuery, DocumentStore, DocumentWrite};
use rye_engine::store::{StoreError, StoreFuture};
use rye_protocol::Millis;
use serde_json::Value;
use tokio::task::{JoinError, spawn_blocking};

use crate::sqlite::Connection;

/// The documents in a session database. Several processes can open them.
#[derive(Clone)]
pub struct SqliteDocuments {
    db: Arc<Mutex<Connection>>,
}

impl fmt::Debug for SqliteDocuments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteDocuments").finish_non_exhaustive()
    }
}

impl SqliteDocuments {
    /// Opens the documents in a session database.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let db = Arc::new(Mutex::new(Connection::open(path)?));
        Ok(Self { db })
    }

    /// Runs disk I/O on a blocking thread.
    fn run<'a, T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> StoreFuture<'a, T> {
        let db = Arc::clone(&self.db);
        Box::pin(async move {
            let failed = |error: JoinError| StoreError::Unavailable(error.to_string());
            spawn_blocking(move || work(&db.lock()))
                .await
                .map_err(failed)?
        })
    }
}

/// The columns of a document besides its kind.
struct Columns {
    id: String,
    version: i64,
    due_at: Option<i64>,
    doc: String,
}

/// Selects [`Columns`].
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT id, version, due_at, doc FROM engine_documents WHERE ",
            $rest
        )
    };
}

impl Columns {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get(0)?,
            version: row.get(1)?,
            due_at: row.get(2)?,
            doc: row.get(3)?,
        })
    }

    fn decode(self, kind: DocumentKind) -> Result<Document, StoreError> {
        let body: Value = serde_json::from_str(&self.doc).map_err(|error| {
            let (kind, id) = (kind.as_str(), &self.id);
            StoreError::Unreadable(format!("{kind} {id}: {error}"))
        })?;
        Ok(Document {
            kind,
            id: self.id,
            version: self.version.cast_unsigned(),
            due_at: self.due_at.map(|due| Millis(due.cast_unsigned())),
            body,
        })
    }
}

fn decode_all(kind: DocumentKind, rows: Vec<Columns>) -> Result<Vec<Document>, StoreError> {
    rows.into_iter().map(|row| row.decode(kind)).collect()
}

fn as_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

fn as_time(time: Millis) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}

fn list(db: &rusqlite::Connection, query: &DocumentQuery) -> rusqlite::Result<Vec<Columns>> {
    // No text that starts with the prefix is higher.
    let end = format!("{}{}", query.prefix, char::MAX);
    let text = if query.descending {
        select!("kind = ?1 AND id >= ?2 AND id < ?3 AND id < ?4 ORDER BY id DESC LIMIT ?5")
    } else {
        select!("kind = ?1 AND id >= ?2 AND id < ?3 AND id > ?4 ORDER BY id LIMIT ?5")
    };
    let after = match &query.after {
        Some(after) => after.clone(),
        None if query.descending => end.clone(),
        // No id is empty.
        None => String::new(),
    };
    let limit = as_limit(query.limit);
    let values = params![query.kind.as_str(), query.prefix, end, after, limit];
    db.prepare_cached(text)?
        .query_map(values, Columns::read)?
        .collect()
}

/// Performs the writes. Returns false if a document does not have the expected version.
fn write(
    db: &rusqlite::Connection,
    writes: &[(DocumentWrite, Option<String>)],
) -> rusqlite::Result<bool> {
    for (write, _) in writes {
        let (kind, id) = (write.kind.as_str(), &write.id);
        let changed = match write.expected {
            // The transaction is rolled back if the next statement finds a document.
            None => true,
            Some(version) => {
                let text =
                    "DELETE FROM engine_documents WHERE kind = ?1 AND id = ?2 AND version = ?3";
                let values = params![kind, id, version.cast_signed()];
                db.prepare_cached(text)?.execute(values)? == 1
            }
        };
        if !changed {
            return Ok(false);
        }
    }
    for (write, doc) in writes {
        let (kind, id) = (write.kind.as_str(), &write.id);
        let Some((due_at, _)) = &write.content else {
            continue;
        };
        let text = "INSERT INTO engine_documents (kind, id, due_at, doc) VALUES (?1, ?2, ?3, ?4)
            ON CONFLICT (kind, id) DO NOTHING";
        let values = params![kind, id, due_at.map(as_time), doc];
        if db.prepare_cached(text)?.execute(values)? == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

impl DocumentStore for SqliteDocuments {
    fn get<'a>(&'a self, kind: DocumentKind, id: &'a str) -> StoreFuture<'a, Option<Document>> {
        let id = id.to_owned();
        self.run(move |db| {
            let row = db.read(|db| {
                let mut find = db.prepare_cached(select!("kind = ?1 AND id = ?2"))?;
                find.query_row([kind.as_str(), &id], Columns::read)
                    .optional()
            })?;
            row.map(|row| row.decode(kind)).transpose()
        })
    }

    fn list(&self, query: DocumentQuery) -> StoreFuture<'_, Vec<Document>> {
        self.run(move |db| decode_all(query.kind, db.read(|db| list(db, &query))?))
    }

    fn due(&self, kind: DocumentKind, now: Millis, limit: usize) -> StoreFuture<'_, Vec<Document>> {
        self.run(move |db| {
            let rows = db.read(|db| {
                let text = select!("kind = ?1 AND due_at <= ?2 ORDER BY due_at, version LIMIT ?3");
                let values = params![kind.as_str(), as_time(now), as_limit(limit)];
                db.prepare_cached(text)?
                    .query_map(values, Columns::read)?
                    .collect()
            })?;
            decode_all(kind, rows)
        })
    }

    fn write(&self, writes: Vec<DocumentWrite>) -> StoreFuture<'_, bool> {
        let encode = |write: DocumentWrite| {
            let doc = write.content.as_ref().map(|(_, body)| body.to_string());
            (write, doc)
        };
        let writes: Vec<_> = writes.into_iter().map(encode).collect();
        self.run(move |db| {
            db.write(|db| {
                let transaction = db.unchecked_transaction()?;
                let is_done = write(&transaction, &writes)?;
                if is_done {
                    transaction.commit()?;
                }
                Ok(is_done)
            })
        })
    }
}
