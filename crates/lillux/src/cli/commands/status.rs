//! `lillux status`

use lillux::process::{Handle, HandleError};
use serde_json::json;

use crate::cli::args::{StatusArgs, Target};
use crate::cli::report::{Exit, Failure, Report};

pub(crate) fn run(args: StatusArgs) -> Result<Report, Failure> {
    let (pid, running) = match args.pid {
        Target::Handle(handle) => (handle.pid(), handle.is_alive()?.then_some(handle)),
        Target::Pid(pid) => match Handle::from_pid(pid) {
            Ok(handle) => (pid, Some(handle)),
            Err(HandleError::NoProcess(_)) => (pid, None),
            Err(error) => return Err(error.into()),
        },
    };
    Ok(Report::new(match running {
        Some(handle) => {
            json!({ "pid": pid, "alive": true, "start_time": handle.start_time(), "handle": handle })
        }
        None => json!({ "pid": pid, "alive": false }),
    }))
}

impl From<HandleError> for Failure {
    fn from(error: HandleError) -> Self {
        let message = error.to_string();
        match error {
            HandleError::NotAHandle(_) => Self::usage(message),
            HandleError::NoProcess(_) => Self::new(Exit::Failed, "no_process", message),
            HandleError::Protected(_) => Self::new(Exit::Permission, "protected", message),
            HandleError::Kill { source, .. }
                if source.kind() == std::io::ErrorKind::PermissionDenied =>
            {
                Self::new(Exit::Permission, "permission", message)
            }
            HandleError::Kill { .. } => Self::new(Exit::Failed, "kill", message),
            HandleError::Proc(_) => Self::new(Exit::Failed, "proc", message),
        }
    }
}
