//! Support for tests: mock model providers, a PostgreSQL server, and the contract that every
//! session store must meet.
//!
//! [`provider`] has HTTP servers that behave like the model providers, and [`store_contract!`]
//! expands to the tests of a session store, [`document_contract!`] to those of a store of documents.
//!
//! ```
//! use rye_testkit::provider::{Completion, MockProvider, Reply};
//!
//! let reply = Reply::stream(rye_testkit::provider::Api::OpenAiChat.stream(&Completion::text("Hi")));
//! let provider = MockProvider::with_replies([reply]);
//! assert!(provider.requests().is_empty());
//! ```

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    reason = "used by tests only"
)]

pub mod document_contract;
pub mod port;
pub mod postgres;
pub mod provider;
pub mod store_contract;
pub mod tcp_proxy;
pub mod wrapped_store;
