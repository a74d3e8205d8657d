//! Stores for the engine: sessions, blobs and credentials.
//!
//! - [`SqliteStore`] keeps sessions in one durable SQLite file that several processes of a
//!   machine can use at once.
//! - `PostgresStore` keeps sessions in a PostgreSQL database that many hosts share, with their
//!   blobs, credentials and documents (feature `cluster`).
//! - [`MemoryStore`] keeps sessions until the process ends.
//! - [`FileBlobs`] and [`MemoryBlobs`] keep data that is too long for a session's history.
//! - [`SealedCredentials`] keeps encrypted credentials in the SQLite file.
//! - [`AccessTokens`] keeps the access tokens of the HTTP server there.
//! - [`SqliteDocuments`] keeps schedules, webhooks and hooks there, [`MemoryDocuments`] until the
//!   process ends.
//!
//! All session stores pass the contract tests of `rye-testkit`; run them against any other
//! implementation of [`SessionStore`](rye_engine::store::SessionStore).
//!
//! ```
//! use rye_engine::store::{Claim, SessionStore};
//! use rye_store::MemoryStore;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = MemoryStore::new();
//! let lease = store.claim(&"my-session".parse()?, Claim::IfFree).await?;
//! assert!(store.claim(&lease.session, Claim::IfFree).await.is_err());
//! # Ok(())
//! # }
//! ```

mod access_tokens;
mod blobs;
mod close;
mod credentials;
mod documents;
mod events;
mod invariants;
mod json_text;
mod memory;
#[cfg(feature = "cluster")]
mod postgres;
mod prepared_batch;
mod sqlite;

pub use access_tokens::{AccessToken, AccessTokens, Scope, TokenKind};
pub use blobs::{FileBlobs, MemoryBlobs};
pub use close::CloseHandle;
pub use credentials::{KeyProvider, SealedCredentials};
pub use documents::{MemoryDocuments, SqliteDocuments};
pub use memory::MemoryStore;
#[cfg(feature = "cluster")]
pub use postgres::{
    PostgresBlobs, PostgresCredentials, PostgresDocuments, PostgresStore, PostgresUrl,
    PostgresUrlError,
};
pub use sqlite::{FileReport, Integrity, SqliteStore, diagnose};
