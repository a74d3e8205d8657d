//! `rye session review`: asks for a review of a session's changes.

use rye_engine::Prompt;
use rye_engine::protocol::TurnEnd;
use rye_engine::store::Claim;
use rye_host::engine::EngineOptions;
use rye_host::follower::Follower;
use rye_host::session_engine::with_session;

use super::Show;
use crate::cli::args::ReviewArgs;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::observer::{SOURCE, TerminalObserver};
use crate::cli::printer::{Outcome, Report};
use crate::cli::signal_notice::SignalNotice;

/// The prompt in the history.
const PROMPT: &str = "Review the changes.";

pub(super) fn run(args: &ReviewArgs, context: &Context) -> Outcome {
    let part = &args.session.id;
    with_session(context, part, EngineOptions::default(), async |it| {
        let (engine, id) = (it.engine, it.session);
        let before = engine.last_event(id).await?;
        engine.open_session(id, Claim::IfFree).await?;
        let data = engine.session_data(id).await?;
        let sandbox = data.and_then(|data| data.sandbox);
        if !sandbox.is_some_and(|it| it.review) {
            let message = format!("session {} is not in review mode", id.short());
            return Err(Failure::usage(message).hint("rye prompt --review 'your task'"));
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
