//! `lillux spawn`

use lillux::process::{SpawnError, spawn};
use serde_json::json;

use crate::cli::args::SpawnArgs;
use crate::cli::report::{Exit, Failure, Report};

pub(crate) fn run(args: SpawnArgs) -> Result<Report, Failure> {
    let handle = spawn(super::exec::command(args.program), args.log.as_deref())?;
    Ok(Report::new(json!({
        "pid": handle.pid(),
        "start_time": handle.start_time(),
        "handle": handle,
    })))
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
