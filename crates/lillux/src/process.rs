//! Processes, as whole trees.
//!
//! [`Supervisor::exec`] runs a [`Command`] and waits for it. What it starts is
//! a *tree*: the process, its children, and whatever those leave behind. The
//! tree ends as one: when the main process ends, when the time is up, when the
//! future is dropped, and when the program that called `exec` dies, even by
//! `SIGKILL`. Ignoring `SIGTERM`, `setsid` and double forks do not help a
//! process to outlive its call.
//!
//! ```
//! use std::time::Duration;
//! use lillux::process::{Command, Supervisor};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let supervisor = Supervisor::start()?; // first thing in `main`
//! let output = supervisor
//!     .exec(
//!         Command::new("sh")
//!             .args(["-c", "read name; echo hello $name"])
//!             .stdin(*b"Alice\n")
//!             .timeout(Duration::from_secs(5)),
//!     )
//!     .await?;
//! assert!(output.success());
//! assert_eq!(output.stdout.text(), "hello Alice\n");
//! # Ok(())
//! # }
//! ```
//!
//! [`spawn`] is the opposite: a detached process that is meant to outlive its
//! caller. It gives a [`Handle`] by which any later process can ask for its
//! [`status`](Handle::is_alive) or [`kill`](Handle::kill) it, and which does not
//! mistake another process for it once the pid is used again.

mod capture;
mod command;
mod detached;
mod ends;
mod environment;
mod exec;
mod handle;
mod image;
mod keeper;
mod protect;
mod table;

pub use capture::{Capture, Captured, Overflow, Stream};
pub use command::{Command, DEFAULT_GRACE, DEFAULT_OUTPUT_LIMIT, Stdin};
pub use detached::{SpawnError, spawn};
pub use ends::{Ask, Asks};
pub use environment::Environment;
pub use exec::{Begun, ExecError, Exit, Output};
pub use handle::{Handle, HandleError, Killed};
pub use image::LaunchError;
pub use keeper::Supervisor;
pub use protect::protect_memory;
