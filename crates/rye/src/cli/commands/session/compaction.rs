//! `rye session compact`: compacts a history, or undoes the last compaction.

use rye_engine::protocol::{EntryId, ErrorInfo, SessionId};
use rye_engine::store::Claim;
use rye_engine::{CompactionOutcome, UndoOutcome};
use rye_host::engine::EngineOptions;
use rye_host::session_engine::with_session;
use serde_json::{Value, json};

use crate::cli::args::CompactArgs;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::page::Page;
use crate::cli::printer::{Outcome, Report};

pub(crate) fn run(args: &CompactArgs, context: &Context) -> Outcome {
    let part = &args.session.id;
    with_session(context, part, EngineOptions::default(), async |it| {
        let session = it.engine.open_session(it.session, Claim::IfFree).await?;
        let thread = Some(args.thread.as_str());
        let result = if args.undo {
            match session.undo_compaction(thread).await? {
                UndoOutcome::Undone(entry) => CompactionResult::Undone(entry),
                UndoOutcome::NothingToUndo => CompactionResult::NothingToUndo,
                UndoOutcome::Busy => CompactionResult::Busy,
            }
        } else {
            match session.compact(thread).await? {
                CompactionOutcome::Summarised {
                    entry,
                    tokens_before: before,
                    tokens_after: after,
                } => CompactionResult::Compacted {
                    entry,
                    before,
                    after,
                },
                CompactionOutcome::Pruned(calls) => CompactionResult::Pruned(calls),
                CompactionOutcome::Nothing => CompactionResult::Unchanged,
                CompactionOutcome::Failed(error) => CompactionResult::Failed(error),
            }
        };
        let session = it.session.clone();
        Ok(Box::new(CompactionReport { session, result }) as Box<dyn Report>)
    })
}

enum CompactionResult {
    /// The summary, and the number of tokens before and after.
    Compacted {
        entry: EntryId,
        before: u64,
        after: u64,
    },
    /// Number of calls whose output was dropped.
    Pruned(usize),
    Unchanged,
    Failed(ErrorInfo),
    Undone(EntryId),
    NothingToUndo,
    /// A turn or a compaction is running, so nothing was undone.
    Busy,
}

struct CompactionReport {
    session: SessionId,
    result: CompactionResult,
}

impl Report for CompactionReport {
    fn json(&self) -> Value {
        let result = match &self.result {
            CompactionResult::Compacted {
                entry,
                before,
                after,
            } => json!({ "entry": entry, "tokens_before": before, "tokens_after": after }),
            CompactionResult::Pruned(calls) => json!({ "pruned": calls }),
            CompactionResult::Unchanged
            | CompactionResult::NothingToUndo
            | CompactionResult::Busy => json!(null),
            CompactionResult::Failed(error) => json!({ "error": error }),
            CompactionResult::Undone(entry) => json!({ "undone": entry }),
        };
        json!({ "session": self.session, "compaction": result })
    }

    fn show(&self, page: &mut Page) {
        match &self.result {
            CompactionResult::Compacted { before, after, .. } => {
                page.line(format_args!("compacted {before} tokens to {after}"));
            }
            CompactionResult::Pruned(calls) => {
                page.line(format_args!("pruned the output of {calls} tool calls"));
            }
            CompactionResult::Unchanged => page.line("nothing to compact"),
            CompactionResult::Undone(_) => page.line("compaction undone"),
            CompactionResult::Failed(_)
            | CompactionResult::NothingToUndo
            | CompactionResult::Busy => {}
        }
    }

    fn failure(&self) -> Option<Failure> {
        let show = || format!("rye session show {}", self.session.short());
        match &self.result {
            CompactionResult::Failed(error) => {
                Some(Failure::failed("compaction", &error.message).hint(show()))
            }
            CompactionResult::NothingToUndo => {
                let message = "no compaction to undo";
                Some(Failure::failed("not_found", message).hint(show()))
            }
            CompactionResult::Busy => {
                let message = "cannot undo: a turn or a compaction is running";
                Some(Failure::failed("busy", message).hint(show()))
            }
            _ => None,
        }
    }

    fn next_command(&self) -> Option<String> {
        match &self.result {
            CompactionResult::Compacted { .. } => Some(format!(
                "rye session compact {} --undo",
                self.session.short()
            )),
            _ => None,
        }
    }
}
