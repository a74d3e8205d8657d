//! Runs commands as process trees, and starts detached processes.
//!
//! [`Supervisor::exec`] runs a [`Command`] and waits for it. The *tree* is the main process and
//! all its descendants. The whole tree is ended when the main process ends, after the timeout,
//! when the future is dropped, and when the calling program dies, even by `SIGKILL`. A process
//! cannot escape by ignoring `SIGTERM`, by `setsid` or by a double fork.
//!
//! ```
//! use std::time::Duration;
//! use lillux::process::{Command, Supervisor};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let supervisor = Supervisor::start()?; // forks: call it first in `main`
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
//! [`spawn`] starts a detached process, which outlives its caller. It returns a [`Handle`], with
//! which any process can later check whether it [is alive](Handle::is_alive) or
//! [kill](Handle::kill) it. A handle never refers to another process that reuses the pid.

mod capture;
mod command;
mod detached;
mod environment;
mod exec;
mod handle;
mod image;
mod protect;
mod shutdown;
mod supervisor;
mod table;

pub use capture::{CapturedOutput, OutputCapture, Overflow, Stream};
pub use command::{Command, DEFAULT_GRACE, DEFAULT_OUTPUT_LIMIT, Stdin};
pub use detached::{SpawnError, spawn};
pub use environment::Environment;
pub use exec::{ExecError, Exit, Output};
pub use handle::{Handle, HandleError, KillOutcome};
pub use image::LaunchError;
pub use protect::protect_memory;
pub use shutdown::{ShutdownSignal, ShutdownSignals};
pub use supervisor::Supervisor;
