//! Background runs: a recorded call that another process executes.

use std::sync::Arc;
use std::time::Duration;

use lillux::process::{Command, KillOutcome, ShutdownSignals, Supervisor, spawn};
use rye_engine::protocol::{Purpose, RunStatus, SessionId, short_id};
use rye_engine::store::{CommandKind, InboxMessage, SessionCommand};
use rye_executor::{Approval, OutputListener, Request, RunContext};
use rye_graph::RunOptions;
use serde_json::{Value, json};

use super::{GRACE, RunState, RunView, Runs};
use crate::call::execute_to_end;
use crate::context::Context;
use crate::failure::{Failure, FailureKind};
use crate::graph_file::is_graph;

/// A run that was started.
pub struct StartedRun {
    /// Its id.
    pub id: String,
    item: String,
}

impl StartedRun {
    /// The run as JSON.
    pub fn json(&self) -> Value {
        json!({ "run": { "id": self.id, "state": "running", "item_id": self.item } })
    }
}

/// Records a call and starts a process that executes it.
pub fn start(request: &Request, context: &Context) -> Result<StartedRun, Failure> {
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
    Ok(StartedRun { id, item })
}

/// Like [`start`] for a graph, with an id chosen by the caller. Calling it again with the same id
/// starts nothing more, also if this process was killed before the run started.
pub fn start_as(id: &SessionId, request: &Request, context: &Context) -> Result<(), Failure> {
    let item = request.tool.id.to_string();
    if !is_graph(&request.tool, context) {
        let message = format!("{item} is not a graph");
        return Err(Failure::failed("not_a_graph", message));
    }
    let runs = Runs::open(context)?;
    let project = context.settings.project();
    let purpose = Purpose::Workflow;
    if !runs.create_as(id, purpose, &item, &request.parameters, project)? {
        let run = runs.find(id.as_str())?;
        let is_new = run.run.node.is_none() && run.run.steps == 0;
        // Of two processes that execute it, one gets the lease.
        if run.holder.is_some() || run.run.status != RunStatus::Running || !is_new {
            return Ok(());
        }
    }
    spawn_run(&runs, id.as_str(), request, &[], context)
}

/// Starts a process that continues a graph run.
pub fn restart(
    id: &SessionId,
    accept_changed: bool,
    request: &Request,
    context: &Context,
) -> Result<StartedRun, Failure> {
    let runs = Runs::open(context)?;
    runs.restart(id)?;
    let accept: &[&str] = if accept_changed {
        &["--resume", "--accept-changed"]
    } else {
        &["--resume"]
    };
    spawn_run(&runs, id.as_str(), request, accept, context)?;
    Ok(StartedRun {
        id: id.to_string(),
        item: request.tool.id.to_string(),
    })
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

/// How a process executes a recorded run.
pub struct CarryOut {
    /// Time limit.
    pub timeout: Option<Duration>,
    /// What was approved.
    pub approval: Approval,
    /// Continue a stopped graph.
    pub resume: bool,
    /// Continue a graph although it has changed.
    pub accept_changed: bool,
    /// Receives the output of the tool.
    pub listener: OutputListener,
}

/// Executes a recorded run.
pub fn carry_out(
    id: &str,
    options: CarryOut,
    supervisor: Arc<Supervisor>,
    context: &Context,
) -> Result<(), Failure> {
    // Blocks the signals in the threads of the store too.
    let _signals = ShutdownSignals::listen().map_err(|error| Failure::failed("signals", error))?;
    let runs = Runs::open(context)?;
    let run = runs.find(id)?;
    let (parameters, _) = runs.call(&run)?;
    let parameters = match runs.graph(&run)? {
        Some(graph) => graph.inputs().clone(),
        None => parameters,
    };
    let tool = run.run.item.parse()?;
    let mut request = Request::new(tool).with_parameters(parameters);
    request.timeout = options.timeout;
    request.approval = options.approval;
    request.listener = Some(options.listener);
    if run.is_graph() {
        let id = run.id().to_owned();
        let going = RunOptions {
            resume: options.resume.then(|| id.clone()),
            accept_changed: options.accept_changed,
            ..RunOptions::default()
        };
        // The graph records its run in the session that was created for it.
        request.run = Some(RunContext { id, depth: 0 });
        let result = execute_to_end(context, supervisor, request, going, None)?;
        return match result.error {
            None => Ok(()),
            Some(error) => Err(Failure::failed("tool_failed", error.message)),
        };
    }
    let call = runs.start_call(&run)?;
    let aborted = Box::pin(call.abort_requested());
    let going = RunOptions::default();
    let outcome = execute_to_end(context, supervisor, request, going, Some(aborted));
    let failed = |failure: &Failure| json!({ "status": "error", "item_id": run.run.item, "error": failure.json() });
    // The processes of a cancelled run get the signal too, and may fail before this one.
    let has_failed = match &outcome {
        Ok(result) => result.error.is_some(),
        Err(_) => true,
    };
    let is_cancelled = has_failed && runs.block_on(call.is_aborted())?;
    let (status, result, outcome) = match outcome {
        _ if is_cancelled => (RunStatus::Cancelled, failed(&cancelled()), Err(cancelled())),
        Ok(result) => match &result.error {
            None => (RunStatus::Completed, json!(result), Ok(())),
            Some(error) => {
                let failure = Failure::failed("tool_failed", &error.message);
                (RunStatus::Failed, json!(result), Err(failure))
            }
        },
        Err(failure) => {
            let status = match failure.kind {
                FailureKind::Interrupted | FailureKind::Terminated => RunStatus::Interrupted,
                _ => RunStatus::Failed,
            };
            (status, failed(&failure), Err(failure))
        }
    };
    runs.block_on(call.end(status, &result))?;
    outcome
}

fn cancelled() -> Failure {
    Failure::new(
        FailureKind::Terminated,
        "cancelled",
        "the run was cancelled",
    )
}

/// Cancels a run: signals the process that executes it, which records the end.
pub fn cancel(runs: &Runs, run: &RunView) -> Result<(), Failure> {
    let id = short_id(run.id());
    let has_ended = |run: &RunView| {
        let message = format!("run {id} has already ended: {}", run.state_name());
        Failure::failed("not_running", message).hint(format!("rye run status {id}"))
    };
    match run.state() {
        RunState::Ended(RunStatus::Cancelled) if !run.is_graph() => return Ok(()),
        RunState::Running | RunState::Waiting => {}
        RunState::Lost | RunState::Ended(_) => return Err(has_ended(run)),
    }
    let session = &run.session.id;
    if run.holder.is_some() {
        let command = SessionCommand::new(None, CommandKind::Abort);
        let store = runs.store();
        runs.block_on(store.post(session, InboxMessage::Command(command)))?;
    }
    match (run.process(), &run.holder) {
        (Some(process), _) => {
            let killed = process.kill(GRACE);
            let killed = killed.map_err(|error| Failure::failed("kill", error))?;
            let after = runs.find(session.as_str())?;
            // The run ended before the signal.
            if killed == KillOutcome::AlreadyDead && after.run.status != RunStatus::Cancelled {
                return Err(has_ended(&after));
            }
            // A killed process could not record that itself.
            if after.run.status == RunStatus::Running && !after.is_graph() {
                let error = cancelled().json();
                let result =
                    json!({ "status": "error", "item_id": after.run.item, "error": error });
                runs.end_killed(&after, &result)?;
            }
            Ok(())
        }
        // The process is on another host, which carries out the command.
        (None, Some(_)) => Ok(()),
        (None, None) if run.state() == RunState::Waiting => {
            let message = format!("run {id} waits for a decision and has no process");
            Err(Failure::failed("waiting", message).hint("rye gate list"))
        }
        (None, None) => {
            let message = format!("run {id} has not started yet");
            Err(Failure::failed("starting", message).hint(format!("rye run cancel {id}")))
        }
    }
}
