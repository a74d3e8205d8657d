//! `lillux kill`

use lillux::process::{Handle, HandleError, KillOutcome};
use serde_json::json;

use crate::cli::args::{KillArgs, Target};
use crate::cli::report::{Failure, Report};

pub(crate) fn run(args: KillArgs) -> Result<Report, Failure> {
    let (pid, method) = match args.pid {
        Target::Handle(handle) => (handle.pid(), handle.kill(args.grace)?),
        Target::Pid(pid) => match Handle::from_pid(pid) {
            Ok(handle) => (pid, handle.kill(args.grace)?),
            Err(HandleError::NoProcess(_)) => (pid, KillOutcome::AlreadyDead),
            Err(error) => return Err(error.into()),
        },
    };
    Ok(Report::new(json!({ "pid": pid, "method": method })))
}
