//! Reports of calls: output, result and exit code.

use std::path::PathBuf;
use std::time::Duration;

use lillux::cas::{Cas, Kind};
use lillux::shell_word;
use rye_executor::chain::ChainError;
use rye_executor::parameters::{ParameterError, Violation};
use rye_executor::{ErrorInfo, ExecuteError, ExecutionResult, Status};
use rye_items::{ItemRef, LookupError};
use serde_json::{Value, json};

use crate::cli::context::Context;
use crate::cli::failure::{Exit, Failure};
use crate::cli::page::{DIM, GOOD, Page, paint, sanitize};
use crate::cli::printer::{Outcome, Printer, Report};

/// Reports the result of a call. Copies the tool's output to the same streams, byte for byte.
pub(in crate::cli::commands) fn report(result: ExecutionResult, context: &Context) -> Outcome {
    let note = |name: &str| result.metadata.get(name).and_then(Value::as_str);
    let warnings = result.metadata.get("warnings").and_then(Value::as_array);
    for warning in warnings.into_iter().flatten().filter_map(Value::as_str) {
        context.printer.warn(warning, None);
    }
    for stream in ["stdout", "stderr", "result"] {
        if let Some(hash) = note(&format!("{stream}_hash")) {
            let text = format!("{stream} is too long to show in full");
            let hint =
                stored_output(hash, context).map(|path| format!("cat {}", shell_word(&path)));
            context.printer.warn(&text, hint.as_deref());
        } else if let Some(why) = note(&format!("{stream}_lost")) {
            let text = format!("{stream} is truncated: {why}");
            context.printer.warn(&text, None);
        }
    }
    if !context.printer.json {
        let (stdout, stderr) = match process_output(&result.data) {
            Some(both) => both,
            None => ("", note("stderr").unwrap_or_default()),
        };
        let unable = |error| {
            let message = format_args!("cannot write to standard output: {error}");
            Failure::failed("io", message)
        };
        Printer::raw(stdout.as_bytes()).map_err(unable)?;
        Printer::raw_error(stderr.as_bytes());
    }
    Ok(Box::new(CallReport(result)))
}

/// Path of the complete output.
fn stored_output(hash: &str, context: &Context) -> Option<PathBuf> {
    let store = Cas::open_existing(context.cache()?.join("output")).ok()?;
    Some(store.path_of(Kind::Blob, &hash.parse().ok()?))
}

/// Standard output and error of a process, if that is the whole result.
fn process_output(data: &Value) -> Option<(&str, &str)> {
    let fields = data.as_object()?;
    let text = |name: &str| fields.get(name)?.as_str();
    let both = text("stdout").zip(text("stderr"))?;
    (fields.len() == 3 && fields.contains_key("exit_code")).then_some(both)
}

/// A call that ran, or a dry run.
struct CallReport(ExecutionResult);

impl Report for CallReport {
    fn json(&self) -> Value {
        json!(self.0)
    }

    fn is_complete_document(&self) -> bool {
        true
    }

    fn show(&self, page: &mut Page) {
        let result = &self.0;
        if result.status == Status::ValidationPassed {
            let chain = result.chain.join(" → ");
            let files = result.chain.len();
            page.line(format_args!(
                "{} {}: chain of {files} files verified",
                paint(GOOD, "would run"),
                result.item_id
            ));
            page.line(paint(DIM, chain));
            return;
        }
        match &result.data {
            Value::Null => {}
            data if process_output(data).is_some() => {}
            Value::String(text) => page.line(sanitize(text.trim_end())),
            data => {
                let text = serde_json::to_string_pretty(data).unwrap_or_default();
                page.line(sanitize(&text));
            }
        }
    }

    fn failure(&self) -> Option<Failure> {
        let ErrorInfo {
            code,
            message,
            hint,
            ..
        } = self.0.error.as_ref()?;
        let message = format!("{}: {message}", self.0.item_id);
        Some(match code.as_str() {
            "timeout" => Failure::new(Exit::TimedOut, "timeout", message)
                .hint(format!("rye execute --timeout 600 {}", self.0.item_id)),
            "not_permitted" => {
                Failure::new(Exit::Permission, "not_permitted", message).maybe_hint(hint.clone())
            }
            // A changed tool of an MCP server is like a changed file.
            "mcp_drift" => {
                Failure::new(Exit::Integrity, "mcp_drift", message).maybe_hint(hint.clone())
            }
            "record_altered" | "record_unsigned" | "record_untrusted" => {
                Failure::new(Exit::Integrity, "integrity", message).maybe_hint(hint.clone())
            }
            _ => Failure::failed("tool_failed", message).maybe_hint(hint.clone()),
        })
    }
}

/// A call that was refused before anything ran.
pub(crate) struct RefusedCall {
    result: ExecutionResult,
    failure: Failure,
}

impl RefusedCall {
    pub(super) fn new(item: &ItemRef, error: ExecuteError, duration: Duration) -> Self {
        let result = ExecutionResult::from_error(item, &error, duration);
        let failure = failure(item, error);
        Self { result, failure }
    }
}

impl Report for RefusedCall {
    fn json(&self) -> Value {
        json!(self.result)
    }

    fn is_complete_document(&self) -> bool {
        true
    }

    fn show(&self, _: &mut Page) {}

    fn failure(&self) -> Option<Failure> {
        Some(self.failure.clone())
    }
}

/// The failure of a refused call, the same as in other commands.
fn failure(item: &ItemRef, error: ExecuteError) -> Failure {
    let help = format!("rye execute {} --help", item.id);
    match error {
        ExecuteError::Chain(ChainError::Item(source)) | ExecuteError::Dependency(source) => {
            source.into()
        }
        ExecuteError::Path(source) => source.into(),
        ExecuteError::Parameters(ParameterError::Violations(ref all)) => {
            let message = format!("invalid parameters for {}", item.id);
            Failure::new(Exit::Usage, "invalid_parameters", message)
                .violations(all.iter().map(violation))
                .hint(help)
        }
        ExecuteError::Parameters(ParameterError::NotAnObject(_)) => {
            Failure::new(Exit::Usage, "invalid_parameters", error).hint(help)
        }
        ExecuteError::Chain(ChainError::NotATool(_)) => {
            let hint = format!("rye load {item}");
            Failure::new(Exit::Usage, "not_a_tool", error).hint(hint)
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
            Failure::new(Exit::Integrity, error.code(), &error).maybe_hint(error.hint())
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
