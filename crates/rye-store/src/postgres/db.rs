//! Connections to the database, and how operations use them.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use deadpool_postgres::{
    ClientWrapper, Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime,
};
use rye_engine::store::StoreError;
use tokio::time::timeout;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::config::PostgresUrl;
use super::error::{DbError, DbResult, chain};
use super::tls::Tls;

/// Parameters of a statement.
pub(super) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// The database.
pub(super) struct Db {
    pub(super) url: PostgresUrl,
    pub(super) tls: Tls,
    pool: Pool,
}

impl Db {
    pub(super) fn new(url: PostgresUrl) -> Result<Self, StoreError> {
        let tls = Tls::new(url.root_certificates.as_deref());
        let tls = tls.map_err(|reason| StoreError::Unavailable(format!("{url}: {reason}")))?;
        let manager = ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        };
        let manager = Manager::from_config(url.config.clone(), tls.clone(), manager);
        let pool = Pool::builder(manager)
            .max_size(url.max_connections)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(url.timeout))
            .create_timeout(Some(url.timeout))
            .build()
            .map_err(|error| StoreError::Unavailable(error.to_string()))?;
        Ok(Self { url, tls, pool })
    }

    /// Closes the idle connections, and the others after use.
    pub(super) fn close(&self) {
        self.pool.close();
    }

    async fn connection(&self) -> DbResult<Object> {
        let failed = |error: PoolError| {
            DbError::NoConnection(match error {
                PoolError::Backend(error) => chain(&error),
                PoolError::Timeout(_) => "cannot connect: no answer in time".to_owned(),
                other => other.to_string(),
            })
        };
        self.pool.get().await.map_err(failed)
    }

    /// Runs a statement once. A connection that breaks or does not answer is closed.
    pub(super) async fn query_once(&self, sql: &str, params: Params<'_>) -> DbResult<Vec<Row>> {
        let connection = self.connection().await?;
        let limit = self.url.timeout;
        let done = timeout(limit, query(&connection, sql, params)).await;
        let done = done.unwrap_or_else(|_| Err(DbError::timeout(limit)));
        if matches!(&done, Err(error) if error.is_unknown()) {
            drop(Object::take(connection));
        }
        done
    }

    /// Runs a statement that has the same effect if it runs twice. If its connection breaks, it runs
    /// once more: connections in the pool may have been broken for a while.
    pub(super) async fn query(&self, sql: &str, params: Params<'_>) -> DbResult<Vec<Row>> {
        match self.query_once(sql, params).await {
            Err(error) if error.is_unknown() => self.query_once(sql, params).await,
            done => done,
        }
    }

    /// Like [`query`](Self::query), for at most one row.
    pub(super) async fn query_opt(&self, sql: &str, params: Params<'_>) -> DbResult<Option<Row>> {
        Ok(self.query(sql, params).await?.into_iter().next())
    }

    /// Like [`query`](Self::query), for exactly one row.
    pub(super) async fn query_one(&self, sql: &str, params: Params<'_>) -> DbResult<Row> {
        let row = self.query_opt(sql, params).await?;
        row.ok_or_else(|| DbError::Unreadable("a query returned no row".to_owned()))
    }

    /// Translates an error for users of the store.
    pub(super) fn explain(&self, error: DbError) -> StoreError {
        error.explain(&self.url)
    }
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Db").field(&self.url).finish()
    }
}

/// Runs a statement that the connection prepares once.
async fn query(client: &ClientWrapper, sql: &str, params: Params<'_>) -> DbResult<Vec<Row>> {
    let statement = client.prepare_cached(sql).await?;
    Ok(client.query(&statement, params).await?)
}

/// Limits a future that uses a connection directly.
pub(super) async fn limited<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> DbResult<T> {
    match timeout(limit, work).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(DbError::timeout(limit)),
    }
}
