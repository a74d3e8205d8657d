//! `rye session fork`

use rye_engine::protocol::{EntryId, SessionId};
use serde_json::{Value, json};

use crate::cli::args::ForkArgs;
use crate::cli::context::Context;
use crate::cli::engine::{Wanted, find, one_of, with_engine};
use crate::cli::failure::Failure;
use crate::cli::page::Page;
use crate::cli::printer::{Outcome, Report};

pub(crate) fn fork(args: &ForkArgs, context: &Context) -> Outcome {
    with_engine(context, Wanted::default(), async |engine| {
        let id = find(engine, &args.session.id).await?;
        let at = match &args.at {
            None => None,
            Some(meant) => {
                let threads = engine.history(&id).await?;
                let entries = threads.iter().flat_map(|(_, entries)| entries);
                let ids = entries.map(|entry| entry.id.as_str());
                let hint = format!("rye session show {id} --json");
                let entry: EntryId = one_of(ids, meant, "entry", &hint)?
                    .parse()
                    .map_err(Failure::usage)?;
                Some(entry)
            }
        };
        let fork = engine.fork(&id, at.as_ref()).await?;
        Ok(Box::new(Forked(fork)) as Box<dyn Report>)
    })
}

struct Forked(SessionId);

impl Report for Forked {
    fn json(&self) -> Value {
        json!({ "session": self.0 })
    }

    fn show(&self, page: &mut Page) {
        page.line(&self.0);
    }

    fn next(&self) -> Option<String> {
        Some(format!("rye prompt --session {} …", self.0))
    }
}
