//! The `execute` primitive: runs a process and ends its whole process tree with the call.

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lillux::process::{
    CapturedOutput, Command, Environment, ExecError, Exit, Output, Overflow, Supervisor,
};
use rye_protocol::json;
use serde_json::{Map, Value, json};

use super::{Call, CallFailure, CallFuture, CallOutcome, Primitive};
use crate::confinement::{ConfinedCall, Confinement, Process, QUARANTINED};

/// The `execute` primitive, which runs processes under a supervisor.
#[derive(Debug, Clone)]
pub struct Execute {
    supervisor: Arc<Supervisor>,
}

impl Execute {
    /// Creates the primitive.
    pub fn new(supervisor: Arc<Supervisor>) -> Self {
        Self { supervisor }
    }
}

impl Primitive for Execute {
    fn check(&self, call: Call) -> Result<(), CallFailure> {
        has_program(&call)?;
        let (process, call) = split(call);
        let checked = command(process, call).check();
        checked.map_err(|error| start_failure(&ExecError::Launch(error)))
    }

    fn run(&self, call: Call) -> CallFuture<'_> {
        Box::pin(async move {
            if let Err(failure) = has_program(&call) {
                return failure.into();
            }
            let confinement = call.confinement.clone();
            let (process, call) = split(call);
            if let Some(Confinement { call: confined, .. }) = confinement {
                return self.run_confined(&*confined, process, call).await;
            }
            match self.supervisor.exec(command(process, call)).await {
                Ok(output) => outcome(&output),
                Err(error) => start_failure(&error).into(),
            }
        })
    }

    fn is_confinable(&self) -> bool {
        true
    }
}

impl Execute {
    async fn run_confined(
        &self,
        confined: &dyn ConfinedCall,
        process: Process,
        call: Call,
    ) -> CallOutcome {
        let not_confined = |reason| CallFailure::new("sandbox", reason).into();
        let wrapped = match confined.wrap(process).await {
            Ok(wrapped) => wrapped,
            Err(reason) => return not_confined(reason),
        };
        let command = command(wrapped.process.clone(), call);
        let ended = self.supervisor.exec(command).await;
        // A process that failed or was killed may have created files too.
        let finished = confined.finish(&wrapped).await;
        let mut outcome = match &ended {
            Err(error) => start_failure(error).into(),
            Ok(output) => {
                let exit_code = match output.exit {
                    Exit::Code(code) => Some(code),
                    Exit::Signal(_) | Exit::Unknown => None,
                };
                let stderr = output.stderr.text();
                match confined.failure(&wrapped, exit_code, &stderr) {
                    Some(reason) => return not_confined(reason),
                    None => outcome(output),
                }
            }
        };
        match finished {
            Ok(files) if files.is_empty() => {}
            Ok(files) => {
                let entry = (QUARANTINED.to_owned(), json!(files));
                outcome.metadata.extend([entry]);
            }
            Err(reason) => outcome.failure = Some(CallFailure::new("sandbox", reason)),
        }
        outcome
    }
}

/// Fails if the command is empty, for example because it is an unset variable.
fn has_program(call: &Call) -> Result<(), CallFailure> {
    if text(call.config.get("command")).trim().is_empty() {
        let message = "the configuration has no `command`, or it is an unset variable";
        return Err(CallFailure::new("no_command", message));
    }
    Ok(())
}

/// Separates the process from the rest of the call.
fn split(mut call: Call) -> (Process, Call) {
    let config = &call.config;
    let command = text(config.get("command"));
    let arguments = config.get("args").and_then(Value::as_array);
    let arguments = arguments.into_iter().flatten().map(|it| text(Some(it)));
    let program = [command].into_iter().chain(arguments).map(OsString::from);
    let cwd = config.get("cwd").map(|cwd| PathBuf::from(text(Some(cwd))));
    let process = Process {
        program: program.collect(),
        cwd: cwd.unwrap_or_else(|| call.cwd.clone()),
        environment: Arc::unwrap_or_clone(std::mem::take(&mut call.environment)),
    };
    (process, call)
}

fn command(process: Process, call: Call) -> Command<'static> {
    let Call {
        mut config,
        timeout,
        spill,
        listener,
        ..
    } = call;
    let mut program = process.program.into_iter();
    let mut command = Command::new(program.next().unwrap_or_default())
        .args(program)
        .cwd(process.cwd)
        .environment(Environment::Exact);
    for (name, value) in process.environment {
        command = command.env(name, value);
    }
    // Move instead of copying, because parameters can be large.
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

/// Formats a value as an argument: a string unchanged, other values as JSON.
fn text(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

fn outcome(output: &Output) -> CallOutcome {
    let mut metadata = Map::new();
    record_overflow(&mut metadata, "stdout", &output.stdout);
    record_overflow(&mut metadata, "stderr", &output.stderr);
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
        None => parse_json(printed.trim(), &mut metadata),
        Some(_) => None,
    };
    let failure = failure(output, parsed.as_ref());
    let stderr = output.stderr.text();
    let data = match parsed {
        // The standard error of a failed tool explains its output.
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
            format!("timed out after {seconds:.1} s"),
        ));
    }
    match output.exit {
        Exit::Code(0) => {}
        Exit::Code(code) => {
            return Some(CallFailure::new(
                "exit_code",
                format!("exited with code {code}"),
            ));
        }
        Exit::Signal(signal) => {
            return Some(CallFailure::new(
                "signal",
                format!("terminated by signal {signal}"),
            ));
        }
        Exit::Unknown => {
            return Some(CallFailure::new(
                "exit_unknown",
                "the exit status is unknown",
            ));
        }
    }
    if output.survivors > 0 {
        return Some(CallFailure::new(
            "survivors",
            "some of its processes could not be terminated",
        ));
    }
    let data = data?;
    if data.get("success") != Some(&Value::Bool(false)) {
        return None;
    }
    let message = ["error", "message"]
        .into_iter()
        .find_map(|key| match data.get(key)? {
            Value::String(text) => Some(text.clone()),
            Value::Object(error) => error.get("message")?.as_str().map(str::to_owned),
            _ => None,
        });
    Some(CallFailure::new(
        "tool_failed",
        message.unwrap_or_else(|| "the tool reported a failure without a message".to_owned()),
    ))
}

fn start_failure(error: &ExecError) -> CallFailure {
    let code = match error {
        ExecError::Launch(_) => "cannot_start",
        ExecError::Supervision(_) | ExecError::Io(_) => "supervision",
    };
    CallFailure::new(code, error.to_string())
}

/// Parses a JSON result. Integers of more than 64 bits become strings, and a warning in the
/// metadata says so.
pub(crate) fn parse_json(text: &str, metadata: &mut Map<String, Value>) -> Option<Value> {
    let value = json::parse(text).ok()?;
    if matches!(json::quote_large_integers(text), Cow::Owned(_)) {
        let warning = "integers of more than 64 bits in the result became strings";
        metadata.insert("warnings".into(), json!([warning]));
    }
    Some(value)
}

/// Records in the metadata that a stream was truncated, and where the full output is stored.
pub fn record_overflow(metadata: &mut Map<String, Value>, name: &str, captured: &CapturedOutput) {
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
        Overflow::Dropped => {
            metadata.insert(format!("{name}_lost"), json!("no store is available"))
        }
    };
}
