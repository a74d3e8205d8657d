//! `rye execute`: runs a tool.

mod help;
mod options;
mod outcome;
pub(super) mod param_args;
pub(super) mod parameters;
mod trace;

use std::sync::Arc;
use std::time::{Duration, Instant};

use lillux::process::Supervisor;
use rye_executor::{ExecuteError, Executor, Request, Trace};
use rye_host::call;
use rye_host::runs::background;
use rye_items::ItemRef;
use rye_mcp::client::Pool;
use serde_json::{Map, Value};

use crate::cli::args::{ExecuteArgs, TraceChoice};
use crate::cli::color_choice;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
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
    let ExecuteArgs {
        options,
        call: words,
    } = args;
    let (id, words) = words
        .split_first()
        .map_or(("", &[][..]), |(id, words)| (id.as_str(), words));
    let reference: ItemRef = id.parse()?;
    let (executor, pool) = executor(context, supervisor)?;
    let mut typed = TypedOptions::from(options);
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
    request.confine = typed.options.sandbox.is_some();
    if request.confine && typed.options.background {
        let message = "--sandbox and --async cannot be combined";
        return Err(Failure::usage(message).hint(format!("rye execute {} --help", reference.id)));
    }
    if typed.options.background && !request.dry_run {
        // Report errors now rather than in the log.
        let check = Request {
            dry_run: true,
            ..request.clone()
        };
        if let Err(error) = call::run_to_end(&executor, &pool, check, &mut Trace::disabled())? {
            return Ok(Box::new(refused(error)));
        }
        return Ok(Box::new(background::start(&request, context)?));
    }
    let level = typed.options.trace;
    let level = level.or(context.settings.debug.value.then_some(TraceChoice::Steps));
    let mut trace = level.map_or_else(Trace::disabled, |_| Trace::enabled());
    let outcome = call::run_to_end(&executor, &pool, request, &mut trace)?;
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

/// An executor, and the pool of MCP servers that its tools may call.
fn executor(
    context: &Context,
    supervisor: &mut StartedSupervisor,
) -> Result<(Executor, Pool), Failure> {
    let supervisor = supervisor_or_start(supervisor)?;
    let pool = terminal_asker::pool(&supervisor, context.printer);
    let executor = call::executor(context, supervisor, pool.clone(), |graphs| graphs)?;
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
