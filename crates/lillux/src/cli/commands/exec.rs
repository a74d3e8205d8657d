//! `lillux exec`

use std::io;
use std::os::fd::AsFd;

use base64ct::{Base64, Encoding as _};
use lillux::cas::Cas;
use lillux::process::{
    CapturedOutput, Environment, ExecError, Exit as ProcessExit, LaunchError, Output, Overflow,
    Supervisor,
};
use serde_json::{Map, Value, json};

use crate::cli::args::{ExecArgs, Inherit, ProgramArgs};
use crate::cli::report::{Exit, Failure, Report};

pub(crate) fn run(args: ExecArgs) -> Result<Report, Failure> {
    let supervisor =
        Supervisor::for_one_command().map_err(|e| Failure::new(Exit::Failed, "supervisor", e))?;
    let mut command = command(args.program)
        .grace(args.grace)
        .output_limit(args.max_output);
    if let Some(timeout) = args.timeout {
        command = command.timeout(timeout);
    }
    if let Some(root) = args.spill {
        command = command.spill_to(Cas::open(root)?);
    }
    if let Some(text) = args.stdin {
        command = command.stdin(text);
    }
    if args.stdin_pipe {
        let own = io::stdin().as_fd().try_clone_to_owned();
        command = command.stdin_fd(own.map_err(|e| Failure::new(Exit::Failed, "stdin", e))?);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|e| Failure::new(Exit::Failed, "runtime", e))?;
    let output = runtime.block_on(supervisor.exec(command));
    supervisor.shut_down();
    Ok(report(&output?))
}

/// The part of a command that is common to `exec` and `spawn`.
pub(super) fn command(args: ProgramArgs) -> lillux::process::Command<'static> {
    let mut command = lillux::process::Command::new(args.cmd)
        .args(args.args)
        .environment(match args.inherit {
            Inherit::All => Environment::Inherit,
            Inherit::Minimal => Environment::Minimal,
            Inherit::None => Environment::Exact,
        });
    if let Some(cwd) = args.cwd {
        command = command.cwd(cwd);
    }
    for (name, value) in args.env {
        command = command.env(name, value);
    }
    command
}

fn report(output: &Output) -> Report {
    let mut fields = Map::new();
    for (name, captured) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
        describe_stream(&mut fields, name, captured);
    }
    fields.insert("return_code".into(), json!(output.exit.return_code()));
    if let ProcessExit::Signal(signal) = output.exit {
        fields.insert("signal".into(), json!(signal));
    }
    let milliseconds = u64::try_from(output.duration.as_millis()).unwrap_or(u64::MAX);
    fields.insert("duration_ms".into(), json!(milliseconds));
    fields.insert("timed_out".into(), json!(output.timed_out));
    let truncated = output.stdout.is_truncated() || output.stderr.is_truncated();
    fields.insert("truncated".into(), json!(truncated));
    if output.survivors > 0 {
        fields.insert("survivors".into(), json!(output.survivors));
    }
    let exit = match output {
        Output {
            timed_out: true, ..
        } => Exit::TimedOut,
        output if output.success() => Exit::Success,
        _ => Exit::Failed,
    };
    Report::with_exit(exit, Value::Object(fields))
}

/// Adds a stream as text, in base64 if it is not UTF-8, and what happened to a stream beyond the
/// limit.
fn describe_stream(fields: &mut Map<String, Value>, name: &str, captured: &CapturedOutput) {
    fields.insert(name.into(), json!(captured.text()));
    if std::str::from_utf8(&captured.bytes).is_err() {
        let encoded = Base64::encode_string(&captured.bytes);
        fields.insert(format!("{name}_base64"), json!(encoded));
    }
    let Some(overflow) = &captured.overflow else {
        return;
    };
    fields.insert(format!("{name}_bytes"), json!(captured.total));
    match overflow {
        Overflow::Stored(hash) => fields.insert(format!("{name}_hash"), json!(hash)),
        Overflow::Failed(error) => fields.insert(format!("{name}_lost"), json!(error.to_string())),
        Overflow::Dropped => None,
    };
}

impl From<ExecError> for Failure {
    fn from(error: ExecError) -> Self {
        match error {
            ExecError::Launch(error) => error.into(),
            ExecError::Supervision(_) => Self::new(Exit::Failed, "supervision", error),
            ExecError::Io(_) => Self::new(Exit::Failed, "io", error),
        }
    }
}

impl From<LaunchError> for Failure {
    fn from(error: LaunchError) -> Self {
        let message = error.to_string();
        match error {
            LaunchError::NoProgram | LaunchError::Nul { .. } | LaunchError::VariableName(_) => {
                Self::usage(message)
            }
            LaunchError::NotFound { .. } => Self::new(Exit::Failed, "program_not_found", message)
                .hint("pass the path of the program, or set PATH with --env PATH=…"),
            LaunchError::TooLong { .. } => Self::new(Exit::Failed, "too_long", message),
            LaunchError::Cwd { source, .. } => from_io("cwd", &source, message),
            LaunchError::Program { source, program } => {
                let is_dir = std::path::Path::new(&program).is_dir();
                let failure = from_io("program", &source, message);
                match source.raw_os_error() {
                    Some(libc::ENOEXEC) => failure.hint("add a first line such as `#!/bin/sh` to the script, or run it with --cmd sh --arg FILE"),
                    Some(libc::EACCES) if is_dir => failure.hint("it is a directory"),
                    Some(libc::EACCES) => failure.hint(format!(
                        "chmod +x {}",
                        lillux::shell_word(program.as_ref())
                    )),
                    _ => failure,
                }
            }
            LaunchError::System { source, .. } => from_io("system", &source, message),
        }
    }
}

fn from_io(code: &'static str, source: &io::Error, message: String) -> Failure {
    match source.kind() {
        io::ErrorKind::PermissionDenied => Failure::new(Exit::Permission, code, message),
        _ => Failure::new(Exit::Failed, code, message),
    }
}
