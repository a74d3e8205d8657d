//! `rye prompt`

use std::path::Path;
use std::time::SystemTime;

use rye_engine::protocol::{SessionId, TurnEnd};
use rye_engine::result::wrong_schema;
use rye_engine::store::Claim;
use rye_engine::{Engine, NewSession, Prompt, Session};
use serde_json::{Value, json};

use crate::cli::args::PromptArgs;
use crate::cli::context::Context;
use crate::cli::engine::{Ended, Follower, Wanted, with_engine, with_session};
use crate::cli::failure::{Exit, Failure};
use crate::cli::page::{Page, plain};
use crate::cli::printer::{Outcome, Report};

pub(crate) fn run(args: &PromptArgs, context: &Context) -> Outcome {
    let schema = args.schema.as_deref().map(schema).transpose()?;
    let wanted = Wanted {
        sandbox: args.sandbox.map(Into::into),
        workspace: None,
        model: args.model.clone(),
        skills: args.skills.clone(),
    };
    if let Some(meant) = &args.session {
        return with_session(context, meant, wanted, async |engine, id| {
            let content = checked(args, engine, false).await?;
            let session = engine.open_session(id, Claim::IfFree).await?;
            let prompt = prompt(args, content, schema);
            ask(args, context, engine, &session, prompt).await
        });
    }
    with_engine(context, wanted, async |engine| {
        // What cannot be asked leaves no session behind.
        let content = checked(args, engine, true).await?;
        let new = NewSession {
            workspace: Some(context.settings.project().display().to_string()),
            model: args.model.clone(),
            role: args.role.clone(),
            org_id: args.org.clone(),
            ..NewSession::default()
        };
        let session = engine.create_session(new).await?;
        let prompt = prompt(args, content, schema);
        ask(args, context, engine, &session, prompt).await
    })
}

/// What is asked, once it is clear that it can be: the model, the role and the skill are
/// there.
async fn checked(args: &PromptArgs, engine: &Engine, is_new: bool) -> Result<String, Failure> {
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
    let text = args.text.join(" ");
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
    let bytes = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
    let schema: Value =
        serde_json::from_slice(&bytes).map_err(|error| wrong(format!("it is no JSON: {error}")))?;
    match wrong_schema(&schema) {
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
    prompt: Prompt,
) -> Outcome {
    let item = session.prompt(prompt).await?;
    let follower = Follower {
        engine,
        session,
        printer: context.printer,
        yes: args.yes,
    };
    let ended = follower.until_ended(0, &item).await?;
    let session = session.id().clone();
    Ok(Box::new(Answer { session, ended }))
}

struct Answer {
    session: SessionId,
    ended: Ended,
}

impl Report for Answer {
    fn json(&self) -> Value {
        let mut json = json!({
            "session": self.session,
            "answer": self.ended.text,
            "end": self.ended.reason,
        });
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
        let (code, message) = match self.ended.reason {
            TurnEnd::EndTurn => return None,
            TurnEnd::Abort => ("aborted", "somebody ended it"),
            TurnEnd::Limit => ("limit", "a limit was reached"),
            TurnEnd::Error => ("error", "it could not be answered"),
        };
        let message = self
            .ended
            .error
            .clone()
            .unwrap_or_else(|| message.to_owned());
        Some(Failure::failed(code, message).hint(format!("rye session show {}", self.session)))
    }

    fn next(&self) -> Option<String> {
        let went_well = self.ended.reason == TurnEnd::EndTurn;
        went_well.then(|| format!("rye prompt --session {} …", self.session))
    }
}
