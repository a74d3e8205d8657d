//! `lillux kill`

use lillux::process::{Handle, HandleError, Killed};
use serde_json::json;

use crate::cli::args::{KillArgs, Target};
use crate::cli::report::{Failure, Report};

pub(crate) fn run(args: KillArgs) -> Result<Report, Failure> {
    let (pid, method) = match args.pid {
        Target::Handle(handle) => (handle.pid(), handle.kill(args.grace)?),
        Target::Pid(pid) => match Handle::of_running(pid) {
            Ok(handle) => (pid, handle.kill(args.grace)?),
            Err(HandleError::NoProcess(_)) => (pid, Killed::AlreadyDead),
            Err(error) => return Err(error.into()),
        },
    };
    Ok(Report::new(json!({ "pid": pid, "method": method })))
}
