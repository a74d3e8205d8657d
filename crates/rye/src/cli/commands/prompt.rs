//! `rye prompt`

mod input;

use std::path::Path;
use std::time::SystemTime;

use rye_engine::protocol::{IncompleteReason, Millis, SessionId, TurnEnd};
use rye_engine::result::schema_error;
use rye_engine::store::Claim;
use rye_engine::{Engine, NewSession, Prompt, Session};
use serde_json::{Value, json};

use crate::cli::args::PromptArgs;
use crate::cli::context::Context;
use crate::cli::engine::{Wanted, with_engine};
use crate::cli::failure::{Exit, Failure};
use crate::cli::follower::{Ended, Follower};
use crate::cli::going_on::{made_in, with_session};
use crate::cli::last_words::LastWords;
use crate::cli::page::{Page, plain};
use crate::cli::printer::{Outcome, Printer, Report};

pub(crate) fn run(args: &PromptArgs, context: &Context) -> Outcome {
    let outcome = prompted(args, context);
    match outcome {
        // Where each line is an event, the last one says how it ended, also if nothing began.
        Err(failure) if context.printer.json => Ok(Box::new(Refused(failure))),
        outcome => outcome,
    }
}

fn prompted(args: &PromptArgs, context: &Context) -> Outcome {
    let schema = args.schema.as_deref().map(schema).transpose()?;
    let text = input::asked(&args.text, context.printer)?;
    let wanted = Wanted {
        goes_on: true,
        sandbox: args.sandbox.map(Into::into),
        workspace: None,
        model: args.model.clone(),
        skills: args.skills.clone(),
    };
    if let Some(meant) = &args.session {
        return with_session(context, meant, wanted, async |it| {
            let engine = it.engine;
            let content = checked(args, text, engine, false).await?;
            // It goes on as soon as it is open: what comes of that is told too.
            let before = engine.last_event(it.session).await?;
            let session = engine.open_session(it.session, Claim::IfFree).await?;
            let prompt = prompt(args, content, schema);
            ask(args, context, engine, &session, (prompt, before)).await
        });
    }
    with_engine(context, wanted, async |engine| {
        // What cannot be asked leaves no session behind.
        let content = checked(args, text, engine, true).await?;
        let new = NewSession {
            workspace: Some(context.settings.project().display().to_string()),
            model: args.model.clone(),
            role: args.role.clone(),
            org_id: args.org.clone(),
            metadata: made_in(context),
            ..NewSession::default()
        };
        let session = engine.create_session(new).await?;
        let prompt = prompt(args, content, schema);
        ask(args, context, engine, &session, (prompt, 0)).await
    })
}

/// What is asked, once it is clear that it can be: the model, the role and the skill are
/// there.
async fn checked(
    args: &PromptArgs,
    text: String,
    engine: &Engine,
    is_new: bool,
) -> Result<String, Failure> {
    let mut model = args.model.clone();
    if let Some(name) = &args.role {
        let role = engine.role(name).await;
        let role = role.map_err(|why| Failure::failed("bad_role", why))?;
        model = model.or(role.model);
    }
    // A session that is there has a model of its own.
    if is_new || model.is_some() {
        engine
            .check_model(model.as_deref())
            .map_err(|why| Failure::failed("unknown_model", why).hint("rye models list"))?;
    }
    let Some(name) = &args.skill else {
        if text.trim().is_empty() {
            return Err(Failure::usage("there is nothing to ask").hint("rye prompt TEXT"));
        }
        return Ok(text);
    };
    let variables = args.variables.iter().cloned().collect();
    let skill = engine.skill(name, &variables).await.map_err(|why| {
        let hint = format!("rye prompt --skill {name} --var NAME=VALUE …");
        Failure::failed("bad_skill", why).hint(hint)
    })?;
    Ok(format!("{}\n\n{text}", skill.trim_end()))
}

/// The schema of a file.
fn schema(path: &Path) -> Result<Value, Failure> {
    let wrong = |why: String| Failure::new(Exit::Usage, "bad_schema", why).at(path);
    let bytes = std::fs::read(path).map_err(|error| {
        let message = format!("the schema {} cannot be read: {error}", path.display());
        Failure::new(Exit::Usage, "bad_schema", message)
            .hint("--schema FILE names a file with a JSON Schema, from the folder you are in")
            .detail("path", path.display().to_string())
    })?;
    let schema: Value =
        serde_json::from_slice(&bytes).map_err(|error| wrong(format!("it is no JSON: {error}")))?;
    match schema_error(&schema) {
        Some(why) => Err(wrong(format!("it is no JSON Schema: {why}"))),
        None => Ok(schema),
    }
}

fn prompt(args: &PromptArgs, content: String, schema: Option<Value>) -> Prompt {
    Prompt {
        thread: Some(args.thread.clone()),
        model: args.model.clone(),
        role: args.role.clone(),
        schema,
        limits: args.limits.from(SystemTime::now()),
        ..Prompt::from(content)
    }
}

async fn ask(
    args: &PromptArgs,
    context: &Context,
    engine: &Engine,
    session: &Session,
    (prompt, after): (Prompt, u64),
) -> Outcome {
    let _last_words = LastWords::prepare(context.printer, session.id(), Some(OUTCOME))?;
    let until = prompt.limits.until;
    let follower = Follower {
        engine,
        session,
        printer: context.printer,
        yes: args.yes,
        waits: !args.no_wait,
        events: context.printer.json,
    };
    let session = session.id().clone();
    let ended = match follower.ask(prompt, after).await {
        Ok(ended) => ended,
        Err(failure) if failure.exit == Exit::Waits => {
            return Ok(Box::new(Waits { session, failure }));
        }
        Err(failure) => return Err(failure),
    };
    if !context.printer.json && ended.reason == TurnEnd::EndTurn {
        tell_incomplete(&ended, &session, context.printer);
    }
    let is_late = until.is_some_and(|until| until <= now());
    Ok(Box::new(Answer {
        session,
        ended,
        is_late,
    }))
}

/// Tells whoever reads an answer that it is not all of it.
fn tell_incomplete(ended: &Ended, session: &SessionId, printer: Printer) {
    let Some(incomplete) = ended.incomplete else {
        return;
    };
    let why = ended.stop_reason.as_deref().unwrap_or_default();
    let hint = match incomplete {
        IncompleteReason::OutputLimit => format!(
            "rye prompt --session {session} 'go on', or a larger `max_output` in models.yaml \
             or --max-tokens"
        ),
        IncompleteReason::Refused => {
            "ask otherwise, or choose another model: rye models list".to_owned()
        }
    };
    printer.warn(&format!("{incomplete} ({why})"), Some(&hint));
}

pub(super) fn now() -> Millis {
    Millis(u64::try_from(lillux::time::now().epoch_ms).unwrap_or_default())
}

/// How each outcome is told apart from events.
const OUTCOME: &str = "outcome";

/// It could not be asked, or followed to its end.
struct Refused(Failure);

impl Report for Refused {
    fn json(&self) -> Value {
        json!({ "type": OUTCOME })
    }

    fn show(&self, _page: &mut Page) {}

    fn failure(&self) -> Option<Failure> {
        Some(self.0.clone())
    }
}

/// It waits at a gate, and nobody waits for it.
struct Waits {
    session: SessionId,
    failure: Failure,
}

impl Report for Waits {
    fn json(&self) -> Value {
        json!({ "type": OUTCOME, "session": self.session })
    }

    fn show(&self, _page: &mut Page) {}

    fn failure(&self) -> Option<Failure> {
        Some(self.failure.clone())
    }

    fn next(&self) -> Option<String> {
        Some(format!("rye session resume {}", self.session))
    }
}

struct Answer {
    session: SessionId,
    ended: Ended,
    /// Whether its time was up.
    is_late: bool,
}

impl Report for Answer {
    fn json(&self) -> Value {
        let mut json = json!({
            "type": OUTCOME,
            "session": self.session,
            "answer": self.ended.text,
            "end": self.ended.reason,
        });
        if let Some(reason) = &self.ended.stop_reason {
            json["stop_reason"] = json!(reason);
        }
        if let Some(incomplete) = self.ended.incomplete {
            json["incomplete"] = json!(incomplete);
        }
        if let Some(result) = &self.ended.result {
            json["result"] = result.clone();
        }
        json
    }

    fn show(&self, page: &mut Page) {
        if let Some(result) = &self.ended.result {
            page.line(plain(&format!("{result:#}")));
        } else if !self.ended.text.is_empty() {
            page.line(plain(self.ended.text.trim_end()));
        }
    }

    fn failure(&self) -> Option<Failure> {
        self.ended.failure(&self.session, self.is_late)
    }

    fn next(&self) -> Option<String> {
        let went_well = self.ended.reason == TurnEnd::EndTurn;
        went_well.then(|| format!("rye prompt --session {} …", self.session))
    }
}
