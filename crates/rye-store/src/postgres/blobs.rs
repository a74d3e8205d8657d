//! Blobs in the PostgreSQL database.

use std::fmt;

use lillux::Hash;
use rye_engine::blob::{BlobError, BlobFuture, BlobStore};

use super::error::DbError;
use super::tasks::Tasks;

/// Blobs in a PostgreSQL database. Usable as long as the store that it comes from.
#[derive(Clone)]
pub struct PostgresBlobs(pub(super) Tasks);

impl fmt::Debug for PostgresBlobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresBlobs").finish_non_exhaustive()
    }
}

impl PostgresBlobs {
    fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, DbError>> + Send + 'static,
    ) -> BlobFuture<'static, T> {
        let done = self.0.run(work);
        Box::pin(async move { done.await.map_err(|error| BlobError(error.to_string())) })
    }
}

impl BlobStore for PostgresBlobs {
    fn put(&self, bytes: Vec<u8>) -> BlobFuture<'_, Hash> {
        let db = self.0.db();
        self.run(async move {
            let hash = Hash::digest(&bytes);
            // A blob that is stored again may be referenced again.
            let sql = "INSERT INTO rye.blobs (hash, bytes) VALUES ($1, $2)
                       ON CONFLICT (hash) DO UPDATE SET stored = clock_timestamp()";
            db.query(sql, &[&&hash.as_bytes()[..], &bytes]).await?;
            Ok(hash)
        })
    }

    fn get<'a>(&'a self, hash: &'a Hash) -> BlobFuture<'a, Option<Vec<u8>>> {
        let (db, hash) = (self.0.db(), *hash);
        self.run(async move {
            let sql = "SELECT bytes FROM rye.blobs WHERE hash = $1";
            let row = db.query_opt(sql, &[&&hash.as_bytes()[..]]).await?;
            let Some(row) = row else {
                return Ok(None);
            };
            let bytes: Vec<u8> = row.try_get(0)?;
            if Hash::digest(&bytes) != hash {
                return Err(DbError::Unreadable(format!("blob {hash} is damaged")));
            }
            Ok(Some(bytes))
        })
    }

    fn collect_garbage(&self, used: Vec<Hash>) -> BlobFuture<'_, ()> {
        let db = self.0.db();
        self.run(async move {
            let used: Vec<&[u8]> = used.iter().map(|hash| &hash.as_bytes()[..]).collect();
            let sql = "DELETE FROM rye.blobs
                       WHERE stored < clock_timestamp() - interval '1 h' AND hash <> ALL ($1)";
            db.query(sql, &[&used]).await.map(drop)
        })
    }

    fn contains<'a>(&'a self, hash: &'a Hash) -> BlobFuture<'a, bool> {
        let (db, hash) = (self.0.db(), *hash);
        self.run(async move {
            let sql = "SELECT EXISTS (SELECT FROM rye.blobs WHERE hash = $1)";
            let row = db.query_one(sql, &[&&hash.as_bytes()[..]]).await?;
            Ok(row.try_get(0)?)
        })
    }
}
