//! Starts runs in the background.

use lillux::process::{Command, spawn};
use rye_engine::protocol::{Purpose, SessionId, short_id};
use rye_executor::{Approval, Request};
use rye_host::runs::Runs;
use serde_json::{Value, json};

use crate::cli::commands::graph::is_graph;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::page::Page;
use crate::cli::printer::{Outcome, Report};

/// Records a call and starts a process that executes it.
pub(crate) fn start(request: &Request, context: &Context) -> Outcome {
    let runs = Runs::open(context)?;
    let item = request.tool.id.to_string();
    let purpose = if is_graph(&request.tool, context) {
        Purpose::Workflow
    } else {
        Purpose::Run
    };
    let project = context.settings.project();
    let id = runs.create(purpose, &item, &request.parameters, project)?;
    let started = spawn_run(&runs, &id, request, &[], context);
    if let Err(failure) = started {
        // No process will ever execute it.
        if let Ok(run) = runs.find(&id) {
            let _ = runs.remove(&run);
        }
        return Err(failure);
    }
    Ok(Box::new(StartedRun { id, item }))
}

/// Starts a process that continues a graph run.
pub(crate) fn restart(
    id: &SessionId,
    accept_changed: bool,
    request: &Request,
    context: &Context,
) -> Outcome {
    let runs = Runs::open(context)?;
    runs.restart(id)?;
    let accept: &[&str] = if accept_changed {
        &["--resume", "--accept-changed"]
    } else {
        &["--resume"]
    };
    spawn_run(&runs, id.as_str(), request, accept, context)?;
    Ok(Box::new(StartedRun {
        id: id.to_string(),
        item: request.tool.id.to_string(),
    }))
}

fn spawn_run(
    runs: &Runs,
    id: &str,
    request: &Request,
    options: &[&str],
    context: &Context,
) -> Result<(), Failure> {
    let unable = |error: &dyn std::fmt::Display| {
        Failure::failed("spawn", format_args!("cannot start run {id}: {error}"))
    };
    let program = std::env::current_exe().map_err(|error| unable(&error))?;
    let mut command = Command::new(program)
        .arg("--project")
        .arg(context.settings.project())
        .args(["run", "carry-out", id])
        .args(options);
    if let Some(timeout) = request.timeout {
        command = command.args(["--timeout", &timeout.as_secs_f64().to_string()]);
    }
    // An approval covers one call, not a run that starts later.
    if !matches!(request.approval, Approval::ByUser) {
        command = command.arg("--for-client");
    }
    spawn(command, Some(&runs.log(id))).map_err(|error| unable(&error))?;
    Ok(())
}

/// The report of a run that was started.
struct StartedRun {
    id: String,
    item: String,
}

impl Report for StartedRun {
    fn json(&self) -> Value {
        json!({ "run": { "id": self.id, "state": "running", "item_id": self.item } })
    }

    fn show(&self, page: &mut Page) {
        page.line(&self.id);
    }

    fn next_command(&self) -> Option<String> {
        Some(format!("rye run tail {} --follow", short_id(&self.id)))
    }
}
