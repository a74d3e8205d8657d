//! `lillux spawn`, `status`, `kill`, `watch`

use lillux::process::{Handle, HandleError, KillOutcome, SpawnError, spawn as spawn_detached};
use lillux::watch::{self, RunError, WatchError};
use serde_json::json;

use crate::cli::args::{KillArgs, SpawnArgs, Target, WatchArgs};
use crate::cli::report::{Exit, Failure, Report};

impl Target {
    /// The process id, and the handle unless no process has that id.
    fn find(self) -> Result<(i32, Option<Handle>), Failure> {
        match self {
            Self::Handle(handle) => Ok((handle.pid(), Some(handle))),
            Self::Pid(pid) => match Handle::from_pid(pid) {
                Ok(handle) => Ok((pid, Some(handle))),
                Err(HandleError::NoProcess(_)) => Ok((pid, None)),
                Err(error) => Err(error.into()),
            },
        }
    }
}

pub(crate) fn spawn(args: SpawnArgs) -> Result<Report, Failure> {
    let handle = spawn_detached(super::exec::command(args.program), args.log.as_deref())?;
    Ok(Report::new(json!({
        "pid": handle.pid(),
        "start_time": handle.start_time(),
        "handle": handle,
    })))
}

pub(crate) fn status(target: Target) -> Result<Report, Failure> {
    let (pid, handle) = target.find()?;
    if let Some(handle) = handle
        && handle.is_alive()?
    {
        return Ok(Report::new(json!({
            "pid": pid, "alive": true, "start_time": handle.start_time(), "handle": handle,
        })));
    }
    Ok(Report::new(json!({ "pid": pid, "alive": false })))
}

pub(crate) fn kill(args: KillArgs) -> Result<Report, Failure> {
    let (pid, handle) = args.pid.find()?;
    let method = match handle {
        Some(handle) => handle.kill(args.grace)?,
        None => KillOutcome::AlreadyDead,
    };
    Ok(Report::new(json!({ "pid": pid, "method": method })))
}

pub(crate) fn watch(args: WatchArgs) -> Result<Report, Failure> {
    let timeout = args.timeout;
    let event = if let Some(target) = args.pid {
        let (pid, handle) = target.find()?;
        let ended = match handle {
            Some(handle) => handle.wait(timeout)?,
            None => true,
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
        Some(mut fields) => {
            fields["timed_out"] = json!(false);
            Report::new(fields)
        }
        None => Report::with_exit(Exit::TimedOut, json!({ "timed_out": true })),
    })
}

impl From<SpawnError> for Failure {
    fn from(error: SpawnError) -> Self {
        match error {
            SpawnError::Launch(error) => error.into(),
            SpawnError::Log(error) => error.into(),
            SpawnError::Stdin => Self::usage(error),
            SpawnError::Io(_) => Self::new(Exit::Failed, "io", error),
        }
    }
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
