//! `rye graph`: validate, run, step and draw state graphs.

pub(crate) mod progress;
mod show;
mod validate;

pub(crate) use validate::is_graph;

use std::sync::Arc;

use lillux::process::Supervisor;
use rye_executor::{Envelope, Executor, Request, Trace};
use rye_graph::{RecordError, RunOptions, RunStore};
use rye_items::ItemRef;
use rye_mcp::client::Pool;
use serde_json::{Map, Value};

use super::execute::{self, Keeper, Own, parameters};
use super::gate::graphs::trust;
use super::run::record::{self, Asked};
use crate::cli::args::{GraphCommand, GraphRunArgs, StepArgs};
use crate::cli::context::Context;
use crate::cli::engine::signing_key;
use crate::cli::failure::Failure;
use crate::cli::page::{BAD, DIM, GOOD, paint, plain};
use crate::cli::printer::{Outcome, Printer};

pub(crate) fn run(
    command: GraphCommand,
    context: &mut Context,
    printer: &mut Printer,
    keeper: &mut Keeper,
) -> Outcome {
    match command {
        GraphCommand::Validate(args) => validate::run(&args, context),
        GraphCommand::Show(args) => show::run(&args, context),
        GraphCommand::Run(args) => walk(args, context, printer, keeper),
        GraphCommand::Step(args) => step(&args, context, keeper),
    }
}

fn walk(
    args: GraphRunArgs,
    context: &mut Context,
    printer: &mut Printer,
    keeper: &mut Keeper,
) -> Outcome {
    if let Some(resume) = &args.resume {
        let going = RunOptions {
            resume: Some(resume.clone()),
            accept_changed: args.accept_changed,
            ..RunOptions::default()
        };
        let mut request = resumed(context, &going)?;
        request.timeout = args.timeout;
        let going = with_whole_id(context, going)?;
        if args.background {
            return in_background(context, keeper, request, &going);
        }
        return carried_out(context, keeper, request, going);
    }
    let (id, words) = args
        .call
        .split_first()
        .map_or(("", &[][..]), |(id, words)| (id.as_str(), words));
    let reference: ItemRef = id.parse()?;
    let mut own = Own::default();
    let mut typed = Map::new();
    if !words.is_empty() {
        let supervisor = execute::supervisor(keeper)?;
        let (executor, _) = equipped(context, supervisor, RunOptions::default())?;
        let tool = executor
            .tool(&reference)
            .map_err(|error| Failure::failed(error.code(), &error).maybe_hint(error.hint()))?;
        let schema = tool.metadata.config_schema();
        let read = execute::typed(words, schema, &mut own);
        execute::apply(&own, words, context, printer);
        typed = read?;
        if own.help {
            return Ok(execute::help(&executor, &reference));
        }
    }
    let given = args.params.or(own.options.params);
    let inputs = parameters::merged(given.as_deref(), typed)?;
    let mut request = Request::new(reference).parameters(inputs);
    request.timeout = args.timeout.or(own.options.timeout);
    if args.background || own.options.background {
        return in_background(context, keeper, request, &RunOptions::default());
    }
    carried_out(context, keeper, request, RunOptions::default())
}

/// Starts a process of its own that walks. What would not run is told now, not to a log.
fn in_background(
    context: &Context,
    keeper: &mut Keeper,
    mut request: Request,
    going: &RunOptions,
) -> Outcome {
    let mut asked = Asked::of(&request, context);
    validate::refuse(&request.tool, context)?;
    request.dry_run = true;
    let supervisor = execute::supervisor(keeper)?;
    let (executor, pool) = equipped(context, supervisor, RunOptions::default())?;
    let tool = request.tool.clone();
    if let Err(error) = execute::carry_out(&executor, &pool, request, &mut Trace::disabled())? {
        return Ok(execute::refused(&tool, error));
    }
    let Some(id) = &going.resume else {
        return record::Runs::of(context)?.start(&asked);
    };
    let runs = RunStore::new(context.settings.project());
    let found = runs.find(id)?;
    let run = found.clone().read()?;
    if run.state().is_live() {
        return Err(RecordError::InUse(id.clone()).into());
    }
    let trust = trust(context.settings.project(), context)?;
    let has_key = signing_key(context)?.is_some();
    found.check_resumable(&runs, &trust, has_key)?;
    let link = executor.tool(&tool);
    let link = link.map_err(|error| Failure::failed(error.code(), &error))?;
    let item = &link.item;
    if let Err(refusal) = run.check_resumable(item.bytes(), &item.hash, going.accept_changed) {
        if let Some(difference) = refusal.difference {
            show_difference(&difference, context);
        }
        let failure = Failure::failed(refusal.why.code, refusal.why.message);
        return Err(failure.maybe_hint(refusal.why.hint));
    }
    asked.resumes(going.accept_changed);
    record::Runs::of(context)?.start_again(id, &asked)
}

fn step(args: &StepArgs, context: &Context, keeper: &mut Keeper) -> Outcome {
    let state = parameters::object("--state", args.state.as_deref())?;
    let going = RunOptions {
        resume: args.resume.clone(),
        accept_changed: args.accept_changed,
        steps: Some(1),
        node: args.node.clone(),
        state,
    };
    let request = match &args.id {
        Some(id) => {
            let inputs = parameters::merged(args.params.as_deref(), Map::new())?;
            Request::new(id.parse()?).parameters(inputs)
        }
        None => resumed(context, &going)?,
    };
    let going = with_whole_id(context, going)?;
    carried_out(context, keeper, request, going)
}

/// The call that a run was begun with.
fn resumed(context: &Context, going: &RunOptions) -> Result<Request, Failure> {
    let run = going.resume.as_deref().unwrap_or_default();
    let run = RunStore::new(context.settings.project())
        .find(run)?
        .read()?;
    Ok(Request::new(run.graph().parse()?).parameters(run.inputs().clone()))
}

fn with_whole_id(context: &Context, mut going: RunOptions) -> Result<RunOptions, Failure> {
    if let Some(run) = &going.resume {
        going.resume = Some(RunStore::new(context.settings.project()).find(run)?.id);
    }
    Ok(going)
}

/// Walks, and tells how it goes and ends.
fn carried_out(
    context: &Context,
    keeper: &mut Keeper,
    request: Request,
    going: RunOptions,
) -> Outcome {
    validate::refuse(&request.tool, context)?;
    let supervisor = execute::supervisor(keeper)?;
    let (executor, pool) = equipped(context, supervisor, going)?;
    let tool = request.tool.clone();
    match execute::carry_out(&executor, &pool, request, &mut Trace::disabled())? {
        Ok(envelope) => {
            tell(&envelope, context);
            execute::report(envelope, context)
        }
        Err(error) => Ok(execute::refused(&tool, error)),
    }
}

/// An executor whose graphs tell how they go.
fn equipped(
    context: &Context,
    supervisor: Arc<Supervisor>,
    going: RunOptions,
) -> Result<(Executor, Pool), Failure> {
    let roots = execute::roots(context)?;
    let graphs = execute::graphs(&roots, context)
        .with_listener(progress::watcher(context.printer))
        .with_options(going);
    let pool = Pool::new(&supervisor);
    let executor = rye_host::executor_with(roots, supervisor, pool.clone(), graphs)?;
    Ok((executor, pool))
}

/// What a person wants to know beside the result.
fn tell(envelope: &Envelope, context: &Context) {
    let printer = context.printer;
    if printer.quiet {
        return;
    }
    let noted = |name: &str| envelope.metadata.get(name).and_then(Value::as_str);
    if let Some(difference) = noted("difference") {
        show_difference(difference, context);
    }
    // One that came to its end has told so.
    let status = noted("run_status").filter(|status| *status != "completed");
    if let (Some(run), Some(status)) = (noted("run_id"), status) {
        let place = match status {
            "paused" | "limit" => "before",
            _ => "at",
        };
        let node = noted("node").map(|node| format!(" {place} {}", plain(node)));
        let node = node.unwrap_or_default();
        let words = format!("run {run} {status}{node}");
        printer.aside(&format!("{}\n", paint(DIM, words)));
    }
}

/// Shows what is different about a graph.
fn show_difference(difference: &str, context: &Context) {
    if context.printer.quiet {
        return;
    }
    for line in difference.lines() {
        let line = plain(line);
        let line = match line.chars().next() {
            Some('+') => format!("{}\n", paint(GOOD, line)),
            Some('-') => format!("{}\n", paint(BAD, line)),
            _ => format!("{line}\n"),
        };
        context.printer.aside(&line);
    }
}
