//! The contract tests of the memory store.

use std::sync::Arc;

use rye_testkit::store_contract::Subject;

fn empty_store() -> Subject {
    Subject::new(Arc::new(rye_store::MemoryStore::new()))
}

rye_testkit::store_contract!(empty_store());
