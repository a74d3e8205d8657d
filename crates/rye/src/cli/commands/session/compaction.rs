//! `rye session compact`

use rye_engine::Compaction;
use rye_engine::protocol::{EntryId, ErrorInfo};
use rye_engine::store::Claim;
use serde_json::{Value, json};

use crate::cli::args::CompactArgs;
use crate::cli::context::Context;
use crate::cli::engine::Wanted;
use crate::cli::failure::Failure;
use crate::cli::going_on::with_session;
use crate::cli::page::Page;
use crate::cli::printer::{Outcome, Report};

pub(crate) fn run(args: &CompactArgs, context: &Context) -> Outcome {
    let meant = &args.session.id;
    with_session(context, meant, Wanted::default(), async |it| {
        let session = it.engine.open_session(it.session, Claim::IfFree).await?;
        let thread = Some(args.thread.as_str());
        let came = if args.undo {
            match session.undo_compaction(thread).await? {
                Some(entry) => Came::Undone(entry),
                None => Came::NothingToUndo,
            }
        } else {
            match session.compact(thread).await? {
                Compaction::Done {
                    entry,
                    before,
                    after,
                } => Came::SummedUp(entry, before, after),
                Compaction::Pruned(calls) => Came::Pruned(calls),
                Compaction::Nothing => Came::Nothing,
                Compaction::Failed(error) => Came::Failed(error),
            }
        };
        let session = it.session.to_string();
        Ok(Box::new(Compacted { session, came }) as Box<dyn Report>)
    })
}

/// What came of it.
enum Came {
    SummedUp(EntryId, u64, u64),
    Pruned(usize),
    Nothing,
    Failed(ErrorInfo),
    Undone(EntryId),
    NothingToUndo,
}

struct Compacted {
    session: String,
    came: Came,
}

impl Report for Compacted {
    fn json(&self) -> Value {
        let came = match &self.came {
            Came::SummedUp(entry, before, after) => {
                json!({ "entry": entry, "tokens_before": before, "tokens_after": after })
            }
            Came::Pruned(calls) => json!({ "pruned": calls }),
            Came::Nothing | Came::NothingToUndo => json!(null),
            Came::Failed(error) => json!({ "error": error }),
            Came::Undone(entry) => json!({ "undone": entry }),
        };
        json!({ "session": self.session, "compaction": came })
    }

    fn show(&self, page: &mut Page) {
        match &self.came {
            Came::SummedUp(_, before, after) => {
                page.line(format_args!("summed up: {before} tokens became {after}"));
            }
            Came::Pruned(calls) => page.line(format_args!("output of {calls} calls is left out")),
            Came::Nothing => page.line("there is nothing to sum up"),
            Came::Undone(_) => page.line("taken back: all of it is read again"),
            Came::Failed(_) | Came::NothingToUndo => {}
        }
    }

    fn failure(&self) -> Option<Failure> {
        let show = || format!("rye session show {}", self.session);
        match &self.came {
            Came::Failed(error) => Some(Failure::failed("compaction", &error.message).hint(show())),
            Came::NothingToUndo => {
                let message = "there is no summary to take back, or a turn is under way";
                Some(Failure::failed("not_found", message).hint(show()))
            }
            _ => None,
        }
    }

    fn next(&self) -> Option<String> {
        match &self.came {
            Came::SummedUp(..) => Some(format!("rye session compact {} --undo", self.session)),
            _ => None,
        }
    }
}
