//! `rye session fork`: creates a session that shares the history of another.

use rye_engine::protocol::{EntryId, SessionId};
use rye_host::engine::{EngineOptions, with_engine};
use rye_host::lookup::{find_id, find_session};
use serde_json::{Value, json};

use crate::cli::args::ForkArgs;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::page::Page;
use crate::cli::printer::{Outcome, Report};

pub(crate) fn fork(args: &ForkArgs, context: &Context) -> Outcome {
    with_engine(context, EngineOptions::default(), async |engine| {
        let id = find_session(engine, &args.session.id).await?;
        let at = match &args.at {
            None => None,
            Some(part) => {
                let threads = engine.history(&id).await?;
                let entries = threads.iter().flat_map(|(_, entries)| entries);
                let ids = entries.map(|entry| entry.id.as_str());
                let hint = format!("rye session show {} --json", id.short());
                let entry: EntryId = find_id(ids, part, "entry", &hint)?
                    .parse()
                    .map_err(Failure::usage)?;
                Some(entry)
            }
        };
        let fork = engine.fork(&id, at.as_ref()).await?;
        Ok(Box::new(ForkedSession(fork)) as Box<dyn Report>)
    })
}

struct ForkedSession(SessionId);

impl Report for ForkedSession {
    fn json(&self) -> Value {
        json!({ "session": self.0 })
    }

    fn show(&self, page: &mut Page) {
        page.line(self.0.short());
    }

    fn next_command(&self) -> Option<String> {
        Some(format!(
            "rye prompt --session {} 'your prompt'",
            self.0.short()
        ))
    }
}
