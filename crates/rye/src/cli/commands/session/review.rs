//! `rye session review`: asks for a review of a session's changes, and turns the review mode on or
//! off.

use rye_engine::protocol::{SessionId, TurnEnd};
use rye_engine::store::Claim;
use rye_engine::{Engine, Prompt, ReviewSwitch};
use rye_host::engine::EngineOptions;
use rye_host::follower::Follower;
use rye_host::session_engine::with_session;
use serde_json::{Value, json};

use super::Show;
use crate::cli::args::ReviewArgs;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::observer::{SOURCE, TerminalObserver};
use crate::cli::page::Page;
use crate::cli::printer::{Outcome, Report};
use crate::cli::signal_notice::SignalNotice;

/// The prompt in the history.
const PROMPT: &str = "Review the changes.";

pub(super) fn run(args: &ReviewArgs, context: &Context) -> Outcome {
    let part = &args.session.id;
    if args.on || args.off {
        return with_session(context, part, EngineOptions::default(), async |it| {
            switch(it.engine, it.session, args.on).await
        });
    }
    with_session(context, part, EngineOptions::default(), async |it| {
        let (engine, id) = (it.engine, it.session);
        let before = engine.last_event(id).await?;
        engine.open_session(id, Claim::IfFree).await?;
        let data = engine.session_data(id).await?;
        let sandbox = data.and_then(|data| data.sandbox);
        if !sandbox.is_some_and(|it| it.review) {
            let message = format!("session {} is not in review mode", id.short());
            let hint = format!("rye session review {} --on", id.short());
            return Err(Failure::usage(message).hint(hint));
        }
        let follower = Follower {
            engine,
            session: id,
            observer: &TerminalObserver {
                printer: context.printer,
                events: false,
                stream: None,
            },
            source: SOURCE,
            by: &context.user_name()?,
            yes: false,
            wait: !args.no_wait,
        };
        let signal_notice = SignalNotice::install(context.printer, id, None)?;
        let prompt = Prompt {
            review: true,
            ..Prompt::from(PROMPT)
        };
        let outcome = Box::pin(follower.prompt(prompt, before)).await?;
        drop(signal_notice);
        let failure = match outcome.reason {
            TurnEnd::EndTurn => None,
            _ => outcome.failure(id, false),
        };
        let show = Show::load(engine, id.clone(), context).await?;
        Ok(Box::new(Show { failure, ..show }) as Box<dyn Report>)
    })
}

/// Turns the review mode on or off.
async fn switch(engine: &Engine, id: &SessionId, review: bool) -> Outcome {
    let short = id.short();
    match engine.set_review(id, review).await? {
        ReviewSwitch::Switched | ReviewSwitch::Unchanged => {
            let session = id.clone();
            Ok(Box::new(Switched { session, review }))
        }
        ReviewSwitch::Busy => {
            let message = format!("session {short} has work to do");
            let hint = format!("rye session resume {short}");
            Err(Failure::failed("busy", message).hint(hint))
        }
        ReviewSwitch::PendingChanges(count) => {
            let message = format!("session {short} has changes to review: {count}");
            let hint = format!("rye session review {short}");
            Err(Failure::failed("pending_changes", message).hint(hint))
        }
    }
}

struct Switched {
    session: SessionId,
    review: bool,
}

impl Report for Switched {
    fn json(&self) -> Value {
        json!({ "session": self.session, "review": self.review })
    }

    fn show(&self, page: &mut Page) {
        let mode = if self.review { "on" } else { "off" };
        page.line(format_args!(
            "session {}: review mode is {mode}",
            self.session.short()
        ));
    }
}
