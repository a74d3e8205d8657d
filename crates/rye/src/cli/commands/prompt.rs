//! `rye prompt`: sends a prompt to a session and waits for the answer.

mod input;

use std::path::Path;
use std::time::SystemTime;

use rye_engine::protocol::{IncompleteReason, Millis, Part, SessionId, TurnEnd, json};
use rye_engine::result::schema_error;
use rye_engine::sandbox::{Sandbox, SandboxSpec};
use rye_engine::store::{Claim, StoreError};
use rye_engine::{Engine, NewSession, Prompt};
use rye_host::engine::{EngineOptions, with_engine};
use rye_host::follower::{Follower, PromptOutcome};
use rye_host::session_engine::{SessionChoice, with_session};
use serde_json::{Value, json};

use crate::cli::args::PromptArgs;
use crate::cli::context::Context;
use crate::cli::failure::{Exit, Failure};
use crate::cli::observer::{AnswerStream, SOURCE, TerminalObserver};
use crate::cli::page::{Page, sanitize};
use crate::cli::printer::{Outcome, Printer, Report};
use crate::cli::signal_notice::SignalNotice;

pub(crate) fn run(args: &PromptArgs, context: &Context) -> Outcome {
    let outcome = send(args, context);
    match outcome {
        // With --json, the last line is always an outcome, even if the prompt was never sent.
        Err(failure) if context.printer.json => Ok(Box::new(FailedPrompt(failure))),
        outcome => outcome,
    }
}

fn send(args: &PromptArgs, context: &Context) -> Outcome {
    if let Some(id) = &args.id
        && args.session.is_none()
        && !args.continues
    {
        let message = "--id needs --session or --continue: the id is unique in a session";
        let hint = format!("rye prompt 'your task' --continue --id {id}");
        return Err(Failure::usage(message).hint(hint));
    }
    let schema = args.schema.as_deref().map(load_schema).transpose()?;
    let text = input::prompt_text(&args.text, context.printer)?;
    let (text, attachments) = input::attach(text, &args.attachments)?;
    let system = args.system.as_deref().map(load_system).transpose()?;
    let options = EngineOptions {
        runs_sessions: true,
        sandbox: args.sandbox.map(Into::into),
        review: args.review,
        model: args.model.clone(),
        skills: args.skills.clone(),
        ..EngineOptions::default()
    };
    let existing = match &args.session {
        Some(part) => Some(SessionChoice::from(part)),
        None => args.continues.then_some(SessionChoice::Newest),
    };
    if let Some(choice) = existing {
        return with_session(context, choice, options, async |it| {
            let engine = it.engine;
            let sandbox = engine.open_sandbox(it.session).await?;
            let content = check_and_expand(args, text, engine, &*sandbox, false).await?;
            // Opening a session resumes it: print everything from here on.
            let before = engine.last_event(it.session).await?;
            match engine.open_session(it.session, Claim::IfFree).await {
                Ok(_) => {}
                // The process that holds it runs the prompt, in its own sandbox.
                Err(StoreError::InUse { .. }) if args.sandbox.is_none() => {
                    let text = "another process holds the session, and runs the prompt";
                    context.reporter().info(text);
                }
                Err(error) => return Err(error.into()),
            }
            let prompt = new_prompt(args, content, attachments, schema);
            Box::pin(follow(args, context, engine, it.session, (prompt, before))).await
        });
    }
    with_engine(context, options, async |engine| {
        // An invalid prompt leaves no session behind.
        let workspace = Some(context.settings.project().display().to_string());
        let spec = SandboxSpec {
            workspace: workspace.clone(),
            ..SandboxSpec::default()
        };
        let sandbox = engine.create_sandbox(&spec).await?;
        let content = check_and_expand(args, text, engine, &*sandbox.sandbox, true).await?;
        let new = NewSession {
            workspace,
            sandbox: Some(sandbox),
            model: args.model.clone(),
            role: args.role.clone(),
            system,
            org_id: args.org.clone(),
            project: Some(context.settings.project().display().to_string()),
            ..NewSession::default()
        };
        let session = engine.create_session(new).await?;
        let prompt = new_prompt(args, content, attachments, schema);
        Box::pin(follow(args, context, engine, session.id(), (prompt, 0))).await
    })
}

/// Checks that the model, role and skill exist, and returns the text with the skill expanded.
async fn check_and_expand(
    args: &PromptArgs,
    text: String,
    engine: &Engine,
    sandbox: &dyn Sandbox,
    is_new: bool,
) -> Result<String, Failure> {
    let mut model = args.model.clone();
    if let Some(name) = &args.role {
        let role = engine.role(name, sandbox).await;
        let role = role.map_err(|why| Failure::failed("bad_role", why))?;
        model = model.or(role.model);
    }
    // An existing session already has a model.
    if is_new || model.is_some() {
        engine
            .check_model(model.as_deref())
            .map_err(|why| Failure::failed("unknown_model", why).hint("rye models list"))?;
    }
    let Some(name) = &args.skill else {
        if text.trim().is_empty() {
            return Err(Failure::usage("the prompt is empty").hint("rye prompt 'say hello'"));
        }
        return Ok(text);
    };
    let variables = args.variables.iter().cloned().collect();
    let skill = engine.skill(name, &variables, sandbox).await;
    let skill = skill.map_err(|why| Failure::failed("bad_skill", why).hint("rye prompt --help"))?;
    Ok(format!("{}\n\n{text}", skill.trim_end()))
}

/// Reads a JSON Schema from a file.
fn load_schema(path: &Path) -> Result<Value, Failure> {
    let invalid = |why: String| Failure::new(Exit::Usage, "bad_schema", why).at(path);
    let text = std::fs::read_to_string(path).map_err(|error| {
        let message = format!("cannot read schema {}: {error}", path.display());
        Failure::new(Exit::Usage, "bad_schema", message).detail("path", path.display().to_string())
    })?;
    let schema = json::parse(&text).map_err(|error| invalid(format!("invalid JSON: {error}")))?;
    match schema_error(&schema) {
        Some(why) => Err(invalid(format!("invalid JSON Schema: {why}"))),
        None => Ok(schema),
    }
}

/// Reads a system prompt from a file.
pub(super) fn load_system(path: &Path) -> Result<String, Failure> {
    let fail = |why: String| {
        let message = format!("cannot use the system prompt {}: {why}", path.display());
        Failure::new(Exit::Usage, "bad_system", message).detail("path", path.display().to_string())
    };
    let text = std::fs::read_to_string(path).map_err(|error| fail(error.to_string()))?;
    if text.trim().is_empty() {
        return Err(fail("the file is empty".to_owned()));
    }
    Ok(text)
}

fn new_prompt(
    args: &PromptArgs,
    content: String,
    attachments: Vec<Part>,
    schema: Option<Value>,
) -> Prompt {
    Prompt {
        id: args.id.clone(),
        attachments,
        thread: Some(args.thread.clone()),
        model: args.model.clone(),
        role: args.role.clone(),
        schema,
        limits: args.limits.to_limits(SystemTime::now()),
        ..Prompt::from(content)
    }
}

async fn follow(
    args: &PromptArgs,
    context: &Context,
    engine: &Engine,
    session: &SessionId,
    (prompt, after): (Prompt, u64),
) -> Outcome {
    let _signal_notice = SignalNotice::install(context.printer, session, Some(OUTCOME))?;
    let until = prompt.limits.until;
    // A result is printed instead of the answer.
    let streams = !context.printer.json && prompt.schema.is_none();
    let observer = TerminalObserver {
        printer: context.printer,
        events: context.printer.json,
        stream: streams.then(AnswerStream::for_terminal).flatten(),
    };
    let follower = Follower {
        engine,
        session,
        observer: &observer,
        source: SOURCE,
        by: &context.user_name()?,
        yes: args.yes,
        wait: !args.no_wait,
    };
    let session = session.clone();
    let outcome = Box::pin(follower.prompt(prompt, after)).await;
    observer.end_line();
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(failure) if failure.kind == Exit::GatePending => {
            return Ok(Box::new(PendingGate { session, failure }));
        }
        Err(failure) => return Err(failure),
    };
    if !context.printer.json && outcome.reason == TurnEnd::EndTurn {
        warn_if_incomplete(&outcome, &session, context.printer);
    }
    let is_late = until.is_some_and(|until| until <= now());
    Ok(Box::new(Answer {
        session,
        outcome,
        is_late,
        is_printed: observer.has_printed_answer(),
    }))
}

/// Warns about an incomplete answer.
fn warn_if_incomplete(outcome: &PromptOutcome, session: &SessionId, printer: Printer) {
    let Some(incomplete) = outcome.incomplete else {
        return;
    };
    let reason = outcome.stop_reason.as_deref().unwrap_or_default();
    let (advice, hint) = match incomplete {
        IncompleteReason::OutputLimit => (
            "continue, or raise `max_output` in models.yaml",
            format!("rye prompt --session {} 'continue'", session.short()),
        ),
        IncompleteReason::Refused => (
            "rephrase the prompt, or choose another model",
            "rye models list".to_owned(),
        ),
    };
    let message = format!("{incomplete} ({reason}); {advice}");
    printer.warn(&message, Some(&hint));
}

pub(super) fn now() -> Millis {
    Millis(u64::try_from(lillux::time::now().epoch_ms).unwrap_or_default())
}

/// Value of `type` in the JSON line with the outcome.
const OUTCOME: &str = "outcome";

/// A prompt that could not be sent or followed to its end.
struct FailedPrompt(Failure);

impl Report for FailedPrompt {
    fn json(&self) -> Value {
        json!({ "type": OUTCOME })
    }

    fn show(&self, _page: &mut Page) {}

    fn failure(&self) -> Option<Failure> {
        Some(self.0.clone())
    }
}

/// A prompt that waits at a gate, from which the command detached.
struct PendingGate {
    session: SessionId,
    failure: Failure,
}

impl Report for PendingGate {
    fn json(&self) -> Value {
        json!({ "type": OUTCOME, "session": self.session })
    }

    fn show(&self, _page: &mut Page) {}

    fn failure(&self) -> Option<Failure> {
        Some(self.failure.clone())
    }

    fn next_command(&self) -> Option<String> {
        Some(format!("rye session resume {}", self.session.short()))
    }
}

struct Answer {
    session: SessionId,
    outcome: PromptOutcome,
    /// Whether the time limit has passed.
    is_late: bool,
    /// Whether the answer was printed while it was generated.
    is_printed: bool,
}

impl Report for Answer {
    fn json(&self) -> Value {
        let mut json = json!({
            "type": OUTCOME,
            "session": self.session,
            "answer": self.outcome.text,
            "end": self.outcome.reason,
        });
        if let Some(reason) = &self.outcome.stop_reason {
            json["stop_reason"] = json!(reason);
        }
        if let Some(incomplete) = self.outcome.incomplete {
            json["incomplete"] = json!(incomplete);
        }
        if let Some(result) = &self.outcome.result {
            json["result"] = result.clone();
        }
        json
    }

    fn show(&self, page: &mut Page) {
        if let Some(result) = &self.outcome.result {
            page.line(sanitize(&format!("{result:#}")));
        } else if !self.is_printed && !self.outcome.text.is_empty() {
            page.line(sanitize(self.outcome.text.trim_end()));
        }
    }

    fn failure(&self) -> Option<Failure> {
        self.outcome.failure(&self.session, self.is_late)
    }

    fn next_command(&self) -> Option<String> {
        let answered = self.outcome.reason == TurnEnd::EndTurn;
        answered.then(|| format!("rye prompt --session {} 'your reply'", self.session.short()))
    }
}
