//! Waiting for something to happen elsewhere: a file to change, a recorded run to end.
//!
//! To wait for a process, see [`Handle::wait`](crate::process::Handle::wait).

mod paths;
#[cfg(feature = "watch-db")]
mod run;

pub use paths::{Change, ChangeKind, WatchError, paths, until};
#[cfg(feature = "watch-db")]
pub use run::{ENDED, RunError, run};
