//! The contract tests of the SQLite store, with two handles to one file.

use std::sync::Arc;

use rye_store::SqliteStore;
use rye_testkit::store_contract::Subject;

fn empty_store() -> Subject {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("sessions.db");
    let open = || Arc::new(SqliteStore::open(&file).unwrap());
    Subject::new(open()).with_other(open()).with_guard(dir)
}

rye_testkit::store_contract!(empty_store());
