//! The contract tests of the PostgreSQL store, with two hosts on one database.

use std::sync::Arc;

use rye_store::PostgresStore;
use rye_testkit::postgres;
use rye_testkit::store_contract::Subject;

fn empty_store() -> Subject {
    let url = postgres::server().create_database();
    let open = || Arc::new(PostgresStore::open(url.parse().unwrap()).unwrap());
    Subject::new(open()).with_other(open())
}

rye_testkit::store_contract!(empty_store());
