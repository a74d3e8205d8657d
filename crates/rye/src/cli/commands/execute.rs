//! `rye execute`: runs a tool.

mod help;
mod options;
mod outcome;
pub(super) mod param_args;
pub(super) mod parameters;
mod schema;
mod trace;

use std::sync::Arc;
use std::time::{Duration, Instant};

use lillux::process::{ShutdownSignal, ShutdownSignals, Supervisor};
use rye_engine::BoxFuture;
use rye_executor::{ExecuteError, ExecutionResult, Executor, Request, Trace};
use rye_graph::RunOptions;
use rye_items::ItemRef;
use rye_mcp::client::Pool;
use serde_json::{Map, Value};

use super::run;
use crate::cli::args::{ExecuteArgs, TraceChoice};
use crate::cli::color_choice;
use crate::cli::context::Context;
use crate::cli::failure::{Exit, Failure};
use crate::cli::printer::{Outcome, Printer, Report};
use crate::cli::terminal_asker;
pub(super) use options::TypedOptions;
use outcome::RefusedCall;
pub(super) use outcome::report;

/// The supervisor of the tool's processes, once it was started.
pub(crate) type StartedSupervisor = Option<Arc<Supervisor>>;

pub(crate) fn run(
    args: ExecuteArgs,
    context: &mut Context,
    printer: &mut Printer,
    supervisor: &mut StartedSupervisor,
) -> Outcome {
    let start = Instant::now();
    let ExecuteArgs { options, call } = args;
    let (id, words) = call
        .split_first()
        .map_or(("", &[][..]), |(id, words)| (id.as_str(), words));
    let reference: ItemRef = id.parse()?;
    let (executor, pool) = executor(context, supervisor)?;
    let mut typed = TypedOptions {
        options,
        ..TypedOptions::default()
    };
    let refused = |error: ExecuteError| RefusedCall::new(&reference, error, start.elapsed());
    let mut parameters = Map::new();
    if !words.is_empty() {
        let tool = match executor.tool(&reference) {
            Ok(tool) => tool,
            Err(error) => {
                printer.json |= words.iter().any(|word| word == "--json");
                return Ok(Box::new(refused(error)));
            }
        };
        let schema = tool.metadata.config_schema();
        let parsed = param_args::parse(words, schema, &mut typed);
        apply(&typed, words, context, printer);
        parameters = parsed
            .map_err(|failure| failure.or_hint(format!("rye execute {} --help", reference.id)))?;
    }
    if typed.help {
        return Ok(help(&executor, &reference));
    }
    let given = typed.options.params.as_deref();
    let parameters = parameters::merged(given, parameters)?;
    let mut request = Request::new(reference.clone()).with_parameters(parameters);
    request.timeout = typed.options.timeout;
    request.dry_run = typed.options.dry_run;
    if typed.options.background && !request.dry_run {
        // Report errors now rather than in the log.
        let check = Request {
            dry_run: true,
            ..request.clone()
        };
        if let Err(error) = run_request_to_end(&executor, &pool, check, &mut Trace::disabled())? {
            return Ok(Box::new(refused(error)));
        }
        return run::start(&request, context);
    }
    let level = typed.options.trace;
    let level = level.or(context.settings.debug.value.then_some(TraceChoice::Steps));
    let mut trace = level.map_or_else(Trace::disabled, |_| Trace::enabled());
    let outcome = run_request_to_end(&executor, &pool, request, &mut trace)?;
    if let Some(level) = level {
        printer.print_stderr(&trace::render(&reference, trace.steps(), level));
    }
    match outcome {
        Ok(result) => {
            // Warnings of a graph, which is not followed here.
            let warnings = result.metadata.get("graph_warnings");
            let warnings = warnings.and_then(Value::as_array).into_iter().flatten();
            for warning in warnings.filter_map(Value::as_str) {
                context.printer.warn(warning, None);
            }
            report(result, context)
        }
        Err(error) => Ok(Box::new(refused(error))),
    }
}

/// Runs a tool and returns its result, even if the call is refused. Fails when `aborted` ends first.
pub(super) fn execute_to_end(
    context: &Context,
    supervisor: Arc<Supervisor>,
    request: Request,
    going: RunOptions,
    aborted: Option<BoxFuture<'static, ()>>,
) -> Result<ExecutionResult, Failure> {
    let start = Instant::now();
    let pool = terminal_asker::pool(&supervisor, context.printer);
    let roots = context.roots()?;
    let graphs = context.graphs(&roots).with_options(going);
    let executor = rye_host::executor_with(roots, supervisor, pool.clone(), graphs)?;
    let tool = request.tool.clone();
    let aborted = aborted.unwrap_or_else(|| Box::pin(std::future::pending()));
    let outcome = block_on_until_signal(async {
        let mut trace = Trace::disabled();
        let outcome = tokio::select! {
            outcome = executor.try_execute(request, &mut trace) => Ok(outcome),
            () = aborted => {
                let message = "the run was cancelled";
                Err(Failure::new(Exit::Terminated, "cancelled", message))
            }
        };
        pool.shutdown().await;
        outcome
    })??;
    Ok(outcome.unwrap_or_else(|error| ExecutionResult::from_error(&tool, &error, start.elapsed())))
}

/// An executor, and the pool of MCP servers that its tools may call.
fn executor(
    context: &Context,
    supervisor: &mut StartedSupervisor,
) -> Result<(Executor, Pool), Failure> {
    let supervisor = supervisor_or_start(supervisor)?;
    let pool = terminal_asker::pool(&supervisor, context.printer);
    let roots = context.roots()?;
    let graphs = context.graphs(&roots);
    let executor = rye_host::executor_with(roots, supervisor, pool.clone(), graphs)?;
    Ok((executor, pool))
}

/// The supervisor, which is started if necessary. Tools inherit ignored signals, as under `nohup`.
pub(super) fn supervisor_or_start(
    started: &mut StartedSupervisor,
) -> Result<Arc<Supervisor>, Failure> {
    if let Some(supervisor) = started {
        return Ok(Arc::clone(supervisor));
    }
    let supervisor = Supervisor::for_one_command().map_err(|error| {
        let message = format_args!("cannot start the process supervisor: {error}");
        Failure::failed("supervisor", message)
    })?;
    Ok(Arc::clone(started.insert(Arc::new(supervisor))))
}

/// The help of a tool.
pub(super) fn help(executor: &Executor, tool: &ItemRef) -> Box<dyn Report> {
    match executor.chain(tool) {
        Ok(chain) => Box::new(help::ToolHelp::new(&chain)),
        Err(error) => refused(tool, error),
    }
}

/// The report of a refused call.
pub(super) fn refused(tool: &ItemRef, error: ExecuteError) -> Box<dyn Report> {
    Box::new(RefusedCall::new(tool, error, Duration::ZERO))
}

/// Applies global options that were typed after the id.
pub(super) fn apply(
    options: &TypedOptions,
    words: &[String],
    context: &mut Context,
    printer: &mut Printer,
) {
    // `--json` counts even if parsing failed before it.
    let mut typed = words.iter().take_while(|word| *word != "--");
    printer.json |= options.json || typed.any(|word| word == "--json");
    printer.quiet |= options.quiet;
    if let Some(color) = options.color {
        printer.color = color_choice(color);
    }
    context.set_printer(*printer);
}

/// Executes a request. SIGINT and SIGTERM end the whole process tree.
pub(super) fn run_request_to_end(
    executor: &Executor,
    pool: &Pool,
    request: Request,
    trace: &mut Trace,
) -> Result<Result<ExecutionResult, ExecuteError>, Failure> {
    block_on_until_signal(async {
        let outcome = executor.try_execute(request, trace).await;
        pool.shutdown().await;
        outcome
    })
}

/// Runs a future to completion on a current-thread runtime, or fails on SIGINT or SIGTERM.
pub(super) fn block_on_until_signal<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    // Pinned here, because moving the large future at each step costs memory in short calls.
    let work = std::pin::pin!(work);
    let unable = |error| Failure::failed("runtime", format_args!("cannot run the call: {error}"));
    let mut signals = ShutdownSignals::listen().map_err(unable)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(unable)?;
    let outcome = runtime.block_on(async {
        tokio::select! {
            outcome = work => Ok(outcome),
            ask = signals.next() => Err(match ask.map_err(unable)? {
                ShutdownSignal::Interrupt => {
                    Failure::new(Exit::Interrupted, "interrupted", "interrupted")
                }
                ShutdownSignal::Terminate => {
                    Failure::new(Exit::Terminated, "terminated", "terminated")
                }
            }),
        }
    });
    // Nothing is left to run, and this process is about to exit.
    runtime.shutdown_timeout(Duration::ZERO);
    outcome
}
