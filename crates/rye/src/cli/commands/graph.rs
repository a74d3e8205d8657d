//! `rye graph`: validates, runs, steps and draws state graphs.

mod asker;
pub(crate) mod progress;
mod show;
mod validate;

use std::path::Path;
use std::sync::{Arc, OnceLock};

use lillux::process::{ShutdownSignals, Supervisor};
use rye_engine::protocol::short_id;
use rye_executor::{ExecutionResult, Executor, Request, Trace};
use rye_graph::{EventListener, RecordError, RunOptions, RunRecord, StateGraph, check_record};
use rye_host::call;
use rye_host::graph_file::check_graph;
use rye_host::lookup::not_found;
use rye_host::runs::{RunView, Runs, background};
use rye_items::ItemRef;
use rye_mcp::client::Pool;
use serde_json::{Map, Value};

use super::execute::{self, StartedSupervisor, TypedOptions, param_args, parameters};
use crate::cli::args::{GraphCommand, GraphRunArgs, StepArgs};
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::page::{BAD, DIM, GOOD, paint, sanitize};
use crate::cli::printer::{Outcome, Printer};
use asker::GateAsker;

pub(crate) fn run(
    command: GraphCommand,
    context: &mut Context,
    printer: &mut Printer,
    supervisor: &mut StartedSupervisor,
) -> Outcome {
    match command {
        GraphCommand::Validate(args) => validate::run(&args, context),
        GraphCommand::Show(args) => show::run(&args, context),
        GraphCommand::Run(args) => run_graph(args, context, printer, supervisor),
        GraphCommand::Step(args) => step(&args, context, supervisor),
    }
}

fn run_graph(
    args: GraphRunArgs,
    context: &mut Context,
    printer: &mut Printer,
    supervisor: &mut StartedSupervisor,
) -> Outcome {
    if let Some(resume) = &args.resume {
        // Forks, so before the store starts threads.
        execute::supervisor_or_start(supervisor)?;
        let mut going = RunOptions {
            resume: Some(resume.clone()),
            accept_changed: args.accept_changed,
            ..RunOptions::default()
        };
        let mut request = original_request(context, &mut going)?;
        request.timeout = args.timeout;
        if args.background {
            return start_in_background(context, supervisor, request, &going);
        }
        return execute_graph(context, supervisor, request, going);
    }
    let (id, words) = args
        .call
        .split_first()
        .map_or(("", &[][..]), |(id, words)| (id.as_str(), words));
    let reference: ItemRef = id.parse()?;
    let mut options = TypedOptions::default();
    let mut inputs = Map::new();
    if !words.is_empty() {
        let supervisor = execute::supervisor_or_start(supervisor)?;
        let (executor, _) = checking_executor(context, supervisor)?;
        let tool = executor
            .tool(&reference)
            .map_err(|error| Failure::failed(error.code(), &error).maybe_hint(error.hint()))?;
        let schema = tool.metadata.config_schema();
        let parsed = param_args::parse(words, schema, &mut options);
        execute::apply(&options, words, context, printer);
        inputs = parsed?;
        if options.help {
            return Ok(execute::help(&executor, &reference));
        }
    }
    let given = args.params.or(options.options.params);
    let inputs = parameters::merged(given.as_deref(), inputs)?;
    let mut request = Request::new(reference).with_parameters(inputs);
    request.timeout = args.timeout.or(options.options.timeout);
    request.confine = options.options.sandbox.is_some();
    if args.background || options.options.background {
        return start_in_background(context, supervisor, request, &RunOptions::default());
    }
    execute_graph(context, supervisor, request, RunOptions::default())
}

/// Starts a background process that runs the graph. Reports errors now rather than in the log.
fn start_in_background(
    context: &Context,
    supervisor: &mut StartedSupervisor,
    mut request: Request,
    going: &RunOptions,
) -> Outcome {
    let run_request = request.clone();
    check_graph(&request.tool, context)?;
    request.dry_run = true;
    let supervisor = execute::supervisor_or_start(supervisor)?;
    let (executor, pool) = checking_executor(context, supervisor)?;
    let tool = request.tool.clone();
    if let Err(error) = call::run_to_end(&executor, &pool, request, &mut Trace::disabled())? {
        return Ok(execute::refused(&tool, error));
    }
    let Some(id) = &going.resume else {
        let started = background::start(&run_request, context)?;
        return Ok(Box::new(started));
    };
    let runs = Runs::open(context)?;
    let (view, record) = load_run(&runs, id)?;
    if view.state().is_live() {
        return Err(RecordError::InUse(id.clone()).into());
    }
    let trust = context.trusted_keys();
    let has_key = context.signing_key()?.is_some();
    let session = &view.session.id;
    let store = runs.store();
    runs.block_on(check_record(&store, session, &trust, has_key))?;
    let link = executor.tool(&tool);
    let link = link.map_err(|error| Failure::failed(error.code(), &error))?;
    let item = &link.item;
    if let Err(refusal) = record.check_resumable(item.bytes(), &item.hash, going.accept_changed) {
        if let Some(difference) = refusal.diff {
            print_difference(&difference, context);
        }
        let failure = Failure::failed(refusal.failure.code, refusal.failure.message);
        return Err(failure.maybe_hint(refusal.failure.hint));
    }
    drop(runs);
    let restarted = background::restart(session, going.accept_changed, &run_request, context)?;
    Ok(Box::new(restarted))
}

fn step(args: &StepArgs, context: &Context, supervisor: &mut StartedSupervisor) -> Outcome {
    let state = parameters::object("--state", args.state.as_deref())?;
    // Forks, so before the store starts threads.
    execute::supervisor_or_start(supervisor)?;
    let mut going = RunOptions {
        resume: args.resume.clone(),
        accept_changed: args.accept_changed,
        steps: Some(1),
        node: args.node.clone(),
        state,
    };
    let request = match &args.id {
        Some(id) => {
            if going.resume.is_some() {
                original_request(context, &mut going)?;
            }
            let inputs = parameters::merged(args.params.as_deref(), Map::new())?;
            Request::new(id.parse()?).with_parameters(inputs)
        }
        None => original_request(context, &mut going)?,
    };
    execute_graph(context, supervisor, request, going)
}

/// Finds a graph run and loads its history.
fn load_run(runs: &Runs, id: &str) -> Result<(RunView, RunRecord), Failure> {
    let view = runs.find(id)?;
    let missing = || not_found("graph run", id, "rye run list");
    let record = runs.graph(&view)?.ok_or_else(missing)?;
    Ok((view, record))
}

/// The request that a run was started with. Completes the id of the run.
fn original_request(context: &Context, going: &mut RunOptions) -> Result<Request, Failure> {
    let run = going.resume.as_deref().unwrap_or_default();
    let (view, record) = load_run(&Runs::open(context)?, run)?;
    going.resume = Some(view.id().to_owned());
    Ok(Request::new(record.graph().parse()?).with_parameters(record.inputs().clone()))
}

/// The command that resumes a run from the current project.
pub(super) fn resume_command(run: &str, other_project: Option<&Path>) -> String {
    let run = short_id(run);
    match other_project {
        Some(project) => {
            let project = lillux::shell_word(project);
            format!("rye --project {project} graph run --resume {run}")
        }
        None => format!("rye graph run --resume {run}"),
    }
}

/// Runs the graph and reports its progress and outcome.
fn execute_graph(
    context: &Context,
    supervisor: &mut StartedSupervisor,
    request: Request,
    going: RunOptions,
) -> Outcome {
    check_graph(&request.tool, context)?;
    let supervisor = execute::supervisor_or_start(supervisor)?;
    // Blocks the signals in the threads of the store too.
    let _signals = ShutdownSignals::listen().map_err(|error| Failure::failed("signals", error))?;
    let asker = GateAsker::start(context)?;
    let progress = progress::watcher(context.printer);
    let run = Arc::new(OnceLock::new());
    let started = Arc::clone(&run);
    let listener = EventListener::new(move |line| {
        started.get_or_init(|| line.run.to_string());
        progress(line);
        if let (Some(asker), Some(gate)) = (&asker, &line.gate) {
            asker.ask(gate);
        }
    });
    let (executor, pool) = executor(context, supervisor, going, listener)?;
    let tool = request.tool.clone();
    let ended = call::run_to_end(&executor, &pool, request, &mut Trace::disabled());
    let ended = ended.map_err(|failure| match run.get() {
        Some(run) => failure.or_hint(resume_command(run, None)),
        None => failure,
    });
    match ended? {
        Ok(result) => {
            print_outcome(&result, context);
            execute::report(result, context)
        }
        Err(error) => Ok(execute::refused(&tool, error)),
    }
}

/// An executor for checks, which runs nothing.
fn checking_executor(
    context: &Context,
    supervisor: Arc<Supervisor>,
) -> Result<(Executor, Pool), Failure> {
    let listener = EventListener::new(|_| ());
    executor(context, supervisor, RunOptions::default(), listener)
}

/// An executor whose graphs report their progress.
fn executor(
    context: &Context,
    supervisor: Arc<Supervisor>,
    going: RunOptions,
    listener: EventListener,
) -> Result<(Executor, Pool), Failure> {
    let configure = |graphs: StateGraph| graphs.with_listener(listener).with_options(going);
    let pool = Pool::new(&supervisor);
    let executor = call::executor(context, supervisor, pool.clone(), configure)?;
    Ok((executor, pool))
}

/// Prints the state of a run that did not complete, and changes of its graph.
fn print_outcome(result: &ExecutionResult, context: &Context) {
    let printer = context.printer;
    if printer.quiet {
        return;
    }
    let note = |name: &str| result.metadata.get(name).and_then(Value::as_str);
    if let Some(difference) = note("diff") {
        print_difference(difference, context);
    }
    // A completed run has printed its end.
    let status = note("run_status").filter(|status| *status != "completed");
    if let (Some(run), Some(status)) = (note("run_id"), status) {
        let preposition = match status {
            "paused" | "limit" => "before",
            _ => "at",
        };
        let node = note("node").map(|node| format!(" {preposition} {}", sanitize(node)));
        let node = node.unwrap_or_default();
        let text = format!("run {} {status}{node}", short_id(run));
        printer.print_stderr(&format!("{}\n", paint(DIM, text)));
    }
}

/// Prints the difference between the graph of a run and the current one.
fn print_difference(difference: &str, context: &Context) {
    if context.printer.quiet {
        return;
    }
    for line in difference.lines() {
        let line = sanitize(line);
        let line = match line.chars().next() {
            Some('+') => format!("{}\n", paint(GOOD, line)),
            Some('-') => format!("{}\n", paint(BAD, line)),
            _ => format!("{line}\n"),
        };
        context.printer.print_stderr(&line);
    }
}
