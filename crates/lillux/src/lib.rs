//! A small kernel for programs that run other programs: process trees, a content-addressed
//! store, keys and signatures, sealed secrets, time.
//!
//! | module | contents |
//! |---|---|
//! | [`process`] | run commands so that no descendant outlives them; start detached processes; [`Handle`](process::Handle)s that are safe against pid reuse |
//! | [`cas`] | content-addressed store for bytes and JSON objects, durable, verified on every read |
//! | [`hash`] | SHA-256 as a type, of bytes and streams |
//! | [`canonical`] | canonical JSON: one text, and so one hash, for each value |
//! | [`keys`] | Ed25519 key files, signatures over hashes, fingerprints |
//! | [`envelope`] | secrets encrypted to one or several public keys |
//! | [`file_times`] | detect files that can change without a new modification time |
//! | [`redact`] | redact secrets from texts and streams, in any encoding |
//! | [`durable`] | atomic, durable file writes |
//! | [`path_policy`] | which paths an agent's tools may read and write |
//! | [`watch`] | wait for a file to change or for a recorded run to end |
//! | [`template`] | find placeholders such as `${NAME}` in texts |
//! | [`time`] | wall clock, monotonic clock, timestamps as text |
//!
//! Each module is usable alone and does not depend on tools or agents. The binary `lillux`
//! offers the same functions to scripts.
//!
//! ```
//! use lillux::cas::Cas;
//! use lillux::process::{Command, Supervisor};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let root = dir.path();
//! let supervisor = Supervisor::start()?; // forks: call it first in `main`
//! let store = Cas::open(root)?;
//!
//! // Keep the first 100 bytes of the output in memory and all of it in the store.
//! let command = Command::new("seq").arg("1000").output_limit(100).spill_to(store.clone());
//! let output = supervisor.exec(command).await?;
//! assert_eq!(output.stdout.bytes.len(), 100);
//! assert!(output.stdout.is_truncated());
//! assert!(store.verify_all()?.is_sound());
//! # Ok(())
//! # }
//! ```
//!
//! Linux 5.9 or newer only: supervising process trees needs subreapers, pidfds and
//! `close_range`.

#[cfg(not(target_os = "linux"))]
compile_error!("lillux runs only on Linux: it needs subreapers and pidfds");

pub mod canonical;
pub mod cas;
pub mod durable;
pub mod envelope;
mod error;
pub mod file_times;
pub mod hash;
pub mod keys;
pub mod path_policy;
pub mod process;
pub mod redact;
mod sanitize;
pub mod template;
mod text;
pub mod time;
pub mod watch;

pub use error::{PathContext, PathError, error_chain};
pub use hash::{Hash, Hasher};
pub use sanitize::{QUOTE_PREFIX, quote_block, sanitize, sanitize_line, strip_control};
pub use text::{is_stop_word, shell_quote, shell_word};
