//! Where an agent's tools work.
//!
//! [`Virtual`] keeps files in memory and has a small shell of its own that starts no
//! processes: safe, and the same everywhere. [`Local`] works in a folder of this machine
//! and **confines nothing**: what runs there may do what its user may.
//!
//! ```
//! use rye_engine::sandbox::{Exec, Sandbox as _, Watcher};
//! use rye_sandbox::Virtual;
//!
//! struct Nobody;
//! impl Watcher for Nobody {
//!     fn started(&self, _: &str) {}
//!     fn printed(&self, _: &str) {}
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), rye_engine::sandbox::SandboxError> {
//! let sandbox = Virtual::new();
//! sandbox.write("notes/a.txt", b"one\ntwo\n").await?;
//! let command = "cat notes/*.txt | grep -c o && echo done".to_owned();
//! let exec = Exec { command, ..Exec::default() };
//! let executed = sandbox.exec(exec, &Nobody).await?;
//! assert_eq!(executed.stdout, "2\ndone\n");
//! # Ok(())
//! # }
//! ```

mod files;
mod kept;
mod local;
mod memory;
mod path;
mod shell;

pub use files::Limits;
pub use local::Local;
pub use memory::Virtual;
