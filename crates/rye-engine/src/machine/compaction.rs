//! Compaction: when it starts and how its result is applied.
//!
//! The start is committed before the model is asked for a summary, and the result is committed
//! in one batch. A host that dies in between has changed nothing, and the next one starts again.

use std::sync::Arc;

use rye_protocol::{
    CompactionReason, Continuation, Entry, EntryId, EntryKind, ErrorCode, ErrorInfo, EventKind, Op,
    Phase, QueuedPrompt, TurnEnd, Usage,
};

use super::{Effect, Step};

/// Every context window is larger than this, so smaller contexts need no lookup.
const MIN_WINDOW: u64 = 256;

/// Looks up the context sizes of models.
pub(crate) trait ContextWindows {
    /// How many tokens a model's context may have; `None` if it is unknown.
    fn usable_tokens(&self, model: &str) -> Option<u64>;
}

/// Result of a compaction.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct CompactionResult {
    /// Entries with pruned tool output.
    pub(crate) pruned: Vec<Entry>,
    /// The compaction entry, if the history was summarised.
    pub(crate) summary: Option<EntryKind>,
    /// Tokens of the context afterwards.
    pub(crate) tokens: u64,
    /// Usage of the summarising model calls.
    pub(crate) usage: Usage,
}

impl Step<'_> {
    /// Whether the context is full.
    pub(super) fn is_full(&self, model: &str) -> bool {
        let tokens = self.machine.thread.tokens;
        self.context.compaction.auto
            && tokens >= MIN_WINDOW
            && self
                .context
                .windows
                .usable_tokens(model)
                .is_some_and(|usable| tokens >= usable)
    }

    /// Commits that a compaction is to be done.
    pub(super) fn begin_compaction(&mut self, reason: CompactionReason) {
        if self.machine.thread.compaction.is_none() {
            self.machine.thread.compaction = Some(reason);
            self.emit(EventKind::CompactionStart);
        }
    }

    /// Starts a due compaction if nothing else runs. Returns whether to wait for it.
    pub(super) fn compact(&mut self) -> bool {
        let Some(reason) = self.machine.thread.compaction else {
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
        let continuation = self.machine.thread.continuation.as_ref();
        let model = model.or_else(|| continuation?.model.clone());
        let model = model.or_else(|| self.machine.thread.model.clone());
        let model = model.unwrap_or_else(|| self.context.model.to_owned());
        self.machine.live.compacting = true;
        self.out.effects.push(Effect::Compact { reason, model });
        true
    }

    /// The model rejected the context as too long: compacts it, once per turn.
    pub(super) fn on_context_overflow(&mut self, mut error: ErrorInfo) {
        let auto = self.context.compaction.auto;
        let Some(turn) = &mut self.machine.thread.turn else {
            return;
        };
        if turn.phase != Phase::Model {
            return;
        }
        if turn.overflowed || !auto {
            error.message += if turn.overflowed {
                "; still too long after compaction: shorten the prompt, or use a model with a \
                 larger window"
            } else {
                "; automatic compaction is off (`auto` in compaction.yaml): run `rye session compact`"
            };
            return self.on_model_answer(Err(error));
        }
        self.machine.live.model = false;
        turn.overflowed = true;
        self.begin_compaction(CompactionReason::Overflow);
    }

    /// The compaction has finished.
    pub(super) fn on_compaction_ended(
        &mut self,
        outcome: Result<Box<CompactionResult>, (ErrorInfo, Usage)>,
    ) {
        self.machine.live.compacting = false;
        let Some(reason) = self.machine.thread.compaction.take() else {
            return;
        };
        let continuation = self.machine.thread.continuation.take().unwrap_or_default();
        match outcome {
            Ok(done) => self.apply_compaction(*done, reason, continuation),
            Err((error, usage)) => {
                self.add_usage(usage);
                let error = self.with_ids(error);
                self.emit(EventKind::CompactionEnd {
                    entry: None,
                    error: Some(error.clone()),
                });
                if let Some(turn) = &mut self.machine.thread.turn {
                    turn.skip_size_check = true;
                    if reason == CompactionReason::Overflow {
                        let message = format!(
                            "the context is too long for the model, and compaction failed: {}",
                            error.message
                        );
                        let error = ErrorInfo::new(ErrorCode::ContextOverflow, message);
                        self.fail_turn(error, TurnEnd::Error);
                    }
                }
            }
        }
    }

    fn apply_compaction(
        &mut self,
        done: CompactionResult,
        reason: CompactionReason,
        continuation: Continuation,
    ) {
        for entry in done.pruned {
            let id = entry.id.clone();
            self.out.batch.push(Op::ReplaceEntry(Arc::new(entry)));
            self.emit(EventKind::MessageUpdate { entry: id });
        }
        let entry = done.summary.map(|summary| self.append(summary));
        self.machine.thread.tokens = done.tokens;
        self.add_usage(done.usage);
        let continuation = Continuation {
            // The summary is not a turn.
            limits: continuation.limits.remaining(&Usage {
                turns: 0,
                ..done.usage
            }),
            ..continuation
        };
        let is_summarised = entry.is_some();
        self.emit(EventKind::CompactionEnd { entry, error: None });
        let model = self.machine.thread.turn.as_ref();
        if let Some(model) = model.map(|turn| turn.model.clone()) {
            // Do not try again if it still does not fit.
            let full = self.is_full(&model);
            if let Some(turn) = &mut self.machine.thread.turn {
                turn.skip_size_check |= full;
            }
            return;
        }
        if is_summarised
            && reason == CompactionReason::Threshold
            && self.context.compaction.auto_continue
        {
            self.queue_continuation(continuation);
        }
    }

    /// Queues a prompt that tells the agent to continue, unless the limits of the prompt that
    /// filled the context are exhausted.
    fn queue_continuation(&mut self, continuation: Continuation) {
        let now = self.context.now;
        let limits = continuation.limits;
        if limits.reached(&Usage::default(), now).is_some() {
            return;
        }
        let thread = &self.machine.thread;
        let (session, thread) = (thread.session.clone(), thread.id.clone());
        let text = self.context.compaction.continue_prompt.as_str();
        self.queue_first(QueuedPrompt {
            model: continuation.model,
            role: continuation.role,
            limits,
            compaction_continue: true,
            ..QueuedPrompt::new(session, thread, text, now)
        });
        self.out.accepted = None;
    }

    /// Cancels a due or running compaction.
    pub(super) fn cancel_compaction(&mut self, reason: &str) {
        if self.machine.thread.compaction.take().is_none() {
            return;
        }
        self.machine.thread.continuation = None;
        if std::mem::take(&mut self.machine.live.compacting) {
            self.out.effects.push(Effect::StopModel);
        }
        let message = format!("stopped: {reason}");
        let error = self.with_ids(ErrorInfo::new(ErrorCode::Denied, message));
        self.emit(EventKind::CompactionEnd {
            entry: None,
            error: Some(error),
        });
    }

    /// Undoes a compaction.
    pub(super) fn undo_compaction(&mut self, compaction: EntryId, tokens: u64) {
        let thread = &self.machine.thread;
        if thread.turn.is_some() || thread.compaction.is_some() {
            return;
        }
        self.append(EntryKind::CompactionUndone { compaction });
        self.machine.thread.tokens = tokens;
    }
}
