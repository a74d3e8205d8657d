//! `lillux watch`

use lillux::process::{Handle, HandleError};
use lillux::watch::{self, RunError, WatchError};
use serde_json::{Value, json};

use crate::cli::args::{Target, WatchArgs};
use crate::cli::report::{Exit, Failure, Report};

pub(crate) fn run(args: WatchArgs) -> Result<Report, Failure> {
    let timeout = args.timeout;
    let event = if let Some(target) = args.pid {
        let (pid, ended) = match target {
            Target::Handle(handle) => (handle.pid(), handle.wait(timeout)?),
            Target::Pid(pid) => match Handle::from_pid(pid) {
                Ok(handle) => (pid, handle.wait(timeout)?),
                Err(HandleError::NoProcess(_)) => (pid, true),
                Err(error) => return Err(error.into()),
            },
        };
        ended.then(|| json!({ "event": "ended", "pid": pid }))
    } else if let (Some(db), Some(thread_id)) = (args.db, args.thread_id) {
        let status = watch::wait_for_run(&db, &thread_id, timeout)?;
        status.map(|status| json!({ "event": "ended", "thread_id": thread_id, "status": status }))
    } else {
        let change = watch::wait_for_change(&args.path, timeout)?;
        change.map(|change| json!({ "event": change.kind, "path": change.path }))
    };
    Ok(match event {
        Some(fields) => Report::new(with_timed_out(fields, false)),
        None => Report::with_exit(Exit::TimedOut, with_timed_out(json!({}), true)),
    })
}

fn with_timed_out(mut fields: Value, timed_out: bool) -> Value {
    fields["timed_out"] = json!(timed_out);
    fields
}

impl From<WatchError> for Failure {
    fn from(error: WatchError) -> Self {
        match error {
            WatchError::NoPaths => Self::usage(error),
            WatchError::Path(error) => error.into(),
            WatchError::Io(_) => Self::new(Exit::Failed, "io", error),
        }
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Database { .. } => Self::new(Exit::Failed, "database", error),
            RunError::NoRun { .. } => Self::new(Exit::Failed, "no_run", error),
            RunError::Watch(error) => error.into(),
        }
    }
}
