//! Operations on the store's own runtime.

use std::future::Future;
use std::sync::Arc;

use rye_engine::store::{StoreError, StoreFuture};
use tokio::runtime::Handle;

use super::db::Db;
use super::error::DbResult;

/// Starts operations. They complete even if the caller goes away.
#[derive(Clone)]
pub(super) struct Tasks {
    db: Arc<Db>,
    runtime: Handle,
}

impl Tasks {
    pub(super) fn new(db: Arc<Db>, runtime: Handle) -> Self {
        Self { db, runtime }
    }

    pub(super) fn db(&self) -> Arc<Db> {
        Arc::clone(&self.db)
    }

    /// Starts an operation. It fails if the store is closed.
    pub(super) fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = DbResult<T>> + Send + 'static,
    ) -> StoreFuture<'static, T> {
        let db = Arc::clone(&self.db);
        let task = self.runtime.spawn(work);
        Box::pin(async move {
            let done = task.await.map_err(|_| closed())?;
            done.map_err(|error| db.explain(error))
        })
    }
}

/// The error of an operation on a closed store.
pub(super) fn closed() -> StoreError {
    StoreError::Unavailable("the store is closed".to_owned())
}
