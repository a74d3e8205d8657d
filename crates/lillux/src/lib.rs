//! A small kernel for programs that run other programs: whole process trees, a
//! content store, keys and signatures, sealed secrets, time.
//!
//! | module | gives |
//! |---|---|
//! | [`process`] | commands whose every descendant ends with them; detached processes and handles that survive their pid |
//! | [`cas`] | bytes and JSON objects kept under their hash, durable, checked on every read |
//! | [`hash`] | SHA-256 as a type, of streams of any length |
//! | [`canonical`] | one text for each JSON value, so that it has one hash |
//! | [`keys`] | Ed25519 key files, signatures over hashes, fingerprints |
//! | [`envelope`] | secrets sealed to one or several public keys |
//! | [`lease`] | files that cannot change without new times, for caches keyed by them |
//! | [`mask`] | secrets taken out of texts and streams, however they are written |
//! | [`durable`] | files that are there whole or not at all, also after a power cut |
//! | [`path_policy`] | which paths of this machine may be read and written for somebody else |
//! | [`watch`] | waiting for a file, or for the end of a recorded run |
//! | [`time`] | wall clock and monotonic clock, read together |
//!
//! Everything here is usable alone, and none of it knows what a tool or an
//! agent is. The binary `lillux` gives the same to scripts.
//!
//! ```
//! use lillux::cas::Cas;
//! use lillux::process::{Command, Supervisor};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let root = folder.path();
//! let supervisor = Supervisor::start()?; // forks: first thing in `main`
//! let store = Cas::open(root)?;
//!
//! // However much it prints: the first 100 bytes here, all of it in the store.
//! let command = Command::new("seq").arg("1000").output_limit(100).spill_to(store.clone());
//! let output = supervisor.exec(command).await?;
//! assert_eq!(output.stdout.bytes.len(), 100);
//! assert!(output.stdout.is_truncated());
//! assert!(store.verify_all()?.is_sound());
//! # Ok(())
//! # }
//! ```
//!
//! Linux only: whole trees need subreapers, pidfds and `close_range` (5.9 or newer).

#[cfg(not(target_os = "linux"))]
compile_error!("lillux runs on Linux: ending whole process trees needs its subreapers and pidfds");

pub mod canonical;
pub mod cas;
pub mod durable;
pub mod envelope;
mod error;
pub mod hash;
pub mod keys;
pub mod lease;
pub mod mask;
pub mod path_policy;
pub mod process;
mod shown;
mod text;
pub mod time;
pub mod watch;

pub use error::{At, PathError};
pub use hash::{Hash, Hasher};
pub use shown::{BAR, quoted, visible, visible_line};
pub use text::{says_nothing, shell_word};
