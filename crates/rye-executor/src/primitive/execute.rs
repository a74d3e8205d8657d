//! `execute`: a process, whose whole tree ends with the call.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lillux::process::{
    CapturedOutput, Command, Environment, ExecError, Exit, Output, Overflow, Supervisor,
};
use serde_json::{Map, Value, json};

use super::{Call, CallFailure, CallFuture, CallOutcome, Primitive};

/// Runs processes under a supervisor.
#[derive(Debug, Clone)]
pub struct Execute {
    supervisor: Arc<Supervisor>,
}

impl Execute {
    /// Runs them under this supervisor.
    pub fn new(supervisor: Arc<Supervisor>) -> Self {
        Self { supervisor }
    }
}

impl Primitive for Execute {
    fn run(&self, call: Call) -> CallFuture<'_> {
        Box::pin(async move {
            match self.supervisor.exec(command(call)).await {
                Ok(output) => done(&output),
                Err(error) => failed(&error),
            }
        })
    }
}

fn command(call: Call) -> Command<'static> {
    let Call {
        mut config,
        environment,
        cwd,
        timeout,
        spill,
        listener,
        ..
    } = call;
    let program = text(config.get("command"));
    let arguments = config.get("args").and_then(Value::as_array).cloned();
    let arguments = arguments.unwrap_or_default();
    let mut command = Command::new(program)
        .args(arguments.iter().map(|argument| text(Some(argument))))
        .cwd(
            config
                .get("cwd")
                .map_or(cwd, |cwd| PathBuf::from(text(Some(cwd)))),
        )
        .environment(Environment::Exact);
    for (name, value) in Arc::unwrap_or_clone(environment) {
        command = command.env(name, value);
    }
    // Moved rather than copied: parameters may be a hundred megabytes.
    match config.remove("input_data") {
        Some(Value::String(input)) => command = command.stdin(input),
        Some(Value::Null) | None => {}
        Some(other) => command = command.stdin(other.to_string()),
    }
    if let Some(timeout) = timeout {
        command = command.timeout(timeout);
    }
    if let Some(limit) = config.get("max_output").and_then(Value::as_u64) {
        command = command.output_limit(usize::try_from(limit).unwrap_or(usize::MAX));
    }
    if let Some(store) = spill.open() {
        command = command.spill_to(store);
    }
    if let Some(listener) = listener {
        command = command.on_output(move |stream, bytes| listener.on_output(stream, bytes));
    }
    command
}

/// A value as one word of a command line: a string as it is, other things as JSON.
fn text(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

fn done(output: &Output) -> CallOutcome {
    let mut metadata = Map::new();
    note_overflow(&mut metadata, "stdout", &output.stdout);
    note_overflow(&mut metadata, "stderr", &output.stderr);
    let exit_code = match output.exit {
        Exit::Code(code) => Some(code),
        Exit::Signal(signal) => {
            metadata.insert("signal".into(), json!(signal));
            None
        }
        Exit::Unknown => None,
    };
    if output.survivors > 0 {
        metadata.insert("survivors".into(), json!(output.survivors));
    }
    let printed = output.stdout.text();
    let parsed = match &output.stdout.overflow {
        None => serde_json::from_str::<Value>(printed.trim()).ok(),
        Some(_) => None,
    };
    let failure = failure(output, parsed.as_ref());
    let stderr = output.stderr.text();
    let data = match parsed {
        // What a failing tool said on the side explains what it printed.
        Some(value) => {
            if failure.is_some() && !stderr.is_empty() {
                metadata.insert("stderr".into(), json!(stderr));
            }
            value
        }
        None => json!({
            "stdout": printed,
            "stderr": stderr,
            "exit_code": exit_code,
        }),
    };
    CallOutcome {
        data,
        exit_code,
        failure,
        metadata,
    }
}

fn failure(output: &Output, data: Option<&Value>) -> Option<CallFailure> {
    if output.timed_out {
        let seconds = Duration::as_secs_f64(&output.duration);
        return Some(CallFailure::new(
            "timeout",
            format!("it was ended after {seconds:.1} s: its time was up"),
        ));
    }
    match output.exit {
        Exit::Code(0) => {}
        Exit::Code(code) => {
            return Some(CallFailure::new(
                "exit_code",
                format!("it ended with exit code {code}"),
            ));
        }
        Exit::Signal(signal) => {
            return Some(CallFailure::new(
                "signal",
                format!("it was ended by signal {signal}"),
            ));
        }
        Exit::Unknown => return Some(CallFailure::new("lost", "how it ended is not known")),
    }
    if output.survivors > 0 {
        return Some(CallFailure::new(
            "survivors",
            "some of its processes could not be ended",
        ));
    }
    let data = data?;
    if data.get("success") != Some(&Value::Bool(false)) {
        return None;
    }
    let said = ["error", "message"]
        .into_iter()
        .find_map(|key| match data.get(key)? {
            Value::String(text) => Some(text.clone()),
            Value::Object(error) => error.get("message")?.as_str().map(str::to_owned),
            _ => None,
        });
    Some(CallFailure::new(
        "tool_failed",
        said.unwrap_or_else(|| "it said that it failed".to_owned()),
    ))
}

fn failed(error: &ExecError) -> CallOutcome {
    let code = match error {
        ExecError::Launch(_) => "cannot_start",
        ExecError::Supervision(_) | ExecError::Io(_) => "supervision",
    };
    CallOutcome {
        failure: Some(CallFailure::new(code, error.to_string())),
        ..CallOutcome::default()
    }
}

/// What of a stream is not in `data`, and where it is.
pub fn note_overflow(metadata: &mut Map<String, Value>, name: &str, captured: &CapturedOutput) {
    let Some(overflow) = &captured.overflow else {
        return;
    };
    metadata.insert(format!("{name}_truncated"), json!(true));
    metadata.insert(format!("{name}_bytes"), json!(captured.total));
    match overflow {
        Overflow::Stored(hash) => metadata.insert(format!("{name}_hash"), json!(hash)),
        Overflow::Failed(error) => {
            metadata.insert(format!("{name}_lost"), json!(error.to_string()))
        }
        Overflow::Dropped => metadata.insert(
            format!("{name}_lost"),
            json!("there is no store to keep it in"),
        ),
    };
}
