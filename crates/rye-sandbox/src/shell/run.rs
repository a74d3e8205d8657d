//! Executes scripts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rye_engine::sandbox::{ExecObserver, ExecOutput};

use super::builtins;
use super::expand::Expander;
use super::io::{Io, Sink};
use super::lex::{Mode, Stream, Streams};
use super::meter::{Halt, Meter};
use super::parse::{Command, Redirect, RunCondition, parse};
use crate::files::Files;
use crate::head_tail_buffer::HeadTailBuffer;
use crate::path::{WORKSPACE, resolve};

/// A script with its environment and limits.
pub(crate) struct Invocation {
    pub(crate) script: String,
    pub(crate) cwd: String,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) stdin: Vec<u8>,
    pub(crate) time: Duration,
    pub(crate) max_output: Option<usize>,
    pub(crate) max_streamed: Option<usize>,
}

/// The state of a running script.
pub(crate) struct Shell<'a> {
    pub(crate) files: &'a Mutex<Files>,
    pub(crate) observer: &'a dyn ExecObserver,
    pub(crate) cwd: String,
    pub(crate) variables: BTreeMap<String, String>,
    pub(crate) meter: Meter,
    pub(crate) out: HeadTailBuffer,
    pub(crate) err: HeadTailBuffer,
    pub(super) stdin: Arc<Vec<u8>>,
    status: i32,
}

impl<'a> Shell<'a> {
    /// Runs a script to its end.
    pub(crate) async fn run(
        invocation: Invocation,
        files: &'a Mutex<Files>,
        observer: &'a dyn ExecObserver,
    ) -> ExecOutput {
        let mut variables = invocation.env;
        variables
            .entry("HOME".to_owned())
            .or_insert_with(|| WORKSPACE.to_owned());
        let mut shell = Self {
            files,
            observer,
            cwd: invocation.cwd,
            variables,
            meter: Meter::new(invocation.time),
            out: HeadTailBuffer::new(invocation.max_output, invocation.max_streamed),
            err: HeadTailBuffer::new(invocation.max_output, invocation.max_streamed),
            stdin: Arc::new(invocation.stdin),
            status: 0,
        };
        shell.update_pwd();
        let outcome = shell.script(&invocation.script).await;
        let (exit_code, timed_out) = match outcome {
            Ok(()) => (Some(shell.status), false),
            Err(Halt::Exit(status)) => (Some(status), false),
            Err(Halt::Timeout) => (None, true),
            Err(Halt::LimitExceeded(what)) => {
                shell.report_error(what);
                // The exit status of a killed process.
                (Some(137), false)
            }
            Err(Halt::Fail(what)) => {
                shell.report_error(&what);
                (Some(2), false)
            }
        };
        let (stdout, is_out_truncated) = shell.out.finish();
        let (stderr, is_err_truncated) = shell.err.finish();
        ExecOutput {
            stdout,
            stderr,
            exit_code,
            timed_out,
            truncated: is_out_truncated || is_err_truncated,
        }
    }

    async fn script(&mut self, script: &str) -> Result<(), Halt> {
        let steps = parse(script).map_err(Halt::Fail)?;
        for step in steps {
            let runs = match step.condition {
                RunCondition::Always => true,
                RunCondition::OnSuccess => self.status == 0,
                RunCondition::OnFailure => self.status != 0,
            };
            if runs {
                self.status = self.pipeline(&step.pipeline).await?;
            }
        }
        Ok(())
    }

    async fn pipeline(&mut self, commands: &[Command]) -> Result<i32, Halt> {
        if let [command] = commands {
            return self
                .command(command, None, Sink::Out, &mut Vec::new())
                .await;
        }
        let mut stdin = None;
        let mut status = 0;
        for (index, command) in commands.iter().enumerate() {
            let is_last = index + 1 == commands.len();
            let out = if is_last { Sink::Out } else { Sink::Pipe };
            // Each command of a pipeline runs in a subshell: its changes are discarded.
            let before = (self.cwd.clone(), self.variables.clone());
            let mut pipe = Vec::new();
            status = match self.command(command, stdin, out, &mut pipe).await {
                Err(Halt::Exit(status)) => status,
                outcome => outcome?,
            };
            (self.cwd, self.variables) = before;
            stdin = Some(Arc::new(pipe));
        }
        Ok(status)
    }

    async fn command(
        &mut self,
        command: &Command,
        stdin: Option<Arc<Vec<u8>>>,
        out: Sink,
        pipe: &mut Vec<u8>,
    ) -> Result<i32, Halt> {
        self.meter.spend(1).await?;
        let mut words = Vec::new();
        let mut values = Vec::new();
        let mut redirects = Vec::new();
        {
            let files = self.files.lock();
            let files = files.unwrap_or_else(PoisonError::into_inner);
            let mut expander = Expander {
                variables: &self.variables,
                status: self.status,
                cwd: &self.cwd,
                files: &files,
                meter: &mut self.meter,
            };
            for word in &command.words {
                words.extend(expander.words(word)?);
            }
            for (name, value) in &command.assignments {
                values.push((name.clone(), expander.text(value)?));
            }
            for redirect in &command.redirects {
                redirects.push(match redirect {
                    Redirect::Input(path) => ResolvedRedirect::Input(expander.text(path)?),
                    Redirect::Output(streams, mode, path) => {
                        ResolvedRedirect::Output(*streams, *mode, expander.text(path)?)
                    }
                    Redirect::Duplicate(stream, other) => {
                        ResolvedRedirect::Duplicate(*stream, *other)
                    }
                });
            }
        }
        let mut words = words.into_iter();
        let name = words.next();
        if name.is_none() {
            self.variables.extend(values);
        }
        let mut io = Io {
            name: name.clone().unwrap_or_else(|| "shell".to_owned()),
            shell: self,
            stdin,
            out,
            err: Sink::Err,
            pipe,
        };
        let args: Vec<String> = words.collect();
        let outcome = match io.redirect(redirects) {
            Ok(()) if name.is_some() => builtins::run(&mut io, &args).await,
            outcome => outcome.map(|()| 0),
        };
        match outcome {
            Err(Halt::Fail(what)) => {
                io.report_error(&what);
                Ok(1)
            }
            outcome => outcome,
        }
    }

    /// Updates `$PWD`.
    pub(crate) fn update_pwd(&mut self) {
        let shown = display_path(&self.cwd);
        self.variables.insert("PWD".to_owned(), shown);
    }

    fn report_error(&mut self, what: &str) {
        let line = format!("shell: {what}\n");
        self.err.push(line.as_bytes(), self.observer);
    }
}

/// The absolute path of a workspace directory as the shell shows it.
pub(crate) fn display_path(path: &str) -> String {
    match path {
        "" => WORKSPACE.to_owned(),
        path => format!("{WORKSPACE}/{path}"),
    }
}

/// A redirection with its path expanded.
enum ResolvedRedirect {
    Input(String),
    Output(Streams, Mode, String),
    Duplicate(Stream, Stream),
}

impl Io<'_, '_> {
    fn redirect(&mut self, redirects: Vec<ResolvedRedirect>) -> Result<(), Halt> {
        for redirect in redirects {
            match redirect {
                ResolvedRedirect::Input(path) => {
                    self.stdin = Some(match path.as_str() {
                        "/dev/null" => Arc::default(),
                        path => {
                            let path = resolve(&self.shell.cwd, path)?;
                            self.files().read(&path)?
                        }
                    });
                }
                ResolvedRedirect::Duplicate(Stream::Err, Stream::Out) => {
                    self.err = self.out.clone();
                }
                ResolvedRedirect::Duplicate(Stream::Out, Stream::Err) => {
                    self.out = self.err.clone();
                }
                ResolvedRedirect::Duplicate(..) => {}
                ResolvedRedirect::Output(streams, mode, path) => {
                    let sink = self.open(&path, mode)?;
                    if streams != Streams::One(Stream::Out) {
                        self.err = sink.clone();
                    }
                    if streams != Streams::One(Stream::Err) {
                        self.out = sink;
                    }
                }
            }
        }
        Ok(())
    }

    fn open(&mut self, path: &str, mode: Mode) -> Result<Sink, Halt> {
        match path {
            "/dev/null" => return Ok(Sink::Nothing),
            "/dev/stdout" => return Ok(self.out.clone()),
            "/dev/stderr" => return Ok(self.err.clone()),
            _ => {}
        }
        let path = resolve(&self.shell.cwd, path)?;
        match mode {
            Mode::Replace => self.files().write(&path, b"")?,
            Mode::Append => self.files().append(&path, b"")?,
        }
        Ok(Sink::File(path))
    }
}
