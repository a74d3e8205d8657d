//! Who a process's tree hangs from.
//!
//! A process whose parent ends is given to its nearest living ancestor that is
//! a *subreaper*. So a tree can be held together if, and only if, a subreaper
//! stands above it and above nothing else: then every descendant, however it
//! forked, is below that one process, and "the tree is gone" is the kernel's
//! answer "you have no children".
//!
//! ```text
//! your program ── warden ─┬─ keeper ── command ── …     a tree
//!                         ├─ keeper ── command ── …     another
//!                         └─ keeper                     idle, for the next
//! ```
//!
//! - A **keeper** is a subreaper that runs one command at a time. It is told
//!   what to run over a socket, and for how long. When the socket closes,
//!   because the future was dropped or because your program died of whatever
//!   cause, it ends its tree and then itself. It keeps the time, too: a
//!   program that is stopped or busy does not prolong its commands.
//! - The **warden** forks keepers. It is forked off early, when your program is
//!   still small, so a keeper costs the same however large the program grows.
//!   It is a subreaper too: should a keeper be killed, what it kept falls to
//!   the warden, which ends it. Should one be stopped, the warden continues it, and
//!   kills it if that happens again and again.
//!
//! A command runs as the same user and can signal any of these processes, so each is
//! watched by another. Your program continues a stopped warden or keeper while a command
//! runs, and ends a tree without their help when its time is up or when it shuts down. When
//! your program is killed, a warden outlives a stopped or killed keeper, and a keeper a
//! stopped or killed warden. A command that stops or kills *both* helpers, and whose
//! program is then killed with `SIGKILL`, survives.
//!
//! Both are forks that never execute another program, possibly of a process
//! with threads. Between a fork and an exec such a process may hold any lock in
//! an unknown state, so their code allocates nothing and takes no lock.

mod host;
mod keep;
mod sys;
mod warden;
mod wire;

pub use host::Supervisor;
pub(super) use host::{Job, KeeperError, MARGIN, Order};
pub(super) use keep::GIVE_UP;
pub(super) use sys::{Plan, Stack, end_signals, launch_detached};
pub(super) use wire::{Event, Run};
