//! Executes scripts.

use std::collections::BTreeMap;
use std::mem::{replace, take};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rye_engine::BoxFuture;
use rye_engine::sandbox::{ExecObserver, ExecOutput};

use super::io::{Input, Io, ResolvedRedirect, StandardStreams, buffer, take_buffer};
use super::meter::{Halt, Meter};
use super::parse::parse;
use super::syntax::{
    Assignment, Command, CommandKind, List, Pipeline, Redirect, RunCondition, Word,
};
use super::{builtins, pattern};
use crate::files::Files;
use crate::head_tail_buffer::HeadTailBuffer;
use crate::path::WORKSPACE;

/// Maximum depth of nested commands and words, including calls of functions. Each level takes up
/// to 16 KiB of the stack in a debug build.
const MAX_DEPTH: usize = 64;

/// Work of running a command, in addition to what it processes.
const COMMAND_COST: usize = 256;

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

/// The state that a subshell has a copy of.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    pub(crate) cwd: String,
    pub(crate) variables: BTreeMap<String, String>,
    functions: BTreeMap<String, Arc<Command>>,
    /// Positional parameters.
    pub(crate) arguments: Vec<String>,
    /// `set -e`: end the script when a command fails.
    pub(crate) errexit: bool,
    /// `set -u`: end the script when an unset parameter is used.
    pub(crate) nounset: bool,
    /// `set -o pipefail`: a pipeline fails if one of its commands fails.
    pub(crate) pipefail: bool,
    /// Number of loops around the current command.
    pub(crate) loops: u32,
    /// Number of conditions around the current command, in which `set -e` has no effect.
    conditions: usize,
    /// Depth of nesting.
    pub(crate) depth: usize,
    /// Variables to restore when the function returns, in each function that runs.
    pub(crate) locals: Vec<Vec<(String, Option<String>)>>,
}

/// A running script.
pub(crate) struct Shell<'a> {
    pub(crate) files: &'a Mutex<Files>,
    pub(crate) observer: &'a dyn ExecObserver,
    pub(crate) state: State,
    pub(crate) meter: Meter,
    pub(crate) out: HeadTailBuffer,
    pub(crate) err: HeadTailBuffer,
    pub(crate) streams: StandardStreams,
    pub(crate) status: i32,
    /// Status of the last substitution in the current command.
    substitution_status: Option<i32>,
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
            state: State {
                cwd: invocation.cwd,
                variables,
                ..State::default()
            },
            meter: Meter::new(invocation.time),
            out: HeadTailBuffer::new(invocation.max_output, invocation.max_streamed),
            err: HeadTailBuffer::new(invocation.max_output, invocation.max_streamed),
            streams: StandardStreams::new(invocation.stdin),
            status: 0,
            substitution_status: None,
        };
        shell.update_pwd();
        let outcome = match parse(&invocation.script) {
            Ok(list) => shell.list(&list).await,
            Err(what) => Err(Halt::Fail(what)),
        };
        let (exit_code, timed_out) = match outcome {
            Ok(()) | Err(Halt::Break(_) | Halt::Continue(_)) => (Some(shell.status), false),
            Err(Halt::Exit(status) | Halt::Return(status)) => (Some(status), false),
            Err(Halt::Timeout) => (None, true),
            Err(Halt::LimitExceeded(what)) => {
                shell.report_error(what);
                // The exit status of a killed process.
                (Some(137), false)
            }
            Err(Halt::Abort(what)) => {
                shell.report_error(&what);
                (Some(1), false)
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
            ..ExecOutput::default()
        }
    }

    /// Runs commands one after the other.
    fn list<'s>(&'s mut self, list: &'s List) -> BoxFuture<'s, Result<(), Halt>> {
        Box::pin(async move {
            for (index, step) in list.iter().enumerate() {
                let runs = match step.condition {
                    RunCondition::Always => true,
                    RunCondition::OnSuccess => self.status == 0,
                    RunCondition::OnFailure => self.status != 0,
                };
                if !runs {
                    continue;
                }
                let next = list.get(index + 1).map(|next| next.condition);
                let is_condition =
                    step.pipeline.is_negated || !matches!(next, None | Some(RunCondition::Always));
                self.state.conditions += usize::from(is_condition);
                let outcome = self.pipeline(&step.pipeline).await;
                self.state.conditions -= usize::from(is_condition);
                self.status = outcome?;
                let fails = self.status != 0 && !is_condition && self.state.conditions == 0;
                if fails && self.state.errexit {
                    return Err(Halt::Exit(self.status));
                }
            }
            Ok(())
        })
    }

    async fn pipeline(&mut self, pipeline: &Pipeline) -> Result<i32, Halt> {
        let mut status = 0;
        if let [command] = pipeline.commands.as_slice() {
            status = self.command(command).await?;
        } else {
            let before = self.streams.clone();
            for (index, command) in pipeline.commands.iter().enumerate() {
                let (sink, output) = buffer();
                self.streams.out = if index + 1 == pipeline.commands.len() {
                    before.out.clone()
                } else {
                    sink
                };
                let saved = self.enter_subshell().await?;
                let outcome = self.command(command).await;
                let own = self.leave_subshell(saved, outcome)?;
                status = match own {
                    0 if self.state.pipefail => status,
                    own => own,
                };
                self.streams = before.clone();
                self.streams.stdin = Input::new(Arc::new(take_buffer(&output)));
            }
            self.streams = before;
        }
        Ok(if pipeline.is_negated {
            i32::from(status == 0)
        } else {
            status
        })
    }

    async fn enter_subshell(&mut self) -> Result<State, Halt> {
        let sizes = self.state.variables.values().map(String::len);
        self.meter.spend(sizes.sum()).await?;
        let saved = self.state.clone();
        self.state.loops = 0;
        Ok(saved)
    }

    fn leave_subshell(&mut self, saved: State, outcome: Result<i32, Halt>) -> Result<i32, Halt> {
        self.state = saved;
        match outcome {
            Err(Halt::Exit(status) | Halt::Return(status)) => Ok(status),
            Err(Halt::Abort(what)) => {
                let name = "shell".to_owned();
                Io { name, shell: self }.report_error(&what);
                Ok(1)
            }
            outcome => outcome,
        }
    }

    /// Runs commands in a subshell and returns their output.
    pub(crate) async fn substitute(&mut self, list: &List) -> Result<String, Halt> {
        let (sink, output) = buffer();
        let before = replace(&mut self.streams.out, sink);
        let saved = self.enter_subshell().await?;
        let outcome = self.list(list).await;
        let outcome = outcome.map(|()| self.status);
        self.status = self.leave_subshell(saved, outcome)?;
        self.substitution_status = Some(self.status);
        self.streams.out = before;
        let output = take_buffer(&output);
        let text = String::from_utf8_lossy(&output);
        Ok(text.trim_end_matches('\n').to_owned())
    }

    fn command<'s>(&'s mut self, command: &'s Command) -> BoxFuture<'s, Result<i32, Halt>> {
        Box::pin(async move {
            self.meter.spend(COMMAND_COST).await?;
            self.enter()?;
            let streams = self.streams.clone();
            let outcome = match &command.kind {
                CommandKind::Simple { assignments, words } => {
                    self.simple(assignments, words, &command.redirects).await
                }
                kind => match self.redirect("shell", &command.redirects).await {
                    Ok(true) => self.compound(kind).await,
                    Ok(false) => Ok(1),
                    Err(halt) => Err(halt),
                },
            };
            self.streams = streams;
            self.state.depth -= 1;
            outcome
        })
    }

    /// Counts a level of nesting.
    pub(super) fn enter(&mut self) -> Result<(), Halt> {
        self.state.depth += 1;
        if self.state.depth > MAX_DEPTH {
            Err(Halt::LimitExceeded("commands are nested too deeply"))
        } else {
            Ok(())
        }
    }

    /// Redirects the streams; reports a failure and returns false.
    async fn redirect(&mut self, name: &str, redirects: &[Redirect]) -> Result<bool, Halt> {
        let mut resolved = Vec::new();
        for redirect in redirects {
            resolved.push(match redirect {
                Redirect::Input(path) => ResolvedRedirect::Input(self.expand_text(path).await?),
                Redirect::HereDocument(text) => {
                    let empty = Word::new();
                    let text = text.get().unwrap_or(&empty);
                    ResolvedRedirect::Text(self.expand_text(text).await?)
                }
                Redirect::Output(streams, mode, path) => {
                    let path = self.expand_text(path).await?;
                    ResolvedRedirect::Output(*streams, *mode, path)
                }
                Redirect::Duplicate(stream, other) => ResolvedRedirect::Duplicate(*stream, *other),
            });
        }
        let name = name.to_owned();
        let mut io = Io { name, shell: self };
        let outcome = io.redirect(resolved);
        Ok(io.report_failure(outcome)? == 0)
    }

    async fn simple(
        &mut self,
        assignments: &[Assignment],
        words: &[Word],
        redirects: &[Redirect],
    ) -> Result<i32, Halt> {
        self.substitution_status = None;
        let mut args = self.expand_words(words).await?.into_iter();
        let name = args.next();
        let mut saved = Vec::new();
        for assignment in assignments {
            let mut value = self.expand_text(&assignment.value).await?;
            if assignment.appends {
                value.insert_str(0, &self.variable(&assignment.name));
                self.meter.charge(value.len())?;
            }
            let variables = &mut self.state.variables;
            let before = variables.insert(assignment.name.clone(), value);
            saved.push((assignment.name.clone(), before));
        }
        let Some(name) = name else {
            let is_redirected = self.redirect("shell", redirects).await?;
            let status = self.substitution_status.unwrap_or(0);
            return Ok(if is_redirected { status } else { 1 });
        };
        let outcome = if self.redirect(&name, redirects).await? {
            self.call(name, args.collect()).await
        } else {
            Ok(1)
        };
        self.restore(saved);
        outcome
    }

    /// Calls a function or a built-in command.
    async fn call(&mut self, name: String, args: Vec<String>) -> Result<i32, Halt> {
        let Some(body) = self.state.functions.get(&name).cloned() else {
            let mut io = Io { name, shell: self };
            return match builtins::run(&mut io, &args).await {
                Err(Halt::Fail(what)) => {
                    io.report_error(&what);
                    Ok(1)
                }
                outcome => outcome,
            };
        };
        let arguments = replace(&mut self.state.arguments, args);
        let loops = take(&mut self.state.loops);
        self.state.locals.push(Vec::new());
        let outcome = self.command(&body).await;
        let locals = self.state.locals.pop().unwrap_or_default();
        self.restore(locals);
        self.state.loops = loops;
        self.state.arguments = arguments;
        match outcome {
            Err(Halt::Return(status)) => Ok(status),
            outcome => outcome,
        }
    }

    /// Restores variables to earlier values, the last change first.
    fn restore(&mut self, saved: Vec<(String, Option<String>)>) {
        for (name, value) in saved.into_iter().rev() {
            match value {
                Some(value) => self.state.variables.insert(name, value),
                None => self.state.variables.remove(&name),
            };
        }
    }

    async fn compound(&mut self, kind: &CommandKind) -> Result<i32, Halt> {
        match kind {
            CommandKind::Simple { .. } => {}
            CommandKind::Group(list) => self.list(list).await?,
            CommandKind::Subshell(list) => {
                let saved = self.enter_subshell().await?;
                let outcome = self.list(list).await;
                let outcome = outcome.map(|()| self.status);
                return self.leave_subshell(saved, outcome);
            }
            CommandKind::If(branches) => {
                for (condition, body) in branches {
                    let holds = match condition {
                        Some(condition) => self.condition(condition).await?,
                        None => true,
                    };
                    if holds {
                        self.list(body).await?;
                        return Ok(self.status);
                    }
                }
                return Ok(0);
            }
            CommandKind::While {
                is_until,
                condition,
                body,
            } => {
                let mut status = 0;
                while self.condition(condition).await? != *is_until {
                    if !self.iteration(body).await? {
                        return Ok(0);
                    }
                    status = self.status;
                }
                return Ok(status);
            }
            CommandKind::For { name, words, body } => {
                let values = match words {
                    Some(words) => self.expand_words(words).await?,
                    None => self.state.arguments.clone(),
                };
                self.status = 0;
                for value in values {
                    self.state.variables.insert(name.clone(), value);
                    if !self.iteration(body).await? {
                        return Ok(0);
                    }
                }
            }
            CommandKind::ForArithmetic { expressions, body } => {
                let [start, condition, step] = expressions;
                self.evaluate(start).await?;
                self.status = 0;
                while condition.is_empty() || self.evaluate(condition).await? != 0 {
                    if !self.iteration(body).await? {
                        return Ok(0);
                    }
                    self.evaluate(step).await?;
                }
            }
            CommandKind::Case { subject, arms } => {
                let subject = self.expand_text(subject).await?;
                for (patterns, body) in arms {
                    for word in patterns {
                        let field = self.expand_field(word).await?;
                        self.meter.spend(subject.len()).await?;
                        if pattern::matches(&field, &subject, &mut self.meter)? {
                            self.status = 0;
                            self.list(body).await?;
                            return Ok(self.status);
                        }
                    }
                }
                return Ok(0);
            }
            CommandKind::Function { name, body } => {
                let functions = &mut self.state.functions;
                functions.insert(name.clone(), Arc::clone(body));
                return Ok(0);
            }
            CommandKind::Arithmetic(expression) => {
                return Ok(i32::from(self.evaluate(expression).await? == 0));
            }
        }
        Ok(self.status)
    }

    async fn condition(&mut self, list: &List) -> Result<bool, Halt> {
        self.state.conditions += 1;
        let outcome = self.list(list).await;
        self.state.conditions -= 1;
        outcome?;
        Ok(self.status == 0)
    }

    /// Runs the body of a loop once; returns false after `break`.
    async fn iteration(&mut self, body: &List) -> Result<bool, Halt> {
        self.meter.spend(1).await?;
        self.state.loops += 1;
        let outcome = self.list(body).await;
        self.state.loops -= 1;
        match outcome {
            Ok(()) | Err(Halt::Continue(1)) => Ok(true),
            Err(Halt::Break(1)) => Ok(false),
            Err(Halt::Continue(levels)) => Err(Halt::Continue(levels - 1)),
            Err(Halt::Break(levels)) => Err(Halt::Break(levels - 1)),
            Err(halt) => Err(halt),
        }
    }

    /// Updates `$PWD`.
    pub(crate) fn update_pwd(&mut self) {
        let shown = display_path(&self.state.cwd);
        self.state.variables.insert("PWD".to_owned(), shown);
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
