//! The helper processes that supervise a command's process tree.
//!
//! When a process ends, the kernel gives its children to the nearest living ancestor that is a
//! *subreaper*. So a tree stays together if a subreaper is above it and above nothing else:
//! then every descendant, however it was forked, is below that process, and the tree is gone
//! when the subreaper has no children left.
//!
//! ```text
//! host program ── fork server ─┬─ reaper ── command ── …     one tree
//!                              ├─ reaper ── command ── …     another
//!                              └─ reaper                     idle
//! ```
//!
//! - A **reaper** is a subreaper that runs one command at a time. It receives the command and
//!   its time limits over a socket. When the socket closes, because the future was dropped or
//!   because the host died, it ends its tree and then itself. It also enforces the timeout, so
//!   a host that is stopped or busy does not prolong its commands.
//! - The **fork server** forks reapers. It is forked early, while the host is small, so the
//!   cost of a reaper does not depend on the size of the host. It is a subreaper too: if a
//!   reaper is killed, its tree falls to the fork server, which ends it. It continues a reaper
//!   that was stopped, and kills one that is stopped repeatedly.
//!
//! A command runs as the same user and can signal any of these processes, so each is watched
//! by another. While a command runs, the host continues a stopped fork server or reaper, and
//! it ends a tree without their help after a timeout or at shutdown. If the host is killed,
//! the fork server handles a stopped or killed reaper, and a reaper handles a stopped or
//! killed fork server. A command survives only if it stops or kills *both* helpers and the
//! host is then killed with `SIGKILL`.
//!
//! Both helpers are forks that never execute another program, possibly forks of a process with
//! threads. Any lock may be held at the time of such a fork, so their code neither allocates
//! nor locks.

mod client;
mod fork_server;
mod messages;
mod reaper;
mod sys;

pub use client::Supervisor;
pub(super) use client::{Job, MARGIN, ReaperError};
pub(super) use messages::{Event, RunRequest};
pub(super) use reaper::KILL_TIMEOUT;
pub(super) use sys::{LaunchPlan, Stack, block_shutdown_signals, launch_detached};
