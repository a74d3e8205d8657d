//! A history that is summed up: when, and what comes of it.
//!
//! That it is to be summed up is written down before anybody is asked to, and the sum with
//! all that it changes in one batch. So a host that dies meanwhile has changed nothing, and
//! the next one begins again.

use std::sync::Arc;

use rye_protocol::{
    CompactionReason, Entry, EntryId, EntryKind, ErrorCode, ErrorInfo, EventKind, Op, Phase,
    TurnEnd, Usage,
};

use super::{Continuation, Effect, Step};

/// Nobody's window is smaller: so few tokens fit, and nobody need be asked for it.
const FEW: u64 = 256;

/// What is known of models' windows.
pub(crate) trait Windows {
    /// How many tokens a context may have for a model; none if nobody knows.
    fn usable(&self, model: &str) -> Option<u64>;
}

/// What came of summing up.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Compacted {
    /// Entries whose output is left out from now on.
    pub(crate) pruned: Vec<Entry>,
    /// The sum.
    pub(crate) sum: Option<EntryKind>,
    /// Tokens of the context now.
    pub(crate) tokens: u64,
    /// What it cost.
    pub(crate) usage: Usage,
}

impl Step<'_> {
    /// Whether the context of a turn is so full that it is to be summed up.
    pub(super) fn is_full(&self, model: &str) -> bool {
        let tokens = self.machine.thread.tokens;
        self.env.compaction.auto
            && tokens >= FEW
            && self
                .env
                .windows
                .usable(model)
                .is_some_and(|usable| tokens >= usable)
    }

    /// Writes down that it is to be done.
    pub(super) fn begin_compaction(&mut self, why: CompactionReason) {
        if self.machine.thread.compaction.is_none() {
            self.machine.thread.compaction = Some(why);
            self.tell(EventKind::CompactionStart);
        }
    }

    /// Has it done, if it is to be and nothing stands in the way. Whether to wait for it.
    pub(super) fn compact(&mut self) -> bool {
        let Some(why) = self.machine.thread.compaction else {
            return false;
        };
        let (live, turn) = (&self.machine.live, self.machine.thread.turn.as_ref());
        if live.compacting {
            return true;
        }
        if turn.is_some_and(|turn| turn.phase != Phase::Model) || live.model {
            return false;
        }
        let model = turn.map(|turn| turn.model.clone());
        let model = model.or_else(|| Continuation::model(&self.machine.thread));
        let model = model.or_else(|| self.machine.thread.model.clone());
        let model = model.unwrap_or_else(|| self.env.model.to_owned());
        self.machine.live.compacting = true;
        self.out.effects.push(Effect::Compact { why, model });
        true
    }

    /// The model has said that the context is too long: it is summed up, once.
    pub(super) fn overflowed(&mut self, mut error: ErrorInfo) {
        let auto = self.env.compaction.auto;
        let Some(turn) = &mut self.machine.thread.turn else {
            return;
        };
        if turn.phase != Phase::Model {
            return;
        }
        if turn.overflowed || !auto {
            error.message += if turn.overflowed {
                "; it was summed up, and is too long still: ask for less at once, or choose a \
                 model with a larger window"
            } else {
                "; `rye session compact` sums it up, since `auto` is off in compaction.yaml"
            };
            return self.answered(Err(error));
        }
        self.machine.live.model = false;
        turn.overflowed = true;
        self.begin_compaction(CompactionReason::Overflow);
    }

    /// It was summed up, or could not be.
    pub(super) fn compacted(&mut self, outcome: Result<Box<Compacted>, (ErrorInfo, Usage)>) {
        self.machine.live.compacting = false;
        let Some(why) = self.machine.thread.compaction.take() else {
            return;
        };
        let continuation = Continuation::take(&mut self.machine.thread);
        match outcome {
            Ok(done) => self.summed_up(*done, why, &continuation),
            Err((error, usage)) => {
                self.use_up(usage);
                let error = self.placed(error);
                self.tell(EventKind::CompactionEnd {
                    entry: None,
                    error: Some(error.clone()),
                });
                if let Some(turn) = &mut self.machine.thread.turn {
                    turn.skip_size_check = true;
                    if why == CompactionReason::Overflow {
                        let message = format!(
                            "the context is too long for the model, and could not be summed up: {}",
                            error.message
                        );
                        let error = ErrorInfo::new(ErrorCode::ContextOverflow, message);
                        self.fail(error, TurnEnd::Error);
                    }
                }
            }
        }
    }

    fn summed_up(&mut self, done: Compacted, why: CompactionReason, continuation: &Continuation) {
        for entry in done.pruned {
            let id = entry.id.clone();
            self.out.batch.push(Op::ReplaceEntry(Arc::new(entry)));
            self.tell(EventKind::MessageUpdate { entry: id });
        }
        let entry = done.sum.map(|sum| self.append(sum));
        self.machine.thread.tokens = done.tokens;
        self.use_up(done.usage);
        let is_summed_up = entry.is_some();
        self.tell(EventKind::CompactionEnd { entry, error: None });
        let model = self.machine.thread.turn.as_ref();
        if let Some(model) = model.map(|turn| turn.model.clone()) {
            // What could not be made to fit is not tried again and again.
            let full = self.is_full(&model);
            if let Some(turn) = &mut self.machine.thread.turn {
                turn.skip_size_check |= full;
            }
            return;
        }
        if is_summed_up && why == CompactionReason::Threshold && self.env.compaction.auto_continue {
            self.go_on(continuation);
        }
    }

    /// Tells the agent to go on, in words that nobody said; not where the prompt that filled
    /// the context has nothing left of its limits.
    fn go_on(&mut self, continuation: &Continuation) {
        if continuation.is_over(self.env.now) {
            return;
        }
        let words = &self.env.compaction.continue_prompt;
        let prompt = continuation.prompt(&self.machine.thread, words, self.env.now);
        self.queue_first(prompt);
        self.out.accepted = None;
    }

    /// It is not to be done any more.
    pub(super) fn cancel_compaction(&mut self, reason: &str) {
        if self.machine.thread.compaction.take().is_none() {
            return;
        }
        Continuation::take(&mut self.machine.thread);
        if std::mem::take(&mut self.machine.live.compacting) {
            self.out.effects.push(Effect::StopModel);
        }
        let message = format!("it was ended: {reason}");
        let error = self.placed(ErrorInfo::new(ErrorCode::Denied, message));
        self.tell(EventKind::CompactionEnd {
            entry: None,
            error: Some(error),
        });
    }

    /// A sum does not stand any more.
    pub(super) fn undo_compaction(&mut self, compaction: EntryId, tokens: u64) {
        let thread = &self.machine.thread;
        if thread.turn.is_some() || thread.compaction.is_some() {
            return;
        }
        self.append(EntryKind::CompactionUndone { compaction });
        self.machine.thread.tokens = tokens;
    }
}
