//! Waits for a file to change or for a recorded run to end.
//!
//! To wait for a process, see [`Handle::wait`](crate::process::Handle::wait).

mod paths;
#[cfg(feature = "watch-db")]
mod run;

pub use paths::{Change, ChangeKind, Watch, WatchError, wait_for_change, wait_until};
#[cfg(feature = "watch-db")]
pub use run::{FINAL_STATUSES, RunError, wait_for_run};
