//! Documents in the PostgreSQL database.

use std::fmt;

use rye_engine::documents::{Document, DocumentKind, DocumentQuery, DocumentStore, DocumentWrite};
use rye_engine::store::{StoreError, StoreFuture};
use rye_protocol::Millis;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::db::Db;
use super::error::{DbError, DbResult};
use super::tasks::Tasks;

/// The documents in a PostgreSQL database. Usable as long as the store that it comes from.
#[derive(Clone)]
pub struct PostgresDocuments(pub(super) Tasks);

impl fmt::Debug for PostgresDocuments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresDocuments").finish_non_exhaustive()
    }
}

/// Decodes the columns id, version, due time and document.
fn decode(kind: DocumentKind, row: &Row) -> DbResult<Document> {
    let (id, version): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
    let due_at: Option<i64> = row.try_get(2)?;
    let body = serde_json::from_str(row.try_get(3)?).map_err(|error| {
        DbError::Store(StoreError::Unreadable(format!(
            "{} {id}: {error}",
            kind.as_str()
        )))
    })?;
    Ok(Document {
        kind,
        id,
        version: version.cast_unsigned(),
        due_at: due_at.map(|due| Millis(due.cast_unsigned())),
        body,
    })
}

fn as_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

fn as_time(time: Millis) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}

async fn list(db: &Db, query: &DocumentQuery) -> DbResult<Vec<Document>> {
    let sql = if query.descending {
        "SELECT id, version, due_at, doc FROM rye.documents
         WHERE kind = $1 AND starts_with(id, $2) AND ($3::text IS NULL OR id < $3)
         ORDER BY id DESC LIMIT $4"
    } else {
        "SELECT id, version, due_at, doc FROM rye.documents
         WHERE kind = $1 AND starts_with(id, $2) AND id >= $2 AND ($3::text IS NULL OR id > $3)
         ORDER BY id LIMIT $4"
    };
    let (kind, limit) = (query.kind.as_str(), as_limit(query.limit));
    let params: [&(dyn ToSql + Sync); 4] = [&kind, &query.prefix, &query.after, &limit];
    let rows = db.query(sql, &params).await?;
    rows.iter().map(|row| decode(query.kind, row)).collect()
}

/// Performs the writes in one transaction. Returns false if a document does not have the expected
/// version.
async fn write(db: &Db, writes: Vec<DocumentWrite>) -> DbResult<bool> {
    let (mut kinds, mut ids) = (Vec::new(), Vec::new());
    let (mut expected, mut due_times, mut docs) = (Vec::new(), Vec::new(), Vec::new());
    for write in writes {
        kinds.push(write.kind.as_str());
        ids.push(write.id);
        expected.push(write.expected.map(u64::cast_signed));
        let (due_at, doc) = match write.content {
            Some((due_at, body)) => (due_at.map(as_time), Some(body.to_string())),
            None => (None, None),
        };
        due_times.push(due_at);
        docs.push(doc);
    }
    let params: [&(dyn ToSql + Sync); 5] = [&kinds, &ids, &expected, &due_times, &docs];
    // Once: a repetition after a lost answer would find other versions.
    let rows = db
        .query_once("SELECT rye.write_documents($1, $2, $3, $4, $5)", &params)
        .await;
    match rows {
        Ok(rows) => match rows.first() {
            Some(row) => Ok(row.try_get(0)?),
            None => Ok(false),
        },
        Err(DbError::Store(StoreError::Conflict { .. })) => Ok(false),
        Err(error) => Err(error),
    }
}

impl DocumentStore for PostgresDocuments {
    fn get<'a>(&'a self, kind: DocumentKind, id: &'a str) -> StoreFuture<'a, Option<Document>> {
        let (db, id) = (self.0.db(), id.to_owned());
        self.0.run(async move {
            let sql = "SELECT id, version, due_at, doc FROM rye.documents
                       WHERE kind = $1 AND id = $2";
            let row = db.query_opt(sql, &[&kind.as_str(), &id]).await?;
            row.map(|row| decode(kind, &row)).transpose()
        })
    }

    fn list(&self, query: DocumentQuery) -> StoreFuture<'_, Vec<Document>> {
        let db = self.0.db();
        self.0.run(async move { list(&db, &query).await })
    }

    fn due(&self, kind: DocumentKind, now: Millis, limit: usize) -> StoreFuture<'_, Vec<Document>> {
        let db = self.0.db();
        self.0.run(async move {
            let sql = "SELECT id, version, due_at, doc FROM rye.documents
                       WHERE kind = $1 AND due_at <= $2 ORDER BY due_at, version LIMIT $3";
            let params: [&(dyn ToSql + Sync); 3] =
                [&kind.as_str(), &as_time(now), &as_limit(limit)];
            let rows = db.query(sql, &params).await?;
            rows.iter().map(|row| decode(kind, row)).collect()
        })
    }

    fn write(&self, writes: Vec<DocumentWrite>) -> StoreFuture<'_, bool> {
        let db = self.0.db();
        self.0.run(async move { write(&db, writes).await })
    }
}
