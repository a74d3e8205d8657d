//! Reports of calls: output, result and exit code.

use std::path::PathBuf;
use std::time::Duration;

use lillux::cas::{Cas, Kind};
use lillux::shell_word;
use rye_executor::{ExecuteError, ExecutionResult, Status};
use rye_host::call;
use rye_items::ItemRef;
use serde_json::{Value, json};

use crate::cli::context::Context;
use crate::cli::failure::Failure;
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
        call::result_failure(&self.0)
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
        let failure = call::refusal(item, error);
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
