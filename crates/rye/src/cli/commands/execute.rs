//! `rye execute`

mod help;
mod options;
mod outcome;
pub(super) mod parameters;
mod schema;
mod trace;
mod words;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lillux::path_policy::Protected;
use lillux::process::{Ask, Asks, Supervisor};
use rye_executor::{Envelope, ExecuteError, Executor, OutputListener, Request, Roots, Trace};
use rye_graph::{RunOptions, StateGraph};
use rye_host::ASKING;
use rye_items::{ItemRef, SYSTEM};
use rye_mcp::client::Pool;
use serde_json::{Map, Value};

use super::run::record::{Asked, Runs};
use crate::cli::args::{CallOptions, Cli, Command, ExecuteArgs, Global, Later, TraceChoice};
use crate::cli::color_choice;
use crate::cli::context::Context;
use crate::cli::failure::{Exit, Failure};
use crate::cli::printer::{Outcome, Printer, Report};
use crate::cli::terminal_asker;
use crate::settings;
pub(super) use options::Own;
use outcome::Refused;
pub(super) use outcome::report;

/// Who keeps the processes of a call. It is forked off first of all where it is
/// plain that it will be needed: what it copies is small then.
pub(crate) type Keeper = Option<Arc<Supervisor>>;

/// Forks off who will keep the tool's processes, if one is sure to run.
pub(crate) fn keeper(arguments: &[OsString]) -> Keeper {
    let mut words = arguments.iter().skip(1);
    let is_execute = words.next().is_some_and(|word| word == "execute");
    let needs_none = ["--async", "--help", "-h", "--dry-run"];
    if !is_execute || words.any(|word| needs_none.iter().any(|other| word == other)) {
        return None;
    }
    // What is wrong is told when it is needed.
    Supervisor::for_one_command().ok().map(Arc::new)
}

/// What was typed, if it is `rye execute ID …` without an option before the id. Scripts
/// call tools in loops, and to build the parser takes a good part of such a call.
/// Whatever is not that plain goes the long way, so what can be typed is decided in
/// one place all the same; a test holds the two together.
pub(crate) fn plain(arguments: &[OsString]) -> Option<Cli> {
    let (command, call) = arguments.get(1..)?.split_first()?;
    let is_name = |word: &OsString| {
        let first = word.as_encoded_bytes().first();
        first.is_some_and(|first| *first != b'-')
    };
    if command != "execute" || !call.first().is_some_and(is_name) {
        return None;
    }
    let call: Option<Vec<_>> = call.iter().map(|w| w.to_str().map(str::to_owned)).collect();
    Some(Cli {
        global: Global::default(),
        command: Command::Execute(Later(ExecuteArgs {
            options: CallOptions::default(),
            call: call?,
        })),
    })
}

pub(crate) fn run(
    args: ExecuteArgs,
    context: &mut Context,
    printer: &mut Printer,
    keeper: &mut Keeper,
) -> Outcome {
    let start = Instant::now();
    let ExecuteArgs { options, call } = args;
    let (id, words) = call
        .split_first()
        .map_or(("", &[][..]), |(id, words)| (id.as_str(), words));
    let reference: ItemRef = id.parse()?;
    let (executor, pool) = executor(context, keeper)?;
    let mut own = Own {
        options,
        ..Own::default()
    };
    let refused = |error: ExecuteError| Refused::new(&reference, error, start.elapsed());
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
        let read = words::read(words, schema, &mut own);
        apply(&own, words, context, printer);
        parameters = read
            .map_err(|failure| failure.or_hint(format!("rye execute {} --help", reference.id)))?;
    }
    if own.help {
        return Ok(help(&executor, &reference));
    }
    let given = own.options.params.as_deref();
    let parameters = parameters::merged(given, parameters)?;
    let mut request = Request::new(reference.clone()).parameters(parameters);
    request.timeout = own.options.timeout;
    request.dry_run = own.options.dry_run;
    if own.options.background && !request.dry_run {
        let asked = Asked::of(&request, context);
        // What would not run is told now, not to a log.
        request.dry_run = true;
        if let Err(error) = carry_out(&executor, &pool, request, &mut Trace::disabled())? {
            return Ok(Box::new(refused(error)));
        }
        return Runs::of(context)?.start(&asked);
    }
    let level = own.options.trace;
    let level = level.or(context.settings.debug.value.then_some(TraceChoice::Steps));
    let mut trace = level.map_or_else(Trace::disabled, |_| Trace::enabled());
    let outcome = carry_out(&executor, &pool, request, &mut trace)?;
    if let Some(level) = level {
        printer.aside(&trace::shown(&reference, trace.steps(), level));
    }
    match outcome {
        Ok(envelope) => {
            // Of a graph that nobody watches.
            let warnings = envelope.metadata.get("graph_warnings");
            let warnings = warnings.and_then(Value::as_array).into_iter().flatten();
            for warning in warnings.filter_map(Value::as_str) {
                context.printer.warn(warning, None);
            }
            report(envelope, context)
        }
        Err(error) => Ok(Box::new(refused(error))),
    }
}

/// Runs a tool to its end and gives its envelope, whatever happens. A graph is gone through
/// as it says.
pub(super) fn to_the_end(
    context: &Context,
    mut request: Request,
    listener: OutputListener,
    going: RunOptions,
) -> Result<Envelope, Failure> {
    let start = Instant::now();
    request.listener = Some(listener);
    let supervisor = supervisor(&mut None)?;
    let pool = terminal_asker::pool(&supervisor, context.printer);
    let roots = roots(context)?;
    let graphs = graphs(&roots, context).with_options(going);
    let executor = rye_host::executor_with(roots, supervisor, pool.clone(), graphs)?;
    let tool = request.tool.clone();
    let outcome = carry_out(&executor, &pool, request, &mut Trace::disabled())?;
    Ok(outcome.unwrap_or_else(|error| Envelope::from_error(&tool, &error, start.elapsed())))
}

/// An executor, and the servers that its tools may call.
fn executor(context: &Context, keeper: &mut Keeper) -> Result<(Executor, Pool), Failure> {
    let supervisor = supervisor(keeper)?;
    let pool = terminal_asker::pool(&supervisor, context.printer);
    let roots = roots(context)?;
    let graphs = graphs(&roots, context);
    let executor = rye_host::executor_with(roots, supervisor, pool.clone(), graphs)?;
    Ok((executor, pool))
}

/// Who walks graphs, and notes where they ask.
pub(crate) fn graphs(roots: &Roots, context: &Context) -> StateGraph {
    let graphs = StateGraph::new(&roots.project, roots.user.clone());
    match &context.settings.state_dir {
        Some(state) => graphs.with_pending_index(state.value.join(ASKING)),
        None => graphs,
    }
}

/// Who keeps the processes of this call.
pub(super) fn supervisor(keeper: &mut Keeper) -> Result<Arc<Supervisor>, Failure> {
    if let Some(supervisor) = keeper {
        return Ok(Arc::clone(supervisor));
    }
    let supervisor = Supervisor::start().map_err(|error| {
        let message = format_args!("cannot start who keeps processes: {error}");
        Failure::failed("supervisor", message)
    })?;
    Ok(Arc::clone(keeper.insert(Arc::new(supervisor))))
}

/// Where a call's items are, and where what is derived from them may be kept.
pub(crate) fn roots(context: &Context) -> Result<Roots, Failure> {
    let cache = context.cache().ok_or_else(|| {
        let message = "there is no folder for what is derived from items: HOME is not set";
        Failure::usage(message).hint("export RYE_CACHE_DIR=/the/folder")
    })?;
    let roots = &context.settings.places;
    Ok(Roots {
        project: roots.project.value.clone(),
        user: context.user().map(Into::into),
        bundles: roots.system_space.value.clone(),
        embedded: &SYSTEM,
        cache: cache.to_owned(),
        dev_mode: context.settings.dev_mode.value,
        protected: protected(context),
    })
}

/// The directories of the user that no tool, client or agent may use, and their homes.
pub(crate) fn protected(context: &Context) -> Protected {
    let settings = &context.settings;
    let home = settings::variable("HOME").map(PathBuf::from);
    let home = home.filter(|home| home.is_absolute());
    let user = context.user().map(Path::to_owned);
    let homes: Vec<_> = home.into_iter().chain(user).collect();
    let kept = [&settings.state_dir, &settings.cache_dir];
    let kept = kept.into_iter().flatten().map(|it| it.value.clone());
    // Those of a home count also where a variable names others.
    let keys = homes
        .iter()
        .flat_map(|it| rye_items::private_directories(it));
    let defaults = homes.iter().flat_map(|it| settings::default_folders(it));
    let private = keys.chain(kept).chain(defaults).collect();
    Protected { private, homes }
}

/// The parameters that were typed after an id, by the schema of its tool.
pub(super) fn typed(
    words: &[String],
    schema: Option<&Value>,
    own: &mut Own,
) -> Result<Map<String, Value>, Failure> {
    words::read(words, schema, own)
}

/// What a tool says about itself, and how it is called.
pub(super) fn help(executor: &Executor, tool: &ItemRef) -> Box<dyn Report> {
    match executor.chain(tool) {
        Ok(chain) => Box::new(help::Help::of(&chain)),
        Err(error) => refused(tool, error),
    }
}

/// A call that was refused.
pub(super) fn refused(tool: &ItemRef, error: ExecuteError) -> Box<dyn Report> {
    Box::new(Refused::new(tool, error, Duration::ZERO))
}

/// Lets what was typed after the id hold as if it had been typed before it.
pub(super) fn apply(own: &Own, words: &[String], context: &mut Context, printer: &mut Printer) {
    // One that stands behind a mistake counts all the same.
    let mut typed = words.iter().take_while(|word| *word != "--");
    printer.json |= own.json || typed.any(|word| word == "--json");
    printer.quiet |= own.quiet;
    if let Some(color) = own.color {
        printer.color = color_choice(color);
    }
    context.printer = *printer;
}

/// Runs a request. A person who interrupts it, or a signal to end, ends the whole tree.
pub(super) fn carry_out(
    executor: &Executor,
    pool: &Pool,
    request: Request,
    trace: &mut Trace,
) -> Result<Result<Envelope, ExecuteError>, Failure> {
    wait_for(async {
        let outcome = executor.try_execute(request, trace).await;
        pool.shutdown().await;
        outcome
    })
}

/// Waits for work to be done. A person who interrupts it, or a signal to end, ends all
/// that it started.
pub(super) fn wait_for<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    // In one place from here on: what waits for it holds a pointer, not a copy, and a
    // copy of some kilobytes at each step is memory that a short call never had.
    let work = std::pin::pin!(work);
    let unable = |error| Failure::failed("runtime", format_args!("cannot wait for it: {error}"));
    let mut asks = Asks::listen().map_err(unable)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(unable)?;
    let outcome = runtime.block_on(async {
        tokio::select! {
            outcome = work => Ok(outcome),
            ask = asks.next() => Err(match ask.map_err(unable)? {
                Ask::Interrupt => {
                    Failure::new(Exit::Interrupted, "interrupted", "it was interrupted and ended")
                }
                Ask::Terminate => {
                    Failure::new(Exit::Terminated, "terminated", "it was told to end and ended")
                }
            }),
        }
    });
    // Nothing is left in it, and this process is about to end.
    runtime.shutdown_timeout(Duration::ZERO);
    outcome
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use proptest::prelude::*;

    use super::*;

    const WORDS: [&str; 14] = [
        "hello",
        "execute",
        "--json",
        "--name",
        "--name=Ada",
        "--",
        "-",
        "-q",
        "--help",
        "--version",
        "--timeout",
        "5",
        "",
        "--project",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn what_goes_the_short_way_means_the_same_as_the_long_way(
            words in prop::collection::vec(prop::sample::select(&WORDS), 0..6)
        ) {
            let arguments: Vec<_> = ["rye", "execute"].into_iter().chain(words).map(OsString::from).collect();
            if let Some(short) = plain(&arguments) {
                let long = Cli::try_parse_from(&arguments).unwrap();
                prop_assert_eq!(format!("{:?}", short), format!("{:?}", long));
            }
        }
    }
}
