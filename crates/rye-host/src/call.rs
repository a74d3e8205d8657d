//! Calls of tools: runs them to their end, and turns their errors into failures.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lillux::process::{ShutdownSignal, ShutdownSignals, Supervisor};
use rye_engine::BoxFuture;
use rye_executor::chain::ChainError;
use rye_executor::parameters::{ParameterError, Violation};
use rye_executor::{ErrorInfo, ExecuteError, ExecutionResult, Executor, Request, Trace};
use rye_graph::{RunOptions, StateGraph};
use rye_items::{ItemRef, LookupError};
use rye_mcp::client::Pool;
use serde_json::json;

use crate::context::Context;
use crate::failure::{Failure, FailureKind, UNVERIFIED};
use crate::meta_tools::executor_with;

/// An executor whose tools may call the MCP servers of a pool. `configure` changes how graphs run.
pub fn executor(
    context: &Context,
    supervisor: Arc<Supervisor>,
    pool: Pool,
    configure: impl FnOnce(StateGraph) -> StateGraph,
) -> Result<Executor, Failure> {
    let roots = context.roots()?;
    let graphs = configure(context.graphs(&roots));
    Ok(executor_with(roots, supervisor, pool, graphs)?)
}

/// Runs a tool and returns its result, even if the call is refused. Fails when `aborted` ends first.
pub(crate) fn execute_to_end(
    context: &Context,
    supervisor: Arc<Supervisor>,
    request: Request,
    going: RunOptions,
    aborted: Option<BoxFuture<'static, ()>>,
) -> Result<ExecutionResult, Failure> {
    let start = Instant::now();
    let pool = Pool::new(&supervisor);
    let configure = |graphs: StateGraph| graphs.with_options(going);
    let executor = executor(context, supervisor, pool.clone(), configure)?;
    let tool = request.tool.clone();
    let aborted = aborted.unwrap_or_else(|| Box::pin(std::future::pending()));
    let outcome = block_on_until_signal(async {
        let mut trace = Trace::disabled();
        let outcome = tokio::select! {
            outcome = executor.try_execute(request, &mut trace) => Ok(outcome),
            () = aborted => {
                let message = "the run was cancelled";
                Err(Failure::new(FailureKind::Terminated, "cancelled", message))
            }
        };
        pool.shutdown().await;
        outcome
    })??;
    Ok(outcome.unwrap_or_else(|error| ExecutionResult::from_error(&tool, &error, start.elapsed())))
}

/// Executes a request. SIGINT and SIGTERM end the whole process tree.
pub fn run_to_end(
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
pub fn block_on_until_signal<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
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
                    Failure::new(FailureKind::Interrupted, "interrupted", "interrupted")
                }
                ShutdownSignal::Terminate => {
                    Failure::new(FailureKind::Terminated, "terminated", "terminated")
                }
            }),
        }
    });
    // Nothing is left to run, and this process is about to exit.
    runtime.shutdown_timeout(Duration::ZERO);
    outcome
}

/// The failure of a call that ran, if its result is an error.
pub fn result_failure(result: &ExecutionResult) -> Option<Failure> {
    let ErrorInfo {
        code,
        message,
        hint,
        ..
    } = result.error.as_ref()?;
    let message = format!("{}: {message}", result.item_id);
    Some(match code.as_str() {
        "timeout" => Failure::new(FailureKind::TimedOut, "timeout", message)
            .hint(format!("rye execute --timeout 600 {}", result.item_id)),
        "not_permitted" => {
            Failure::new(FailureKind::Permission, "not_permitted", message).maybe_hint(hint.clone())
        }
        // A changed tool of an MCP server is like a changed file.
        "mcp_drift" => {
            Failure::new(FailureKind::Integrity, "mcp_drift", message).maybe_hint(hint.clone())
        }
        "record_altered" | "record_unsigned" | "record_untrusted" => {
            Failure::new(FailureKind::Integrity, "integrity", message).maybe_hint(hint.clone())
        }
        _ => Failure::failed("tool_failed", message).maybe_hint(hint.clone()),
    })
}

/// The failure of a refused call, the same as in other commands.
pub fn refusal(item: &ItemRef, error: ExecuteError) -> Failure {
    let help = format!("rye execute {} --help", item.id);
    match error {
        ExecuteError::Chain(ChainError::Item(source))
        | ExecuteError::Dependency(source)
        | ExecuteError::ConfigSyntax(source) => source.into(),
        ExecuteError::Unverified {
            error,
            all,
            command,
        } => {
            let all: Vec<_> = all
                .iter()
                .map(|problem| format!("{}: {}", problem.path.display(), problem.problem))
                .collect();
            refusal(item, *error)
                .detail(UNVERIFIED, all)
                .hint(format!("{command} # after reading them"))
        }
        ExecuteError::Path(source) => source.into(),
        ExecuteError::Parameters(ParameterError::Violations(ref all)) => {
            let message = format!("invalid parameters for {}", item.id);
            Failure::new(FailureKind::Usage, "invalid_parameters", message)
                .violations(all.iter().map(violation))
                .hint(help)
        }
        ExecuteError::Parameters(ParameterError::NotAnObject(_)) => {
            Failure::new(FailureKind::Usage, "invalid_parameters", error).hint(help)
        }
        ExecuteError::Chain(ChainError::NotATool(_)) => {
            let hint = format!("rye load {item}");
            Failure::new(FailureKind::Usage, "not_a_tool", error).hint(hint)
        }
        ExecuteError::Chain(ChainError::ExecutorNotFound {
            source: LookupError::NotFound { ref searched, .. },
            ..
        }) => {
            let searched: Vec<_> = searched.iter().map(|path| path.to_string_lossy()).collect();
            let message = format!("{error}; searched {}", searched.join(", "));
            Failure::failed("executor_not_found", message)
                .detail("searched", json!(searched))
                .maybe_hint(error.hint())
        }
        _ if error.is_integrity() => {
            Failure::new(FailureKind::Integrity, error.code(), &error).maybe_hint(error.hint())
        }
        _ => Failure::failed("refused", &error).maybe_hint(error.hint()),
    }
}

fn violation(Violation { pointer, message }: &Violation) -> String {
    if pointer.is_empty() {
        message.clone()
    } else {
        format!("{pointer}: {message}")
    }
}
