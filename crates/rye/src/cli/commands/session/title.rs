//! `rye session title`: changes the title of a session.

use rye_engine::protocol::SessionId;
use rye_host::engine::{EngineOptions, with_engine};
use rye_host::lookup::find_session;
use serde_json::{Value, json};

use crate::cli::args::TitleArgs;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::page::{Page, one_line};
use crate::cli::printer::{Outcome, Report};

pub(crate) fn run(args: &TitleArgs, context: &Context) -> Outcome {
    let title = args.title.trim();
    if title.is_empty() || title.contains('\n') {
        let failure = Failure::usage("the title must be one line of text");
        return Err(failure.hint("rye session title --help"));
    }
    with_engine(context, EngineOptions::default(), async |engine| {
        let session = find_session(engine, &args.session.id).await?;
        engine.set_title(&session, title).await?;
        let title = title.to_owned();
        Ok(Box::new(Titled { session, title }) as Box<dyn Report>)
    })
}

struct Titled {
    session: SessionId,
    title: String,
}

impl Report for Titled {
    fn json(&self) -> Value {
        json!({ "session": self.session, "title": self.title })
    }

    fn show(&self, page: &mut Page) {
        let (id, title) = (self.session.short(), one_line(&self.title));
        page.line(format_args!("session {id}: {title}"));
    }
}
