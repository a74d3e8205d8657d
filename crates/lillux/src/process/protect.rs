//! Protects this process's memory from other processes of the same user.

use std::io;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// Makes this process *not dumpable*: no other process of the same user can read its
/// environment or its memory through `/proc` or attach a debugger to it, and it leaves no
/// core dump. Programs that it executes are not affected.
///
/// Call it first in `main`, before secrets are read.
pub fn protect_memory() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}
