//! `rye prompt`

use std::time::SystemTime;

use rye_engine::protocol::{SessionId, TurnEnd};
use rye_engine::store::Claim;
use rye_engine::{Engine, NewSession, Prompt, Session};
use serde_json::{Value, json};

use crate::cli::args::PromptArgs;
use crate::cli::context::Context;
use crate::cli::engine::{Ended, Follower, Wanted, with_engine, with_session};
use crate::cli::failure::Failure;
use crate::cli::page::{Page, plain};
use crate::cli::printer::{Outcome, Report};

pub(crate) fn run(args: &PromptArgs, context: &Context) -> Outcome {
    let wanted = Wanted {
        sandbox: args.sandbox.map(Into::into),
        workspace: None,
        model: args.model.clone(),
    };
    if let Some(meant) = &args.session {
        return with_session(context, meant, wanted, async |engine, id| {
            let session = engine.open_session(id, Claim::IfFree).await?;
            ask(args, context, engine, &session).await
        });
    }
    with_engine(context, wanted, async |engine| {
        let new = NewSession {
            workspace: Some(context.settings.project().display().to_string()),
            model: args.model.clone(),
            org_id: args.org.clone(),
            ..NewSession::default()
        };
        let session = engine.create_session(new).await?;
        ask(args, context, engine, &session).await
    })
}

async fn ask(args: &PromptArgs, context: &Context, engine: &Engine, session: &Session) -> Outcome {
    let prompt = Prompt {
        thread: Some(args.thread.clone()),
        model: args.model.clone(),
        limits: args.limits.from(SystemTime::now()),
        ..Prompt::from(args.text.join(" "))
    };
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
        json!({ "session": self.session, "answer": self.ended.text, "end": self.ended.reason })
    }

    fn show(&self, page: &mut Page) {
        if !self.ended.text.is_empty() {
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
