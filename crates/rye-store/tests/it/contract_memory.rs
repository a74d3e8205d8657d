//! The memory store does what every store must.

use std::sync::Arc;

use rye_store_contract::Subject;

fn fresh() -> Subject {
    Subject::new(Arc::new(rye_store::MemoryStore::new()))
}

rye_store_contract::store_contract!(fresh());
