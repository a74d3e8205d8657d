//! The SQLite store does what every store must, and so do two on one file.

use std::sync::Arc;

use rye_store::SqliteStore;
use rye_store_contract::Subject;

fn fresh() -> Subject {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let open = || Arc::new(SqliteStore::open(&file).unwrap());
    Subject::new(open()).and(open()).keeping(folder)
}

rye_store_contract::store_contract!(fresh());
