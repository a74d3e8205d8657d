//! The contract tests of the stores of documents.

use std::sync::Arc;

use rye_testkit::document_contract::Subject;

mod memory {
    use rye_store::MemoryDocuments;

    use super::*;

    rye_testkit::document_contract!(Subject::new(Arc::new(MemoryDocuments::new())));
}

/// With two handles to one file.
mod sqlite {
    use rye_store::SqliteDocuments;

    use super::*;

    fn empty_store() -> Subject {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("sessions.db");
        let open = || Arc::new(SqliteDocuments::open(&file).unwrap());
        Subject::new(open()).with_other(open()).with_guard(dir)
    }

    rye_testkit::document_contract!(empty_store());
}

/// With two hosts on one database.
#[cfg(feature = "cluster")]
mod postgres {
    use rye_store::PostgresStore;

    use super::*;

    fn empty_store() -> Subject {
        let url = rye_testkit::postgres::server().create_database();
        let open = || PostgresStore::open(url.parse().unwrap()).unwrap();
        let (store, other) = (open(), open());
        Subject::new(Arc::new(store.documents()))
            .with_other(Arc::new(other.documents()))
            .with_guard((store, other))
    }

    rye_testkit::document_contract!(empty_store());
}
